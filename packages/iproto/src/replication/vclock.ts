import { MalformedFrameError } from '../errors.js'
import type { BodyWriter } from '../msgpack/body-writer.js'

/* VCLOCK (0x26): map of replica id (uint, 0..31 in Tarantool) to LSN (uint); component 0 counts local rows and is not sent. */

/** How far an instance is, per origin of rows: replica id to the LSN of the last row from there. What is absent is 0. */
export type Vclock = ReadonlyMap<number, number>

/** Writes the map, without component 0 and without zeros, by rising id. */
export function writeVclock(out: BodyWriter, vclock: Vclock): void {
  const components = [...vclock].filter(([id, lsn]) => id !== 0 && lsn !== 0).sort(([a], [b]) => a - b)
  out.mapHeader(components.length)
  for (const [id, lsn] of components) {
    out.uint(id)
    out.uint(lsn)
  }
}

/**
 * @param value - a map as the decoder gives it: a Map, or an empty object for an empty map
 * @throws MalformedFrameError when it is no vclock
 */
export function vclockOf(value: unknown): Vclock {
  if (!(value instanceof Map)) {
    const isEmptyMap =
      typeof value === 'object' && value !== null && !Array.isArray(value) && Object.keys(value).length === 0
    if (isEmptyMap) return new Map()
    throw new MalformedFrameError('A vclock is not a map')
  }
  for (const [id, lsn] of value as ReadonlyMap<unknown, unknown>) {
    if (!isCount(id) || !isCount(lsn)) throw new MalformedFrameError(`A vclock holds ${String(id)}: ${String(lsn)}`)
  }
  return value as Vclock
}

function isCount(value: unknown): value is number {
  return typeof value === 'number' && Number.isInteger(value) && value >= 0
}
