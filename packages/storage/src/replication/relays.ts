/* Everybody who reads rows here: who they are, what they say they have, and when they get more. */
import { BoxError, ErrorCode, RequestType } from '@orbweaver/iproto'
import type { ClientSession, InboundFrame } from '@orbweaver/server'
import { Relay } from './relay.js'
import type { RelaySource } from './relay.js'
import { decodeAcknowledgement, decodeSubscription, NO_UUID } from './stream-codec.js'
import { covers } from './vclock.js'
import type { Vclock } from './vclock.js'

/** The right to execute this one is that of a peer. */
export const REPLICATION_RIGHT = 'orbweaver.replication'
/** Requests of peers. */
export const PEER_REQUESTS: ReadonlySet<number> = new Set([RequestType.join, RequestType.subscribe, RequestType.vote])

const HEARTBEAT_MS = 1_000
const SYNC_POLL_MS = 5

export interface RelaysOptions {
  readonly source: RelaySource
  /** The other instances: uuid to number. */
  readonly numbers: ReadonlyMap<string, number>
  /** Somebody told how far it is, in which term. */
  readonly onHeard: (peer: number, vclock: Vclock, term: number) => void
}

export class Relays {
  readonly #options: RelaysOptions
  readonly #relays = new Map<ClientSession, Relay>()
  #isPumpQueued = false
  #cancelHeartbeat: (() => void) | undefined

  constructor(options: RelaysOptions) {
    this.#options = options
  }

  /** Numbers of the instances that read rows here now. */
  get followers(): ReadonlySet<number> {
    return new Set([...this.#relays.values()].map((relay) => relay.replicaId))
  }

  start(): void {
    this.#cancelHeartbeat = this.#options.source.clock.schedule(HEARTBEAT_MS, () => {
      for (const relay of this.#relays.values()) relay.heartbeat()
      this.start()
    })
  }

  stop(): void {
    this.#cancelHeartbeat?.()
    for (const relay of this.#relays.values()) relay.stop()
    this.#relays.clear()
  }

  /** @throws BoxError 1, 62, 63 for somebody who is not one of this replicaset's others, or of another release */
  subscribe(session: ClientSession, frame: InboundFrame): void {
    const { source, numbers } = this.#options
    const { instanceUuid, replicasetUuid, from } = decodeSubscription(frame.type, frame.body)
    if (replicasetUuid !== source.replicasetUuid && replicasetUuid !== NO_UUID && source.replicasetUuid !== NO_UUID) {
      throw BoxError.of(
        ErrorCode.replicasetUuidMismatch,
        `Replica set UUID mismatch: expected ${source.replicasetUuid}, got ${replicasetUuid}`,
        { executed: 'no' },
      )
    }
    const replicaId = numbers.get(instanceUuid)
    if (replicaId === undefined) {
      throw BoxError.of(
        ErrorCode.unknownReplica,
        `Replica ${instanceUuid} is not registered with replica set ${source.replicasetUuid}`,
        { executed: 'no' },
      )
    }
    // One that subscribes again has lost its link, whether this end has noticed or not.
    for (const [other, relay] of this.#relays) if (relay.replicaId === replicaId) this.#drop(other, relay)
    this.#relays.set(session, new Relay(source, session, replicaId, from))
  }

  /** Whether `session` is a subscriber; if so, its frame was an acknowledgement. @throws MalformedFrameError when it was none */
  acknowledge(session: ClientSession, frame: InboundFrame): boolean {
    const relay = this.#relays.get(session)
    if (relay === undefined) return false
    if (frame.type === RequestType.ok) {
      const { vclock, term } = decodeAcknowledgement(frame.body)
      // Numbers of another term may be those of other rows.
      relay.acknowledged = term === this.#options.source.term ? vclock : new Map()
      this.#options.onHeard(relay.replicaId, vclock, term)
    }
    return true
  }

  drained(session: ClientSession): void {
    this.#relays.get(session)?.drained()
  }

  sessionClosed(session: ClientSession): void {
    this.#relays.get(session)?.stop()
    this.#relays.delete(session)
  }

  /** Relays send in `soon`, so that everything of one turn leaves together. */
  pump(): void {
    if (this.#isPumpQueued || this.#relays.size === 0) return
    this.#isPumpQueued = true
    this.#options.source.clock.soon(() => {
      this.#isPumpQueued = false
      for (const relay of this.#relays.values()) relay.pump()
    })
  }

  /** What is here was replaced: everybody begins again from where they are. */
  restart(): void {
    for (const [session, relay] of this.#relays) this.#drop(session, relay)
  }

  /** Whether every one of `peers` has everything up to `target`, within the time. */
  async synced(peers: readonly number[], target: Vclock, timeoutMs: number): Promise<boolean> {
    const { clock } = this.#options.source
    const deadline = clock.now() + timeoutMs
    const isSynced = (): boolean =>
      peers.every((number) =>
        [...this.#relays.values()].some((relay) => relay.replicaId === number && covers(relay.acknowledged, target)),
      )
    while (!isSynced()) {
      const left = deadline - clock.now()
      if (left <= 0) return false
      await new Promise<void>((resolve) => clock.schedule(Math.min(left, SYNC_POLL_MS), resolve))
    }
    return true
  }

  #drop(session: ClientSession, relay: Relay): void {
    this.#relays.delete(session)
    relay.stop(new Error('It has to subscribe again'))
  }
}
