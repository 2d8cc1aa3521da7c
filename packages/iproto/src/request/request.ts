import type { RequestClass } from '../executed.js'
import { InvalidArgumentError } from '../errors.js'
import type { BodyWriter } from '../msgpack/body-writer.js'

/** One request, not yet numbered: it is encoded when it is given to a FrameWriter, which may happen more than once. */
export interface Request {
  /** See RequestType. */
  readonly type: number
  readonly requestClass: RequestClass
  /** @throws InvalidArgumentError naming the place of a value that cannot be written */
  writeBody(out: BodyWriter): void
}

/**
 * A request given by its type and encoded body: for passing on what a client sent, and for tests.
 * @param body - a whole MessagePack map, or empty for none; unchecked
 */
export function rawRequest(type: number, requestClass: RequestClass, body: Uint8Array): Request {
  return {
    type,
    requestClass,
    writeBody(out) {
      if (body.length > 0) out.raw(body)
    },
  }
}

/** A request without a body. */
export function bareRequest(type: number, requestClass: RequestClass): Request {
  return { type, requestClass, writeBody: writeNothing }
}

/** @throws InvalidArgumentError when the value is no whole number of 32 bits: servers cut larger ones without a word */
export function assertUint32(value: number, name: string): void {
  if (!Number.isInteger(value) || value < 0 || value > 0xffffffff) {
    throw new InvalidArgumentError(`${name} is ${String(value)}, expected a whole number of 0..4294967295`)
  }
}

export function assertText(value: unknown, name: string): asserts value is string {
  if (typeof value !== 'string') throw new InvalidArgumentError(`${name} is ${kindOf(value)}, expected a string`)
}

export function assertArray(value: unknown, name: string): asserts value is readonly unknown[] {
  if (!Array.isArray(value)) throw new InvalidArgumentError(`${name} is ${kindOf(value)}, expected an array`)
}

function kindOf(value: unknown): string {
  if (value === null || value === undefined) return String(value)
  return typeof value === 'object' ? `an object (${value.constructor?.name ?? 'no prototype'})` : `a ${typeof value}`
}

function writeNothing(): void {
  // A body may be absent: for these requests that equals an empty map.
}
