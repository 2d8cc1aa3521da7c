/* Clients of a router that write one after another, and an account of what became of every write. */
import { setTimeout as sleep } from 'node:timers/promises'
import { isOrbweaverError } from '@orbweaver/iproto'
import type { Router, RouterCallOptions } from '@orbweaver/router'

export class WriteLoad {
  /** Written, and said so. */
  readonly acknowledged = new Set<number>()
  /** May or may not be there. */
  readonly unknown = new Set<number>()
  /** Surely not there. */
  readonly refused = new Set<number>()
  /** Errors by their message, without numbers. */
  readonly errors: Record<string, number> = {}
  readonly #router: Router
  readonly #clients: Promise<void>[]
  #next = 1
  #isStopped = false

  constructor(router: Router, clients: number, options: RouterCallOptions = {}) {
    this.#router = router
    this.#clients = Array.from({ length: clients }, () => this.#run(options))
  }

  get failures(): number {
    return this.unknown.size + this.refused.size
  }

  /** Resolves when so many further writes were acknowledged. */
  async more(count: number): Promise<void> {
    const wanted = this.acknowledged.size + count
    const untilMs = performance.now() + 30_000
    while (this.acknowledged.size < wanted) {
      if (performance.now() > untilMs) throw new Error(`No more writes succeed: ${JSON.stringify(this.errors)}`)
      await sleep(5)
    }
  }

  async stop(): Promise<void> {
    this.#isStopped = true
    await Promise.all(this.#clients)
  }

  /** What is wrong with the rows `[id, bucketId, times]` of all replicasets together. */
  faultsIn(rows: readonly (readonly [number, number, number])[]): string[] {
    const faults: string[] = []
    const found = new Map<number, number>()
    for (const [id, bucketId, times] of rows) {
      found.set(id, (found.get(id) ?? 0) + 1)
      if (times !== 1) faults.push(`${id} was written ${times} times`)
      if (bucketId !== this.#router.bucketId(id)) faults.push(`${id} is in bucket ${bucketId}`)
      if (this.refused.has(id)) faults.push(`${id} was refused and is there`)
    }
    for (const [id, places] of found) if (places !== 1) faults.push(`${id} is there ${places} times`)
    for (const id of this.acknowledged) if (!found.has(id)) faults.push(`${id} was acknowledged and is lost`)
    return faults
  }

  async #run(options: RouterCallOptions): Promise<void> {
    while (!this.#isStopped) {
      const id = this.#next++
      const bucketId = this.#router.bucketId(id)
      try {
        await this.#router.callrw(bucketId, 'write', [bucketId, id], options)
        this.acknowledged.add(id)
      } catch (error) {
        // Closed: the test has ended with an error of its own.
        if (!isOrbweaverError(error) || error.code === 'ORB_ROUTER_CLOSED') return
        const kind = `${error.code}: ${error.message.replaceAll(/\d+/g, 'N')}`
        this.errors[kind] = (this.errors[kind] ?? 0) + 1
        if (error.executed === 'no') this.refused.add(id)
        else this.unknown.add(id)
        await sleep(10)
      }
    }
  }
}
