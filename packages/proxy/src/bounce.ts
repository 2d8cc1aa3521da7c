/*
 * Calls of `vshard.storage.call` for clients that know nothing of the topology: each goes to the replicaset that has its
 * bucket, and once more where that one says that it has it no longer. Only a refusal before user code ran is repeated.
 * Facts: vshard 0.1.42 on Tarantool 3.2.1 (`[nil, error]` is such a refusal; during a move the receiving side refuses too,
 * and later even names the sending one as the owner: so what is in progress is waited for, not followed).
 */
import type { Clock, LargeFrame } from '@orbweaver/connection'
import {
  type BoxError,
  decodeData,
  FrameHeader,
  isOrbweaverError,
  Key,
  type OrbweaverError,
  readReply,
  RequestType,
} from '@orbweaver/iproto'
import { proxyErrors } from './errors.js'
import type { LaneAnswer, LaneUser } from './lane.js'
import type { LaneWaiter } from './lane-group.js'
import type { Login } from './login.js'
import { firstElement, peekKey, textAt, uintAt } from './peek.js'
import type { SyncHalves } from './reply.js'
import type { QueuedRequest } from './request-queue.js'
import type { Target } from './target.js'

/** Where buckets are: a router is one, and so is a map made by hand. */
export interface BucketLocator {
  /** Id of the replicaset; undefined: not known. */
  locate(bucketId: number): string | undefined
  /** What a refusal said. */
  report(fact: { bucketId: number; from: string; destination: string | undefined }): void
}

export interface BounceOptions {
  readonly locator: BucketLocator
  /** Names of targets by the id of their replicaset. */
  readonly shards: Readonly<Record<string, { readonly rw: string; readonly ro?: readonly string[] }>>
  /** How often one call may be sent again. Default 8. */
  readonly maxBounces?: number
  /** How long one call may be sent again, in milliseconds. Default 2,000. */
  readonly bounceTimeoutMs?: number
  /** Users whose calls are not bounced: those that follow refusals by themselves, as routers do. */
  readonly declinedUsers?: readonly string[]
}

/** What a call says of itself. */
export interface BucketCall {
  readonly bucketId: number
  readonly mode: 'read' | 'write'
}

/** The call in a body of CALL; undefined: it is another one, and goes where everything goes. */
export function bucketCallOf(body: Buffer): BucketCall | undefined {
  const name = textAt(body, peekKey(body, Key.functionName))
  if (name?.equals(STORAGE_CALL) !== true) return undefined
  const args = peekKey(body, Key.tuple)
  const first = args < 0 ? -1 : firstElement(body, args)
  if (first < 0) return undefined
  const bucketId = uintAt(body, first)
  const lead = body[first]!
  const mode = textAt(body, first + (lead < 0x80 ? 1 : 1 + (1 << (lead - 0xcc))))?.toString('latin1')
  return bucketId > 0 && (mode === 'read' || mode === 'write') ? { bucketId, mode } : undefined
}

/** A refusal before user code ran, of a kind that another attempt may help; undefined: the reply is final. */
interface Refusal {
  readonly code: number
  readonly destination: string | undefined
}

/** @param frame - a successful reply to `vshard.storage.call` */
export function refusalIn(frame: Buffer): Refusal | undefined {
  const header = new FrameHeader()
  try {
    header.read(frame)
    const reply = readReply(frame, header)
    const first = firstElement(frame, reply.dataStart)
    if (frame[first] !== MSGPACK_NIL) return undefined
    const [, error] = decodeData(reply, { maps: 'map' })
    if (!(error instanceof Map) || error.get('type') !== 'ShardingError') return undefined
    const code: unknown = error.get('code')
    const destination: unknown = error.get('destination')
    if (typeof code !== 'number' || !BOUNCED.has(code)) return undefined
    return { code, destination: typeof destination === 'string' ? destination : undefined }
  } catch (error) {
    if (!isOrbweaverError(error)) throw error
    return undefined
  }
}

/** Whose call it is. */
export interface BounceClient extends LaneUser {
  readonly login: Login
  readonly hasLeft: boolean
  /** Answers a call that was not sent. */
  failApart(request: SyncHalves, error: BoxError): void
}

export interface BouncerParts {
  readonly clock: Clock
  readonly connectWaitMs: number
  target(name: string): Target | undefined
  /** The master of the moment: it stands for its replicaset, whatever the configuration named. */
  readonly rw: Target | undefined
  /** Requests for the master wait. */
  readonly isHeld: boolean
}

export class Bouncer {
  readonly #options: BounceOptions
  readonly #parts: BouncerParts
  readonly #declined: ReadonlySet<string>
  #turn = 0
  /** Calls sent again so far. */
  bounces = 0

  constructor(options: BounceOptions, parts: BouncerParts) {
    this.#options = options
    this.#parts = parts
    this.#declined = new Set(options.declinedUsers)
  }

  get clock(): Clock {
    return this.#parts.clock
  }

  get connectWaitMs(): number {
    return this.#parts.connectWaitMs
  }

  get isHeld(): boolean {
    return this.#parts.isHeld
  }

  get maxBounces(): number {
    return this.#options.maxBounces ?? DEFAULT_MAX_BOUNCES
  }

  get timeoutMs(): number {
    return this.#options.bounceTimeoutMs ?? DEFAULT_TIMEOUT_MS
  }

  /** The call in a request, unless its user goes without. */
  callOf(body: Buffer, user: string): BucketCall | undefined {
    return this.#declined.has(user) ? undefined : bucketCallOf(body)
  }

