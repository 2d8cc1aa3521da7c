import type { Vclock } from '@orbweaver/iproto'

/** How far each instance's rows are known: number of the instance to the number of its last row. A value: changed by copies only. */
export type { Vclock } from '@orbweaver/iproto'

export function lsnOf(vclock: Vclock, origin: number): number {
  return vclock.get(origin) ?? 0
}

/** Whether everything `other` knows is known here. */
export function covers(vclock: Vclock, other: Vclock): boolean {
  for (const [origin, lsn] of other) if (lsnOf(vclock, origin) < lsn) return false
  return true
}

/** The furthest of both, origin by origin. */
export function joined(a: Vclock, b: Vclock): Vclock {
  const result = new Map(a)
  for (const [origin, lsn] of b) if (lsnOf(a, origin) < lsn) result.set(origin, lsn)
  return result
}
