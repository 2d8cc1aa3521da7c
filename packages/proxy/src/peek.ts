/*
 * One value of a request body, without decoding the rest. Bodies are the client's and go on untouched: what cannot be
 * understood here is for the target to refuse, so nothing throws.
 */
import { isOrbweaverError, skipValue } from '@orbweaver/iproto'

/**
 * Offset of the value of `key` in the first level of a body, or -1.
 * @param which - `first` stops at the first match; `last` looks at all keys, as a server does that lets the last of equal keys win
 */
export function peekKey(body: Buffer, key: number, which: 'first' | 'last' = 'first'): number {
  let found = -1
  try {
    const first = body[0] ?? 0
    let at = 1
    let size = first & 0x0f
    if (first < 0x80 || first >= 0x90) {
      const width = first === 0xde ? 2 : first === 0xdf ? 4 : 0
      if (width === 0 || body.length <= width) return -1
      size = body.readUIntBE(1, width)
      at += width
    }
    for (; size > 0 && at < body.length; size--) {
      const value = skipValue(body, at, body.length)
      if (uintAt(body, at) === key) {
        if (which === 'first') return value < body.length ? value : -1
        found = value
      }
      at = skipValue(body, value, body.length)
    }
  } catch (error) {
    if (!isOrbweaverError(error)) throw error
  }
  return found < body.length ? found : -1
}

/** The uint at `at`, in any of its forms, or -1. Above 2^53 it is not exact, which no use of it needs. */
export function uintAt(body: Buffer, at: number): number {
  const first = body[at]
  if (first === undefined) return -1
  if (first < 0x80) return first
  const width = first >= 0xcc && first <= 0xcf ? 1 << (first - 0xcc) : 0
  if (width === 0 || at + width >= body.length) return -1
  let value = 0
  for (let i = 1; i <= width; i++) value = value * 256 + body[at + i]!
  return value
}

/** The payload of the str at `at`; undefined when there is none. A slice of the body. */
export function textAt(body: Buffer, at: number): Buffer | undefined {
  const first = body[at]
  if (first === undefined) return undefined
  let start = at + 1
  let length = first & 0x1f
  if (first < 0xa0 || first >= 0xc0) {
    const width = first >= 0xd9 && first <= 0xdb ? 1 << (first - 0xd9) : 0
    if (width === 0 || start + width > body.length) return undefined
    length = body.readUIntBE(start, width)
    start += width
  }
  return start + length <= body.length ? body.subarray(start, start + length) : undefined
}

/** Offset of the first element of the array at `at`, or -1 when there is none. */
export function firstElement(body: Buffer, at: number): number {
  const first = body[at]
  if (first === undefined) return -1
  if (first > 0x90 && first < 0xa0) return at + 1
  if (first === 0xdc && body.length > at + 2 && body.readUInt16BE(at + 1) > 0) return at + 3
  if (first === 0xdd && body.length > at + 4 && body.readUInt32BE(at + 1) > 0) return at + 5
  return -1
}
