/** Writes at a steady pace through a replicaset, and an account of what became of each. */
import { setTimeout as sleep } from 'node:timers/promises'
import { BoxError, type OrbweaverError, upsertRequest } from '@orbweaver/iproto'
import type { ReplicasetHandle } from '@orbweaver/replicaset'

/** A space whose second field counts how often a key was written. */
export const COUNTS_SPACE_ID = 612

export interface LoadReport {
  /** Errors by their code. */
  readonly errors: Readonly<Record<string, number>>
  readonly acknowledged: ReadonlySet<number>
  /** May or may not be there. */
  readonly unknown: ReadonlySet<number>
  /** Surely not there. */
  readonly refused: ReadonlySet<number>
  readonly longestMs: number
}

export class Load {
  readonly #replicaset: ReplicasetHandle
  readonly #space: number | string
  readonly #acknowledged = new Set<number>()
  readonly #unknown = new Set<number>()
  readonly #refused = new Set<number>()
  readonly #errors: Record<string, number> = {}
  readonly #pending = new Set<Promise<void>>()
  #written = 0
  #longestMs = 0
  #timer: NodeJS.Timeout | undefined

  /**
   * @param perSecond - writes, in groups of every 5 ms
   * @param space - whose second field counts
   */
  constructor(replicaset: ReplicasetHandle, perSecond: number, space: number | string = COUNTS_SPACE_ID) {
    this.#replicaset = replicaset
    this.#space = space
    this.#timer = setInterval(() => {
      for (let count = 0; count < perSecond / 200; count += 1) this.#write()
    }, 5)
  }

  get errorCount(): number {
    return Object.values(this.#errors).reduce((sum, count) => sum + count, 0)
  }

  /** Resolves when so many further writes were acknowledged. @throws Error when that takes more than 20 s */
  async more(count: number): Promise<void> {
    const wanted = this.#acknowledged.size + count
    const untilMs = performance.now() + 20_000
    while (this.#acknowledged.size < wanted) {
      if (performance.now() > untilMs)
        throw new Error(
          `No more writes succeed: ${JSON.stringify(this.#replicaset.info())} ${JSON.stringify(this.#errors)}`,
        )
      await sleep(5)
    }
  }

  /** No more writes; waits for the answers of all. */
  async end(): Promise<LoadReport> {
    clearInterval(this.#timer)
    await Promise.all(this.#pending)
    return {
      errors: { ...this.#errors },
      acknowledged: this.#acknowledged,
      unknown: this.#unknown,
      refused: this.#refused,
      longestMs: this.#longestMs,
    }
  }

  #write(): void {
    const key = (this.#written += 1)
    const startMs = performance.now()
    const request = upsertRequest({ space: this.#space, tuple: [key, 1], operations: [['+', 1, 1]] })
    const writing = this.#replicaset.request('rw', request, { timeout: 30_000 }).then(
      () => void this.#acknowledged.add(key),
      (error: OrbweaverError) => {
        const code = error instanceof BoxError ? `${error.code} ${String(error.boxCode)}` : error.code
        this.#errors[code] = (this.#errors[code] ?? 0) + 1
        if (error.executed === 'no') this.#refused.add(key)
        else this.#unknown.add(key)
      },
    )
    this.#pending.add(writing)
    void writing.finally(() => {
      this.#pending.delete(writing)
      this.#longestMs = Math.max(this.#longestMs, performance.now() - startMs)
    })
  }
}

/** What is wrong with the rows at the end: lost, doubled, or there although they were refused. */
export function discrepancies(rows: readonly (readonly [key: number, count: number])[], report: LoadReport): string[] {
  const counts = new Map(rows)
  const wrong: string[] = []
  for (const key of report.acknowledged)
    if (counts.get(key) !== 1) wrong.push(`acknowledged ${String(key)} is there ${String(counts.get(key) ?? 0)} times`)
  for (const key of report.unknown)
    if ((counts.get(key) ?? 0) > 1) wrong.push(`unknown ${String(key)} is there ${String(counts.get(key))} times`)
  for (const key of report.refused) if (counts.has(key)) wrong.push(`refused ${String(key)} is there`)
  return wrong
}
