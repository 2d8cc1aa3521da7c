import type { ReplySink } from '@orbweaver/connection'
import { RequestAbortedError } from '@orbweaver/connection'
import { callRequest, decodeData, Feature, isOrbweaverError } from '@orbweaver/iproto'
import type { Executed, OrbweaverError, Reply, Request } from '@orbweaver/iproto'
import type { InstanceHandle, PinnedSession } from '@orbweaver/replicaset'
import { keepsRefsCall, readKeepsRefs, storageUnrefCall } from '@orbweaver/vshard'
import type { ServiceCall, ServiceReply } from '@orbweaver/vshard'
import type { RoutedSet } from '../topology.js'
import type { MapOwner } from './map-owner.js'
import { MasterCheck } from './master-check.js'
import type { CheckListener } from './master-check.js'

export interface AskOptions {
  readonly deadline: number
  readonly signal?: AbortSignal | undefined
}

/**
 * A granted reference. It lives in the session of the storage that gave it, so everything that depends on it travels there too;
 * a change of master makes it doubtful, since the new master has not heard of it.
 */
export class HeldRef {
  readonly set: RoutedSet
  readonly id: number
  readonly instance: InstanceHandle
  readonly #owner: MapOwner
  readonly #session: PinnedSession
  /** Of the replicaset, when it was granted. */
  readonly #epoch: number
  #isUsed = false
  #isOver = false

  constructor(owner: MapOwner, set: RoutedSet, id: number, instance: InstanceHandle, session: PinnedSession) {
    this.#owner = owner
    this.set = set
    this.id = id
    this.instance = instance
    this.#session = session
    this.#epoch = set.replicaset.epoch
  }

  /** The storage has forgotten it: its session is gone. */
  get isLost(): boolean {
    return this.#session.lost
  }

  /** Another instance is, or was meanwhile, the master: it may have moved buckets. */
  get isDoubtful(): boolean {
    const { replicaset } = this.set
    return this.isLost || replicaset.epoch !== this.#epoch || replicaset.master() !== this.instance
  }

  /** Its instance is the master, and was ever since: a server with events tells before it answers anything later. */
  get isSurelyOfMaster(): boolean {
    return !this.isDoubtful && this.#session.features.has(Feature.watchers)
  }

  /** Whether its instance is the master, and was ever since. Rejects with an OrbweaverError where that must be asked. */
  isOfMaster({ deadline }: AskOptions): Promise<boolean> {
    if (this.isSurelyOfMaster) return Promise.resolve(true)
    if (this.isDoubtful) return Promise.resolve(false)
    return new Promise((resolve, reject) => {
      const checked: CheckListener['checked'] = (_ref, isMaster, error) => {
        if (error === undefined) resolve(isMaster)
        else reject(error)
      }
      this.send(new MasterCheck(this, { checked }), deadline)
    })
  }

  /**
   * Whether no bucket can have moved since it was granted. A storage that is not the master any more may promise that moves wait for
   * its references all the same: ours do, those in Lua do not.
   */
  async holds(options: AskOptions): Promise<boolean> {
    try {
      if (await this.isOfMaster(options)) return true
      if (this.isLost) return false
      const promise = await this.ask(keepsRefsCall(), readKeepsRefs, options)
      return promise.ok && promise.value && !this.isLost
    } catch (error) {
      // Lua has no such function, or no rights on it; or nobody answers.
      if (isOrbweaverError(error)) return false
      throw error
    }
  }

  /** One call through its session. Rejects with an OrbweaverError. */
  async ask<T>(
    call: ServiceCall,
    read: (values: readonly unknown[]) => ServiceReply<T>,
    options: AskOptions,
  ): Promise<ServiceReply<T>> {
    return read(decodeData(await this.request(callRequest(call.name, call.args), options)))
  }

  /** One request through its session. Rejects with an OrbweaverError. */
  request(request: Request, { deadline, signal }: AskOptions): Promise<Reply> {
    return new Promise((resolve, reject) => {
      const sink = { done: resolve, failed: reject }
      this.#session.send(request, signal === undefined ? { deadline } : { deadline, signal }, sink)
    })
  }

  /** The same for a request that is its own sink. */
  send(request: Request & ReplySink, deadline: number): void {
    this.#session.send(request, { deadline }, request)
  }

  /** What the server behind the session can do. */
  get features(): ReadonlySet<number> {
    return this.#session.features
  }

  /** A map uses it up, however that ends: there will be nothing to give back. */
  used(): void {
    this.#isUsed = true
  }

  /** Gives it back without waiting for the answer, which changes nothing. */
  release(): void {
    if (this.#isOver) return
    this.#isOver = true
    if (!this.#isUsed && !this.isLost) sendUnref(this.#owner, this.#session, this.id)
  }
}

export function sendUnref(owner: MapOwner, session: PinnedSession, id: number): void {
  const { name, args } = storageUnrefCall(id)
  session.send(callRequest(name, args), { deadline: owner.clock.now() + UNREF_TIMEOUT_MS }, UNANSWERED)
}

/** What becomes of a call whose caller gives up. @param reason - of the caller's signal */
export function abortedBy(reason: unknown, executed: Executed): OrbweaverError {
  return new RequestAbortedError('The call was aborted by its caller', { cause: reason, executed })
}

const UNREF_TIMEOUT_MS = 5_000
const UNANSWERED: ReplySink = { done: () => undefined, failed: () => undefined }