  send(request: QueuedRequest, call: BucketCall, client: BounceClient, mask: readonly number[]): void {
    new BouncedCall(request, call, client, mask, this).attempt()
  }

  /** Where a call goes now. @param avoid - the replicaset that has just refused it */
  place({ bucketId, mode }: BucketCall, avoid: string | undefined): { shard: string; target: Target } | undefined {
    const known = this.#options.locator.locate(bucketId)
    const ids = Object.keys(this.#options.shards)
    // Nobody knows where the bucket is: whoever is asked says so, or who has it.
    const guesses = ids.filter((id) => id !== avoid)
    const shard =
      known !== undefined && ids.includes(known) ? known : guesses[this.#turn++ % Math.max(guesses.length, 1)]
    const names = shard === undefined ? undefined : this.#options.shards[shard]
    if (shard === undefined || names === undefined) return undefined
    const readers = mode === 'read' ? (names.ro ?? []) : []
    const { rw } = this.#parts
    if (readers.length === 0 && rw !== undefined && (names.rw === rw.name || names.ro?.includes(rw.name) === true)) {
      return { shard, target: rw }
    }
    const name = readers.length > 0 ? readers[this.#turn++ % readers.length]! : names.rw
    const target = this.#parts.target(name)
    return target === undefined ? undefined : { shard, target }
  }

  report(bucketId: number, from: string, destination: string | undefined): void {
    this.#options.locator.report({ bucketId, from, destination })
  }

  hasShard(id: string | undefined): boolean {
    return id !== undefined && id in this.#options.shards
  }
}

/** One call on its way. */
class BouncedCall implements LaneUser, LaneWaiter {
  readonly #request: QueuedRequest
  readonly #call: BucketCall
  readonly #client: BounceClient
  readonly #mask: readonly number[]
  readonly #bouncer: Bouncer
  readonly #startedAt: number
  #bounces = 0
  #shard = ''
  #refusedBy: string | undefined
  #cancelWait: (() => void) | undefined

  constructor(
    request: QueuedRequest,
    call: BucketCall,
    client: BounceClient,
    mask: readonly number[],
    bouncer: Bouncer,
  ) {
    this.#request = request
    this.#call = call
    this.#client = client
    this.#mask = mask
    this.#bouncer = bouncer
    this.#startedAt = bouncer.clock.now()
  }

  attempt(): void {
    if (this.#client.hasLeft) return
    if (this.#bouncer.isHeld) {
      this.#later()
      return
    }
    const place = this.#bouncer.place(this.#call, this.#refusedBy)
    if (place === undefined) {
      this.#client.failApart(this.#request, proxyErrors.noTarget())
      return
    }
    this.#shard = place.shard
    const group = place.target.group(this.#client.login, this.#mask)
    const lane = group.pick()
    if (lane !== undefined && !lane.slots.isFull) {
      lane.submitApart(this.#request, this)
      return
    }
    this.#cancelWait = this.#bouncer.clock.schedule(this.#bouncer.connectWaitMs, () => {
      group.stopWaiting(this)
      this.#client.failApart(
        this.#request,
        group.refusal ?? proxyErrors.notReached(group.target.name, group.lastFailure),
      )
    })
    if (lane === undefined) group.wait(this)
    else this.#later()
  }

  laneReady(): void {
    this.#cancelWait?.()
    this.attempt()
  }

  laneRefused(): void {
    // It may take the login in a moment; the time for waiting decides.
  }

  replied(frame: Buffer, answer: LaneAnswer): void {
    const mayBounce = answer.isFinal && answer.status === RequestType.ok && !this.#client.hasLeft
    const refusal = mayBounce ? refusalIn(frame) : undefined
    if (refusal === undefined || !this.#again(refusal)) this.#client.replied(frame, answer)
  }

  repliedLarge(head: Buffer, answer: LaneAnswer): LargeFrame | undefined {
    return this.#client.repliedLarge(head, answer)
  }

  lost(answer: LaneAnswer, cause: OrbweaverError): void {
    this.#client.lost(answer, cause)
  }

  /** @returns whether the call is sent again */
  #again({ code, destination }: Refusal): boolean {
    const bouncer = this.#bouncer
    const isOver = bouncer.clock.now() - this.#startedAt >= bouncer.timeoutMs
    if (isOver || this.#bounces >= bouncer.maxBounces) return false
    this.#refusedBy = this.#shard
    if (code === WRONG_BUCKET) bouncer.report(this.#call.bucketId, this.#shard, destination)
    this.#bounces++
    bouncer.bounces++
    const followsAtOnce = code === WRONG_BUCKET && destination !== this.#shard && bouncer.hasShard(destination)
    if (followsAtOnce) bouncer.clock.soon(() => this.attempt())
    else this.#later()
    return true
  }

  #later(): void {
    const delayMs = Math.min(FIRST_DELAY_MS * 2 ** Math.max(this.#bounces - 1, 0), MAX_DELAY_MS)
    this.#bouncer.clock.schedule(delayMs, () => {
      this.#cancelWait?.()
      this.attempt()
    })
  }
}

const STORAGE_CALL = Buffer.from('vshard.storage.call')
const MSGPACK_NIL = 0xc0
const WRONG_BUCKET = 1
/** WRONG_BUCKET, NON_MASTER, TRANSFER_IS_IN_PROGRESS, BUCKET_IS_LOCKED: raised before the function is called. */
const BOUNCED: ReadonlySet<number> = new Set([WRONG_BUCKET, 2, 7, 22])
const DEFAULT_MAX_BOUNCES = 8
const DEFAULT_TIMEOUT_MS = 2_000
const FIRST_DELAY_MS = 20
const MAX_DELAY_MS = 200
