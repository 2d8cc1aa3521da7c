/*
 * The rebalancer: asks all masters what they have, plans, orders those with too many to send. It runs in one place of the cluster;
 * a round follows when everybody is at rest again.
 */
import {
  readRebalancerApplyRoutes,
  readRebalancerRequestState,
  rebalancerApplyRoutesCall,
  rebalancerRequestStateCall,
} from '@orbweaver/vshard'
import type { RebalancerState } from '@orbweaver/vshard'
import { log } from '../diagnostics.js'
import { BackgroundService } from './background-service.js'
import type { ServiceInfo } from './background-service.js'
import { planRound, rebalancerPlace } from './rebalance-plan.js'
import type { RoutesApplier, RoutesProgress } from './routes-applier.js'
import type { VshardParts } from './vshard-parts.js'

/** What an operator reads of it. */
export interface RebalancerInfo extends ServiceInfo {
  /** It runs on this instance. */
  readonly isHere: boolean
  readonly state: 'balanced' | 'moving' | 'waiting' | 'elsewhere'
  /** The last plan's numbers, by replicaset: what it has (active and pinned), and what it should have. Locked ones are not in it. */
  readonly balance: Readonly<Record<string, { readonly has: number; readonly ideal: number }>>
  /** Largest deviation in percent of the ideal, and up to which nothing is moved. */
  readonly disbalancePercent: number
  readonly thresholdPercent: number
  /** Ids of locked replicasets, which neither give nor take: they are not in the balance. */
  readonly locked: readonly string[]
  /** What this storage sends by the last order. */
  readonly sending: RoutesProgress
}

const ASK_MS = 5_000
const IDLE_MS = 3_600_000
const FIRST_PAUSE_MS = 200
const LONGEST_PAUSE_MS = 10_000

export class Rebalancer extends BackgroundService {
  readonly #parts: VshardParts
  readonly #applier: RoutesApplier
  readonly #ownState: () => RebalancerState
  #state: RebalancerInfo['state'] = 'elsewhere'
  #balance: RebalancerInfo['balance'] = {}
  #disbalancePercent = 0
  #locked: readonly string[] = []
  #pauseMs = FIRST_PAUSE_MS

  /** @param ownState - as the service answers; throws what keeps this storage from taking part */
  constructor(parts: VshardParts, applier: RoutesApplier, ownState: () => RebalancerState) {
    super('rebalancer', parts, () => this.#round())
    this.#parts = parts
    this.#applier = applier
    this.#ownState = ownState
  }

  /** Whether this instance is the one. */
  get isHere(): boolean {
    const { identity, settings } = this.#parts
    const place = rebalancerPlace(settings.replicasets.values(), settings.rebalancerMode)
    if (place?.replicasetId !== identity.replicasetId || !identity.isMaster) return false
    return place.instanceId === undefined || place.instanceId === identity.instanceId
  }

  get rebalancerInfo(): RebalancerInfo {
    return {
      ...this.info,
      isHere: this.isHere,
      state: this.#state,
      balance: this.#balance,
      disbalancePercent: this.#disbalancePercent,
      thresholdPercent: this.#parts.settings.rebalancerDisbalanceThreshold,
      locked: this.#locked,
      sending: this.#applier.progress,
    }
  }

  async #round(): Promise<{ problem: string | undefined; againMs: number | undefined }> {
    if (!this.isHere) {
      this.#state = 'elsewhere'
      return { problem: undefined, againMs: undefined }
    }
    try {
      const { settings } = this.#parts
      const { replicasets } = settings
      this.#leaveOut([...replicasets.values()].flatMap(({ id, lock }) => (lock === true ? [id] : [])))
      const states = await this.#states()
      const round = planRound(replicasets, states, {
        bucketCount: settings.bucketCount,
        thresholdPercent: settings.rebalancerDisbalanceThreshold,
      })
      if (round.is === 'wait') return this.#again('waiting', round.problem)
      const { plan } = round
      this.#disbalancePercent = plan.disbalancePercent
      this.#balance = Object.fromEntries(
        [...plan.ideal].map(([id, ideal]) => [id, { has: ideal - plan.needed.get(id)!, ideal }]),
      )
      if (round.is === 'balanced') {
        this.#state = 'balanced'
        this.#pauseMs = FIRST_PAUSE_MS
        return { problem: undefined, againMs: IDLE_MS }
      }
      this.#state = 'moving'
      await Promise.all([...plan.routes].map(([giver, routes]) => this.#order(giver, routes)))
      this.#pauseMs = FIRST_PAUSE_MS
      return { problem: undefined, againMs: FIRST_PAUSE_MS }
    } catch (error) {
      return this.#again('waiting', error instanceof Error ? error.message : String(error))
    }
  }

  #leaveOut(locked: readonly string[]): void {
    const isNews = locked.join() !== this.#locked.join() && locked.length > 0
    this.#locked = locked
    if (isNews) log('info', this.#parts.storageName, 'rebalancer leaves out', () => ({ locked }))
  }

  #again(state: RebalancerInfo['state'], problem: string): { problem: string; againMs: number } {
    // Buckets on their way are the normal reason: it is no trouble while they get fewer.
    this.#state = this.#state === 'moving' ? 'moving' : state
    const againMs = this.#pauseMs
    this.#pauseMs = Math.min(this.#pauseMs * 2, LONGEST_PAUSE_MS)
    if (this.#pauseMs === LONGEST_PAUSE_MS) this.#state = state
    return { problem, againMs }
  }

  async #states(): Promise<ReadonlyMap<string, RebalancerState>> {
    const { cluster, identity, settings } = this.#parts
    const asked = [...settings.replicasets.keys()].map(async (id): Promise<[string, RebalancerState]> => {
      if (id === identity.replicasetId) return [id, this.#ownState()]
      const reply = await named(
        id,
        cluster.get(id).callMaster(rebalancerRequestStateCall(), readRebalancerRequestState, ASK_MS),
      )
      if (!reply.ok) throw new Error(`replicaset ${id}: ${reply.error.message}`, { cause: reply.error })
      return [id, reply.value]
    })
    return new Map(await Promise.all(asked))
  }

  async #order(giver: string, routes: ReadonlyMap<string, number>): Promise<void> {
    if (giver === this.#parts.identity.replicasetId) {
      this.#applier.apply(routes)
      return
    }
    const reply = await named(
      giver,
      this.#parts.cluster.get(giver).callMaster(rebalancerApplyRoutesCall(routes), readRebalancerApplyRoutes, ASK_MS),
    )
    if (!reply.ok) throw new Error(`replicaset ${giver}: ${reply.error.message}`, { cause: reply.error })
  }
}

/** The replicaset a failure is about belongs into its message. */
async function named<T>(id: string, work: Promise<T>): Promise<T> {
  try {
    return await work
  } catch (error) {
    throw new Error(`replicaset ${id}: ${error instanceof Error ? error.message : String(error)}`, { cause: error })
  }
}
