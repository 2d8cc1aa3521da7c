/*
 * Settles buckets whose move was interrupted: asks the other side, and where that has no record everybody, then follows the table of
 * recovery-rules. A bucket whose peer cannot answer waits, and the service says for whom. Woken by every change; each
 * unsettled bucket has its own growing pause, so a busy storage does not ask about it all the time.
 */
import { readRecoveryBucketStat, recoveryBucketStatCall } from '@orbweaver/vshard'
import { BackgroundService } from './background-service.js'
import type { BucketRecord } from './bucket-record.js'
import { verdictOf } from './recovery-rules.js'
import type { RemoteBucket, Verdict } from './recovery-rules.js'
import type { ReplicasetLink } from './replicaset-link.js'
import type { VshardParts } from './vshard-parts.js'

const ASK_MS = 5_000
const FIRST_PAUSE_MS = 50
const LONGEST_PAUSE_MS = 5_000
/** Buckets asked about at the same time. */
const PARALLEL = 32

interface Unsettled {
  readonly pauseMs: number
  readonly nextAt: number
  readonly cause: string
}

export class Recovery extends BackgroundService {
  readonly #parts: VshardParts
  readonly #unsettled = new Map<number, Unsettled>()

  constructor(parts: VshardParts) {
    super('recovery', parts, () => this.#recover())
    this.#parts = parts
  }

  async #recover(): Promise<{ problem: string | undefined; againMs: number | undefined }> {
    const { buckets, clock, transfers } = this.#parts
    const transient = new Set(
      (['readonly', 'sending', 'receiving'] as const).flatMap((status) => [...buckets.idsOf(status)]),
    )
    for (const id of this.#unsettled.keys()) if (!transient.has(id)) this.#unsettled.delete(id)
    const due = [...transient].filter(
      (id) => !transfers.has(id) && (this.#unsettled.get(id)?.nextAt ?? 0) <= clock.now(),
    )
    for (let start = 0; start < due.length && this.isActive; start += PARALLEL)
      await Promise.all(due.slice(start, start + PARALLEL).map((id) => this.#settle(id)))
    return { problem: this.#problem(), againMs: this.#nextMs() }
  }

  async #settle(id: number): Promise<void> {
    const { buckets, transfers } = this.#parts
    const local = buckets.get(id)
    if (local === undefined) return
    try {
      const remote = local.status === 'readonly' ? undefined : await this.#remoteOf(local)
      const now = buckets.get(id)
      const isSame = now?.status === local.status && now.generation === local.generation && !transfers.has(id)
      if (!isSame || !this.isActive) return
      const verdict = verdictOf(local, remote)
      if (verdict === 'wait') {
        this.#wait(
          local,
          `it is '${remote?.status ?? 'nil'}'${remote?.isTransferring === true ? ', in transfer,' : ''} there`,
        )
        return
      }
      await this.#apply(local, verdict)
    } catch (error) {
      this.#wait(local, error instanceof Error ? error.message : String(error))
    }
  }

  async #apply(local: BucketRecord, verdict: Exclude<Verdict, 'wait'>): Promise<void> {
    this.#parts.assertSynced()
    this.#parts.buckets.put({
      ...local,
      status: verdict,
      destination: verdict === 'active' ? undefined : local.destination,
    })
    this.#unsettled.delete(local.id)
    await this.#parts.committed()
  }

  /** @throws what keeps the peer, or anybody who must be asked in its place, from answering */
  async #remoteOf({ id, destination }: BucketRecord): Promise<RemoteBucket | undefined> {
    const { cluster } = this.#parts
    const peer = cluster.get(destination ?? '')
    const found = await this.#ask(peer, id)
    if (found !== undefined) return { ...found, isPeer: true }
    const others = cluster.ids.filter((other) => other !== peer.id).map((other) => cluster.get(other))
    const answers = await Promise.all(others.map((other) => this.#ask(other, id)))
    const newest = answers.reduce(
      (best, answer) => (answer !== undefined && answer.generation > (best?.generation ?? -1) ? answer : best),
      undefined,
    )
    return newest === undefined ? undefined : { ...newest, isPeer: false }
  }

  async #ask(replicaset: ReplicasetLink, id: number): Promise<Omit<RemoteBucket, 'isPeer'> | undefined> {
    try {
      const reply = await replicaset.callMaster(recoveryBucketStatCall(id), readRecoveryBucketStat, ASK_MS)
      if (!reply.ok) throw reply.error
      return reply.value.bucket
    } catch (error) {
      throw new Error(`replicaset ${replicaset.id}: ${error instanceof Error ? error.message : String(error)}`, {
        cause: error,
      })
    }
  }

  #wait({ id, status, destination }: BucketRecord, why: string): void {
    const before = this.#unsettled.get(id)
    const pauseMs = before === undefined ? FIRST_PAUSE_MS : Math.min(before.pauseMs * 2, LONGEST_PAUSE_MS)
    this.#unsettled.set(id, {
      pauseMs,
      nextAt: this.#parts.clock.now() + pauseMs * (0.8 + this.#parts.random() * 0.4),
      cause: `bucket ${id} is ${status}${destination === undefined ? '' : ` (replicaset ${destination})`}: ${why}`,
    })
  }

  #problem(): string | undefined {
    const [first] = this.#unsettled.values()
    if (first === undefined) return undefined
    return this.#unsettled.size === 1 ? first.cause : `${this.#unsettled.size} buckets; ${first.cause}`
  }

  #nextMs(): number | undefined {
    if (this.#unsettled.size === 0) return undefined
    const nextAt = Math.min(...[...this.#unsettled.values()].map((entry) => entry.nextAt))
    return Math.max(1, nextAt - this.#parts.clock.now())
  }
}
