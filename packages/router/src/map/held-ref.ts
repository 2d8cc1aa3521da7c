import type { ReplySink } from '@orbweaver/connection'
import { RequestAbortedError } from '@orbweaver/connection'
import { callRequest, decodeData, Feature, isOrbweaverError } from '@orbweaver/iproto'
import type { Executed, OrbweaverError, Reply, Request } from '@orbweaver/iproto'
import type { InstanceHandle, MasterChange, PinnedSession } from '@orbweaver/replicaset'
import { infoCall, keepsRefsCall, readInfo, readKeepsRefs, storageUnrefCall } from '@orbweaver/vshard'
import type { ServiceCall, ServiceReply } from '@orbweaver/vshard'
import type { RoutedSet } from '../topology.js'
import type { MapOwner } from './map-owner.js'

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
  #hasMasterChanged = false
  #isUsed = false
  #isOver = false
  readonly #masterChanged = (change: MasterChange): void => {
    if (change.master !== this.instance.id) this.#hasMasterChanged = true
  }

  constructor(owner: MapOwner, set: RoutedSet, id: number, instance: InstanceHandle, session: PinnedSession) {
    this.#owner = owner
    this.set = set
    this.id = id
    this.instance = instance
    this.#session = session
    set.replicaset.on('master', this.#masterChanged)
  }

  /** The storage has forgotten it: its session is gone. */
  get isLost(): boolean {
    return this.#session.lost
  }

  /** Another instance is, or was meanwhile, the master: it may have moved buckets. */
  get isDoubtful(): boolean {
    return this.isLost || this.#hasMasterChanged || this.set.replicaset.master()?.id !== this.instance.id
  }

  /**
   * Whether its instance is the master, and was ever since. A server without events is asked, since what is believed of it may be
   * old; the others have told, before they answered anything later.
   */
  async isOfMaster(options: AskOptions): Promise<boolean> {
    if (this.isDoubtful) return false
    if (this.#session.features.has(Feature.watchers)) return true
    const info = await this.ask(infoCall(), readInfo, options)
    return info.ok && info.value.isMaster && !this.isDoubtful
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
      this.send(request, { done: resolve, failed: reject }, { deadline, signal })
    })
  }

  send(request: Request, sink: ReplySink, { deadline, signal }: AskOptions): void {
    this.#session.send(request, signal === undefined ? { deadline } : { deadline, signal }, sink)
  }

  /** What the server behind the session can do. */
  get features(): ReadonlySet<number> {
    return this.#session.features
  }

  /** A map uses it up, however that ends: there will be nothing to give back. */
  used(): void {
    this.#isUsed = true
  }

  /** Gives it back without waiting for the answer, which changes nothing. Nothing may be sent through its session afterwards. */
  release(): void {
    if (this.#isOver) return
    this.#isOver = true
    this.set.replicaset.off('master', this.#masterChanged)
    if (!this.#isUsed && !this.isLost) sendUnref(this.#owner, this.#session, this.id)
    this.#session.release()
  }
}

export function sendUnref(owner: MapOwner, session: PinnedSession, id: number): void {
  const { name, args } = storageUnrefCall(id)
  session.send(callRequest(name, args), { deadline: owner.clock.now() + UNREF_TIMEOUT_MS }, UNANSWERED)
}

/** What the caller's signal makes of a call under way. */
export function abortedBy(signal: AbortSignal, executed: Executed): OrbweaverError {
  return new RequestAbortedError('The call was aborted by its caller', { cause: signal.reason, executed })
}

const UNREF_TIMEOUT_MS = 5_000
const UNANSWERED: ReplySink = { done: () => undefined, failed: () => undefined }
