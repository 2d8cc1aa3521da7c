/*
 * One "fat" connection to a target, logged in once and shared by many clients. Requests of the clients in the ring go out
 * in turn, under numbers of the lane; replies are given back under the number the client chose, patched in place.
 * A lane decides nothing: which client belongs on it is the business of client.ts, when it opens and ends of lane-group.ts.
 */
import type { ChannelSink, Clock, FrameChannel, LargeFrame } from '@orbweaver/connection'
import { Feature, FrameHeader, isOrbweaverError, type OrbweaverError, RequestType } from '@orbweaver/iproto'
import { FairQueue, type FairMember } from './fair-queue.js'
import { LaneWriter } from './lane-writer.js'
import type { ResolvedLimits } from './limits.js'
import type { RequestClass } from './meter.js'
import type { QueuedRequest, ReplyNote } from './request-queue.js'
import { type SlotEntry, SlotFlag, SlotTable } from './slot-table.js'
import { StatementRefs } from './statements.js'
import type { Target } from './target.js'

/** Who asked for something on a lane: a client, or a part of the proxy. */
export interface LaneUser {
  /** One whole frame for it, under its own sync; it belongs to the user. `isFinal` is false for a push. */
  replied(frame: Buffer, answer: LaneAnswer): void
  /** In the place of `replied`, without a slice: the frame is [start, end) of memory that it shares with its neighbours. */
  repliedIn?(bytes: Buffer, start: number, end: number, answer: LaneAnswer): void
  /** A reply that comes in pieces, its head first; undefined: not wanted, it is dropped. */
  repliedLarge(head: Buffer, answer: LaneAnswer): LargeFrame | undefined
  /** The lane was lost and the outcome is not known. */
  lost(answer: LaneAnswer, cause: OrbweaverError): void
  /** The answer takes too long. @returns whether somebody was told, and the answer will be dropped */
  expired?(answer: LaneAnswer): boolean
}

/** What a lane knows of a request when its answer comes. Valid during the call: the object is used again. */
export interface LaneAnswer {
  readonly lane: Lane
  /** Response code: 0, 128 for a push, 0x8000 and the code for an error. */
  readonly status: number
  readonly isFinal: boolean
  readonly requestType: number
  readonly requestBytes: number
  readonly flags: number
  readonly syncHigh: number
  readonly syncLow: number
  readonly sentAt: number
  readonly note: ReplyNote | undefined
}

/** A client in the ring. */
export interface LaneMember extends FairMember, LaneUser {
  /** Gives its first request to `lane.submit`. @returns whether the next one belongs on this lane as well */
  sendNext(lane: Lane): boolean
  /** It stood in the ring of a lane that takes no more: find another place. */
  evicted(): void
}

/** A stream that may hold a transaction on a lane. */
export interface LaneStream {
  readonly isTransaction: boolean
  laneLost(cause: OrbweaverError): void
}

/** What a lane reports to whoever opened it. */
export interface LaneOwner {
  readonly target: Target
  readonly clock: Clock
  readonly limits: ResolvedLimits
  /** An EVENT arrived. @param body - of the frame */
  laneEvent(lane: Lane, body: Buffer): void
  laneClosed(lane: Lane, cause: OrbweaverError): void
  /** A reply so large that others have to wait behind it has begun. */
  laneBlocked(lane: Lane): void
  /** Nothing of the kind that a failover waits for is in flight on this lane any more. */
  laneQuiet(lane: Lane): void
}

export class Lane implements ChannelSink {
  /** Never used again. */
  readonly id: number
  readonly channel: FrameChannel
  readonly slots: SlotTable<LaneUser, ReplyNote>
  readonly #owner: LaneOwner
  readonly #ring: FairQueue<LaneMember>
  readonly #writer = new LaneWriter()
  readonly #answer: MutableAnswer
  readonly #header = new FrameHeader()
  #state: 'open' | 'draining' | 'closed' = 'open'
  #isPumpQueued = false
  readonly #runPump = (): void => this.#pump()
  #isCongested = false
  #isBlocked = false
  #isReadingPaused = false
  #rwInFlight = 0
  #lastStreamId = 0
  #unexpected = 0
  #pingedAt = Number.NEGATIVE_INFINITY
  #missedPings = 0
  #drainReason = new Error('the lane was drained')
  /** Streams with requests in flight or a transaction: they stay here, also while the lane drains. */
  readonly streams: Set<LaneStream> = new Set()
  readonly statements: StatementRefs = new StatementRefs()
  /** Instants on the clock. */
  lastReceivedAt: number
  lastUsedAt: number

  constructor(id: number, channel: FrameChannel, owner: LaneOwner) {
    this.id = id
    this.channel = channel
    this.#owner = owner
    this.slots = new SlotTable(owner.limits.maxInflightPerLane)
    this.#ring = new FairQueue(QUANTUM_BYTES)
    this.#answer = {
      lane: this,
      status: 0,
      isFinal: true,
      requestType: 0,
      requestBytes: 0,
      flags: 0,
      syncHigh: 0,
      syncLow: 0,
      sentAt: 0,
      note: undefined,
    }
    this.lastReceivedAt = this.lastUsedAt = owner.clock.now()
    channel.attach(this)
  }

  get target(): Target {
    return this.#owner.target
  }

  /** Whether its server knows streams and transactions. */
  get hasTransactions(): boolean {
    const { features } = this.channel
    return features.has(Feature.streams) && features.has(Feature.transactions)
  }

  /** Streams that hold a transaction, as far as is known. */
  get transactions(): number {
    let count = 0
    for (const stream of this.streams) if (stream.isTransaction) count++
    return count
  }

  /** Whether new requests may go here. */
  get isOpen(): boolean {
    return this.#state === 'open'
  }

  /** A large reply is passing: what comes behind it has to wait. */
  get isBlocked(): boolean {
    return this.#isBlocked
  }

  get isClosed(): boolean {
    return this.#state === 'closed'
  }

  /** Requests in flight that a failover waits for. */
  get rwInFlight(): number {
    return this.#rwInFlight
  }

  /** Clients that wait for their turn. */
  get waiting(): number {
    return this.#ring.size
  }

  /** Replies nobody asked for, so far. */
  get unexpectedReplies(): number {
    return this.#unexpected
  }

  /** Puts a client that has a request for this lane at the end of the ring; it must not be in a ring already. */
  enroll(member: LaneMember): void {
    this.#ring.push(member)
    this.#pumpSoon()
  }

  withdraw(member: LaneMember): void {
    this.#ring.remove(member)
  }

  /** Sends all waiting clients to find another place. */
  evictAll(): void {
    for (const member of this.#ring.clear()) member.evicted()
  }

  /** Takes a client's request; it is written at the end of this turn, in one write with the others. */
  submit(request: QueuedRequest, user: LaneUser): void {
    const now = this.#owner.clock.now()
    const flags = (request.isRead ? 0 : SlotFlag.rw) | (request.laneStreamId === 0 ? 0 : SlotFlag.stream)
    this.target.meter?.sent(request.type, classOf(flags), now - request.arrivedAt)
    this.#take(
      {
        owner: user,
        note: request.note,
        syncHigh: request.syncHigh,
        syncLow: request.syncLow,
        type: request.type,
        flags,
        bytes: request.bytes,
        sentAt: now,
      },
      request.laneStreamId,
      request.schemaVersion,
      request.memory,
      request.bodyStart,
      request.bodyEnd,
    )
  }

  /** Takes a request beside the ring: for calls that find their target by themselves. */
  submitApart(request: QueuedRequest, user: LaneUser): void {
    this.submit(request, user)
    this.#pumpSoon()
  }

  /** A request of the proxy's own. `isRw`: a failover waits for it. */
  ask(
    request: { readonly type: number; readonly body: Uint8Array; readonly streamId?: number; readonly isRw?: boolean },
    user: LaneUser,
  ): void {
    if (this.#state === 'closed') throw new Error('A closed lane was asked')
    const flags = SlotFlag.internal | (request.isRw === true ? SlotFlag.rw : 0)
    this.target.meter?.sent(request.type, classOf(flags), -1)
    this.#take(
      {
        owner: user,
        note: undefined,
        syncHigh: 0,
        syncLow: 0,
        type: request.type,
        flags,
        bytes: request.body.length,
        sentAt: this.#owner.clock.now(),
      },
      request.streamId ?? 0,
      0,
      request.body,
    )
    this.#pumpSoon()
  }

  /** A request that is not answered unless it fails (WATCH, UNWATCH). */
  tell(type: number, body: Uint8Array): void {
    if (this.#state === 'closed') return
    this.#writer.append(type, 0, UNANSWERED_SLOT, 0, 0, body)
    this.#pumpSoon()
  }

  /** A stream number nobody has used on this lane. */
  newStreamId(): number {
    return ++this.#lastStreamId
  }

  /** A stream has nothing in flight and no transaction any more. */
  streamEnded(stream: LaneStream): void {
    this.streams.delete(stream)
    this.#endIfDrained()
    if (this.streams.size === 0 && this.#rwInFlight === 0) this.#owner.laneQuiet(this)
  }

  /** Leaves replies with the server: for a lane of one client, who does not read. */
  pauseReading(): void {
    if (this.#isReadingPaused || this.#state === 'closed') return
    this.#isReadingPaused = true
    this.channel.pauseReading()
  }

  resumeReading(): void {
    if (!this.#isReadingPaused) return
    this.#isReadingPaused = false
    this.lastReceivedAt = this.#owner.clock.now()
    this.channel.resumeReading()
  }

  /** Takes only requests of streams that are here, and ends when all is answered and no transaction is open. */
  drainAndClose(why: Error): void {
    if (this.#state !== 'open') return
    this.#state = 'draining'
    this.#drainReason = why
    this.evictAll()
    this.#endIfDrained()
  }

  /** A client has gone: nobody gets its replies. */
  orphan(user: LaneUser): void {
    this.slots.orphan(user)
  }

  destroy(cause: Error): void {
    if (this.#state === 'closed') return
    this.#flush()
    this.channel.destroy(cause)
  }

  /**
   * Looks after the lane, every so often: asks a silent server for a sign of life, answers requests that took too long.
   * @returns how many signs it owes
   */
  pulse(now: number): number {
    // A server that is not read says nothing.
    if (this.#state === 'closed' || this.#isReadingPaused) return 0
    const { pingIntervalMs, idlePingMs, pingTimeoutMs, requestTimeoutMs } = this.#owner.limits
    if (requestTimeoutMs > 0) this.#expire(now - requestTimeoutMs)
    if (this.lastReceivedAt >= this.#pingedAt) this.#missedPings = 0
    const silentMs = now - Math.max(this.lastReceivedAt, this.#pingedAt)
    const isWaiting = this.lastReceivedAt < this.#pingedAt
    if (isWaiting && silentMs >= pingTimeoutMs) {
      this.#missedPings++
      if (this.#missedPings >= MAX_MISSED_PINGS) {
        this.destroy(new Error(`it gave no sign of life for ${Math.round(now - this.lastReceivedAt)} ms`))
        return this.#missedPings
      }
    }
    const isDue = isWaiting
      ? silentMs >= pingTimeoutMs
      : silentMs >= (this.slots.used > 0 ? pingIntervalMs : idlePingMs)
    if (isDue && !this.slots.isFull) {
      this.#pingedAt = now
      this.ask({ type: RequestType.ping, body: NO_BODY }, NO_USER)
    }
    return this.#missedPings
  }

  /** Answers in the place of the server what was sent before an instant. Its slot stays taken: the answer may still come. */
  #expire(sentBefore: number): void {
    const { slots } = this
    for (const slot of slots.taken()) {
      const user = slots.owner(slot)
      if (user?.expired === undefined || slots.sentAt(slot) > sentBefore) continue
      this.#describe(slot)
      if (user.expired(this.#answer)) slots.disown(slot)
    }
  }

  // ---- what the channel says ----------------------------------------------------------------------------------------

  frame(frame: Buffer): void {
    this.frameIn(frame, 0, frame.length)
  }

  frameIn(bytes: Buffer, start: number, end: number): void {
    this.lastReceivedAt = this.#owner.clock.now()
    const slot = this.#slotOf(bytes, start, end)
    if (slot < 0) return
    this.#describe(slot)
    const answer = this.#answer
    const user = this.slots.owner(slot)
    const { isFinal, note } = answer
    this.#measure()
    if (isFinal) this.#release(slot)
    else this.slots.addFlag(slot, SlotFlag.repliedPartly)
    if (isFinal && note !== undefined) note.answered(answer.status, bytes.subarray(start, end))
    if (user?.repliedIn !== undefined) user.repliedIn(bytes, start, end, answer)
    else user?.replied(bytes.subarray(start, end), answer)
    if (isFinal) this.#afterReply()
  }

  /** A reply above the size from which the channel delivers in pieces: they are passed on as they come. */
  largeFrame(head: Buffer, frameBytes: number): LargeFrame {
    this.lastReceivedAt = this.#owner.clock.now()
    if (frameBytes > BLOCKING_REPLY_BYTES) {
      this.#isBlocked = true
      this.#owner.laneBlocked(this)
    }
    const isKnown = hasFixedLayout(head, 0, head.length)
    const slot = isKnown ? this.#slotOf(head, 0, head.length) : this.#unexpectedFrame()
    if (slot < 0) return NOBODY
    this.#describe(slot)
    const status = this.#answer.status
    const receiver = this.slots.owner(slot)?.repliedLarge(head, this.#answer)
    this.slots.addFlag(slot, SlotFlag.repliedPartly)
    return {
      chunk: (bytes) => {
        this.lastReceivedAt = this.#owner.clock.now()
        receiver?.chunk(bytes)
      },
      end: () => {
        this.#isBlocked = false
        receiver?.end()
        if (status === RequestType.chunk) return
        this.#answer.status = status
        this.#describe(slot)
        this.#measure()
        this.#release(slot)
        this.#answer.note?.answered(status, head)
        this.#afterReply()
      },
      cut: () => receiver?.cut(),
    }
  }

  drain(): void {
    this.#isCongested = false
    this.#pumpSoon()
  }

  closed(cause: OrbweaverError): void {
    if (this.#state === 'closed') return
    this.#state = 'closed'
    const { slots } = this
    for (const slot of slots.taken()) {
      this.#describe(slot)
      const user = slots.owner(slot)
      slots.release(slot)
      this.#answer.note?.lost()
      user?.lost(this.#answer, cause)
    }
    this.#rwInFlight = 0
    for (const stream of this.streams) stream.laneLost(cause)
    this.streams.clear()
    this.#owner.laneClosed(this, cause)
    this.evictAll()
    this.#owner.laneQuiet(this)
  }

  // ---- inside -------------------------------------------------------------------------------------------------------

  #pumpSoon(): void {
    if (this.#isPumpQueued || this.#state === 'closed') return
    this.#isPumpQueued = true
    this.#owner.clock.soon(this.#runPump)
  }

  /** Moves requests from the ring to the wire: at most so many at a time, so that replies and timers get their turn. */
  #pump(): void {
    this.#isPumpQueued = false
    if (this.isClosed) return
    const ring = this.#ring
    let frames = 0
    while (frames < MAX_FRAMES_PER_PUMP && this.#writer.pendingBytes < MAX_BYTES_PER_PUMP && this.#canTake) {
      const member = ring.next()
      if (member === undefined) break
      if (member.sendNext(this)) ring.push(member)
      else member.deficit = 0
      frames++
    }
    this.#flush()
    if (ring.size > 0 && this.#canTake) this.#pumpSoon()
  }

  get #canTake(): boolean {
    return (
      this.#state !== 'closed' &&
      !this.#isCongested &&
      !this.slots.isFull &&
      // One request larger than the limit must pass as well.
      (this.slots.used === 0 || this.slots.usedBytes < this.#owner.limits.maxInflightBytesPerLane)
    )
  }

  #flush(): void {
    if (this.#writer.pendingBytes === 0) return
    const goesOn = this.channel.write(this.#writer.take())
    if (!goesOn && this.channel.pendingBytes > MAX_UNWRITTEN_BYTES) this.#isCongested = true
  }

  #take(
    entry: SlotEntry<LaneUser, ReplyNote>,
    streamId: number,
    schemaVersion: number,
    body: Uint8Array,
    bodyStart = 0,
    bodyEnd: number = body.length,
  ): void {
    const { slots } = this
    const slot = slots.take(entry)
    if ((entry.flags & SlotFlag.rw) !== 0) this.#rwInFlight++
    if ((entry.flags & SlotFlag.internal) === 0) this.lastUsedAt = entry.sentAt
    this.#writer.append(entry.type, slots.generation(slot), slot, streamId, schemaVersion, body, bodyStart, bodyEnd)
  }

  /** The slot a frame belongs to, with the status in `#answer`; -1 when it is an event, or nobody's. */
  #slotOf(bytes: Buffer, start: number, end: number): number {
    let generation: number
    let number: number
    if (hasFixedLayout(bytes, start, end)) {
      this.#answer.status = uint32At(bytes, start + 8)
      generation = uint32At(bytes, start + 14)
      number = uint32At(bytes, start + 18)
      this.#owner.target.schemaVersion = schemaVersionAt(bytes, start)
    } else {
      const header = this.#header
      try {
        header.read(bytes, start, end)
      } catch (error) {
        if (!isOrbweaverError(error)) throw error
        return this.#unexpectedFrame()
      }
      if (header.type === RequestType.event) {
        this.#owner.laneEvent(this, bytes.subarray(header.bodyStart, header.bodyEnd))
        return -1
      }
      // A server that lays its headers out in another way: slower, and nothing else.
      this.#answer.status = header.type
      generation = header.syncHigh
      number = header.syncLow
    }
    const slot = this.slots.find(generation, number)
    if (slot >= 0) return slot
    // An error that answers a WATCH of ours: the target's features said so already.
    if (number === UNANSWERED_SLOT && (this.#answer.status & RequestType.errorFlag) !== 0) return -1
    return this.#unexpectedFrame()
  }

  /** A reply nobody asked for, or not once more: after some the two ends do not agree on anything any longer. */
  #unexpectedFrame(): number {
    this.#unexpected++
    if (this.#unexpected >= MAX_UNEXPECTED) {
      this.destroy(new Error(`${this.#unexpected} replies came that nobody had asked for`))
    }
    return -1
  }

  #describe(slot: number): void {
    const answer = this.#answer
    const { slots } = this
    answer.isFinal = answer.status !== RequestType.chunk
    answer.requestType = slots.type(slot)
    answer.requestBytes = slots.bytes(slot)
    answer.flags = slots.flags(slot)
    answer.syncHigh = slots.syncHigh(slot)
    answer.syncLow = slots.syncLow(slot)
    answer.sentAt = slots.sentAt(slot)
    answer.note = slots.note(slot)
  }

  #measure(): void {
    const { meter } = this.target
    if (meter === undefined) return
    const { status, isFinal, requestType, flags, sentAt } = this.#answer
    const result = !isFinal ? 2 : status === RequestType.ok ? 0 : 1
    meter.replied(requestType, classOf(flags), result, this.lastReceivedAt - sentAt)
  }

  #release(slot: number): void {
    this.slots.release(slot)
    if ((this.#answer.flags & SlotFlag.rw) !== 0) this.#rwInFlight--
  }

  #afterReply(): void {
    if (this.#rwInFlight === 0 && this.streams.size === 0) this.#owner.laneQuiet(this)
    this.#endIfDrained()
    if (this.#ring.size > 0) this.#pumpSoon()
  }

  #endIfDrained(): void {
    if (this.#state === 'draining' && this.slots.used === 0 && this.streams.size === 0) this.destroy(this.#drainReason)
  }
}

type MutableAnswer = { -readonly [K in keyof LaneAnswer]: LaneAnswer[K] }

/* 83 00 ce <u32 status> 01 cf <u64 sync> 05 …: what 2.x and 3.x write before every reply. */
function hasFixedLayout(bytes: Buffer, start: number, end: number): boolean {
  return (
    end - start >= 28 &&
    bytes[start] === 0xce &&
    bytes[start + 5] === 0x83 &&
    bytes[start + 6] === 0x00 &&
    bytes[start + 7] === 0xce &&
    bytes[start + 12] === 0x01 &&
    bytes[start + 13] === 0xcf
  )
}

/* Behind the sync: 05 ce <u32> on 2.x, 05 cf <u64> on 3.x. */
function schemaVersionAt(bytes: Buffer, start: number): number {
  return uint32At(bytes, start + (bytes[start + 23] === 0xcf ? 28 : 24))
}

/**
 * Overwrites the schema version of a reply in place: a client must see one server's numbers, whoever answered.
 * A frame of another layout stays as it is.
 */
export function patchSchemaVersion(bytes: Buffer, schemaVersion: number, start = 0, end: number = bytes.length): void {
  if (!hasFixedLayout(bytes, start, end) || bytes[start + 22] !== 0x05) return
  if (bytes[start + 23] === 0xcf) {
    bytes.writeUInt32BE(0, start + 24)
    bytes.writeUInt32BE(schemaVersion >>> 0, start + 28)
  } else if (bytes[start + 23] === 0xce) {
    bytes.writeUInt32BE(schemaVersion >>> 0, start + 24)
  }
}

function uint32At(bytes: Buffer, at: number): number {
  return bytes[at]! * 0x1000000 + ((bytes[at + 1]! << 16) | (bytes[at + 2]! << 8) | bytes[at + 3]!)
}

const NOBODY: LargeFrame = { chunk: ignore, end: ignore, cut: ignore }

function classOf(flags: number): RequestClass {
  if ((flags & SlotFlag.internal) !== 0) return 3
  if ((flags & SlotFlag.stream) !== 0) return 2
  return (flags & SlotFlag.rw) === 0 ? 1 : 0
}

function ignore(): void {
  // The client has gone; its reply is read to the end and dropped.
}

const NO_USER: LaneUser = { replied: ignore, repliedLarge: () => undefined, lost: ignore }
const NO_BODY = new Uint8Array(0)
const MAX_MISSED_PINGS = 2
/** Replies above this size count as blocking their lane. */
const BLOCKING_REPLY_BYTES = 4_194_304
/** What a turn earns a client, in bytes of requests. */
const QUANTUM_BYTES = 16_384
const MAX_FRAMES_PER_PUMP = 2_048
const MAX_BYTES_PER_PUMP = 262_144
/** Bytes inside the transport from which nothing more is taken. */
const MAX_UNWRITTEN_BYTES = 1_048_576
/** No slot has this number: requests that have no answer go under it. */
const UNANSWERED_SLOT = 0xffff_ffff
const MAX_UNEXPECTED = 16
