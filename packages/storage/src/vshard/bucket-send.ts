/*
 * Sending one bucket. The order is what makes it safe: the bucket takes no writes any more (readonly), every instance of this
 * replicaset knows that and has no write running, the send is on record with a new generation (sending), the rows go over,
 * this side gives up the bucket (sent), and only then the receiver is told to serve it. A failure anywhere leaves a state
 * from which recovery finds the one owner. Messages and their order: vshard 0.1.42, `bucket_send`.
 *
 * Unlike the original it makes the bucket readonly only when nothing stands against the move that could have been seen before:
 * replicas are connected and near, the receiver's master answers, maps that a former master still runs have ended.
 */
import {
  bucketRecvCall,
  bucketTestSendCall,
  infoCall,
  readBucketRecv,
  readBucketTestSend,
  readInfo,
} from '@orbweaver/vshard'
import { VshardError } from '@orbweaver/vshard'
import type { ServiceReply } from '@orbweaver/vshard'
import { BoxError } from '@orbweaver/iproto'
import { BUCKET_STATUS } from './bucket-record.js'
import type { BucketRecord } from './bucket-record.js'
import { BucketReader, CHUNK_ROWS } from './bucket-reader.js'
import { awaitRefsCall, readDone, releaseTurnCall, reserveTurnCall } from './peer-services.js'
import { timeoutFor } from './refusals.js'
import type { ReplicasetLink } from './replicaset-link.js'
import { takeTurn } from './scheduler-turn.js'
import { shardedSpaces } from './sharded-spaces.js'
import type { VshardParts } from './vshard-parts.js'

/** Limits of one move, in milliseconds. */
export interface BucketSendOptions {
  /** Everything. Default Infinity. */
  readonly timeout?: number
  /** One message. Default 300,000. */
  readonly chunkTimeout?: number
  /** Waiting for maps and writes to end. Default 300,000. */
  readonly refTimeout?: number
  /** Waiting for the replicas. Default: `moveSyncTimeoutMs` of the configuration (vshard: 60,000). */
  readonly syncTimeout?: number
}

interface Limits {
  readonly deadline: number
  readonly refDeadline: number
  readonly chunkMs: number
  readonly syncMs: number
}

const DEFAULT_WAIT_MS = 300_000
/** How long the receiver may look for its turn: meanwhile this bucket takes no writes. */
const RECEIVER_TURN_MS = 200
/** How long both sides' turns are waited for at a time; growing, since meanwhile one side may keep maps from starting. */
const FIRST_TURN_MS = 300
const LONGEST_TURN_MS = 5_000
const NO_SUCH_PROC = 33
const ACCESS_DENIED = 42
/** How long writes may end by themselves before new ones are refused. */
const QUIET_MS = 1_000
const FIRST_PAUSE_MS = 50
const LONGEST_PAUSE_MS = 2_000
const ASK_MS = 5_000

/** @throws VshardError, BoxError: the bucket has not left, or recovery will settle where it is */
export async function sendBucket(
  parts: VshardParts,
  bucketId: number,
  destination: string,
  options: BucketSendOptions = {},
): Promise<void> {
  const { clock, settings, transfers } = parts
  const now = clock.now()
  const deadline = now + (options.timeout ?? Infinity)
  const limits: Limits = {
    deadline,
    refDeadline: Math.min(deadline, now + (options.refTimeout ?? DEFAULT_WAIT_MS)),
    chunkMs: options.chunkTimeout ?? DEFAULT_WAIT_MS,
    syncMs: options.syncTimeout ?? settings.moveSyncTimeoutMs,
  }
  transfers.begin(bucketId, 'send', destination)
  try {
    const target = await checked(parts, bucketId, destination, limits)
    transfers.step(bucketId, 'waiting for what the application does before a move')
    await parts.beforeMove(bucketId, destination, left(parts, limits.deadline))
    let turnMs = FIRST_TURN_MS
    for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS)) {
      const refusal = await attempt(parts, bucketId, target, limits, turnMs)
      turnMs = Math.min(turnMs * 2, LONGEST_TURN_MS)
      if (refusal === undefined) return
      // Maps run over there: this bucket is writable again meanwhile, and tries anew.
      if (clock.now() + pauseMs >= limits.refDeadline) throw refusal
      transfers.step(bucketId, `waiting for a turn on replicaset ${destination}`)
      await pause(parts, pauseMs)
    }
  } finally {
    transfers.end(bucketId)
  }
}

/** What stands against the move, looked for while the bucket still takes writes. */
async function checked(
  parts: VshardParts,
  bucketId: number,
  destination: string,
  limits: Limits,
): Promise<ReplicasetLink> {
  const { bucketRefs, buckets, cluster, identity, transfers } = parts
  const unwritable = bucketRefs.unwritable(bucketId)
  if (unwritable !== undefined) throw unwritable
  if (buckets.get(bucketId)?.status === 'pinned') throw VshardError.of('BUCKET_IS_PINNED', { bucket_id: bucketId })
  parts.assertSynced()
  if (parts.isLocked) throw VshardError.of('REPLICASET_IS_LOCKED')
  if (destination === identity.replicasetId)
    throw VshardError.of('MOVE_TO_SELF', { bucket_id: bucketId, replicaset: destination })
  const target = cluster.get(destination)
  transfers.step(bucketId, 'waiting for the replicas')
  await parts.own.synced(Math.min(limits.syncMs, left(parts, limits.deadline)), `moving bucket ${bucketId}`)
  transfers.step(bucketId, `asking replicaset ${destination}`)
  const answer = await target.callMaster(infoCall(), readInfo, Math.min(ASK_MS, left(parts, limits.deadline)))
  if (!answer.ok) throw answer.error
  transfers.step(bucketId, 'waiting for maps that former masters run')
  const refsMs = left(parts, limits.refDeadline)
  await parts.own.askAll(awaitRefsCall(refsMs), readDone, refsMs + ANSWER_MS)
  return target
}

/** @returns why the receiver did not begin, when it may do so later; the bucket is active again then */
async function attempt(
  parts: VshardParts,
  bucketId: number,
  target: ReplicasetLink,
  limits: Limits,
  turnMs: number,
): Promise<VshardError | BoxError | undefined> {
  const { buckets, transfers } = parts
  try {
    const refusal = await makeReadonly(parts, bucketId, target, limits, turnMs)
    if (refusal !== undefined) return refusal
    transfers.step(bucketId, 'waiting for the replicas')
    const syncMs = Math.min(limits.syncMs, left(parts, limits.deadline))
    await parts.own.synced(syncMs, `readonly batch [${bucketId}]`)
    transfers.step(bucketId, 'waiting for writes on former masters')
    await parts.own.askAll(bucketTestSendCall([bucketId], syncMs / 1.5), readBucketTestSend, syncMs)
  } catch (error) {
    // Nothing has left yet: no need to ask anybody.
    if (buckets.get(bucketId)?.status === 'readonly' && isStillMaster(parts)) setActive(parts, bucketId)
    throw error
  }
  const before = expectStatus(parts, bucketId, 'readonly')
  const generation = before.generation + 1
  buckets.put({ id: bucketId, status: 'sending', destination: target.id, generation })
  await parts.committed()
  const refusal = await sendRows(parts, bucketId, generation, target, limits)
  if (refusal !== undefined) return refusal
  transfers.step(bucketId, 'giving it up')
  buckets.put({ ...expectStatus(parts, bucketId, 'sending'), status: 'sent' })
  await parts.committed()
  transfers.step(bucketId, `telling replicaset ${target.id} that it is complete`)
  const last = { bucketId, from: parts.identity.replicasetId, data: [], generation, isLast: true }
  const reply = await target.callMaster(
    bucketRecvCall(last),
    readBucketRecv,
    Math.min(limits.chunkMs, left(parts, limits.deadline)),
  )
  if (!reply.ok) throw reply.error
  return undefined
}

/** @returns why the turns did not come, when they may later; the bucket is active as before then */
async function makeReadonly(
  parts: VshardParts,
  bucketId: number,
  target: ReplicasetLink,
  limits: Limits,
  turnMs: number,
): Promise<BoxError | undefined> {
  const { bucketRefs, buckets, clock, scheduler, transfers } = parts
  transfers.step(bucketId, 'waiting for running writes')
  // Best is a moment without writes: then nobody is refused for longer than the replicas need.
  await bucketRefs.writesEnded(Math.min(limits.refDeadline, clock.now() + QUIET_MS), [bucketId])
  transfers.step(bucketId, 'waiting for a turn between storage references')
  const refusal = await takeBothTurns(parts, bucketId, target, Math.min(turnMs, left(parts, limits.refDeadline)))
  if (refusal !== undefined) return refusal
  try {
    buckets.put({ ...expectStatus(parts, bucketId, 'active'), status: 'readonly' })
  } finally {
    scheduler.end('move')
  }
  transfers.step(bucketId, 'waiting for running writes')
  if (!(await bucketRefs.writesEnded(limits.refDeadline, [bucketId])))
    throw timeoutFor(`writes to bucket ${bucketId} have not ended`)
  return undefined
}

/**
 * Waits here and at the receiver at the same time: a map ends on both at about the same moment, and the next one must not come
 * between. A receiver that gives no turns in advance (Lua) is asked with the first message only.
 * @returns why one of them did not come; neither is held then
 */
async function takeBothTurns(
  parts: VshardParts,
  bucketId: number,
  target: ReplicasetLink,
  turnMs: number,
): Promise<BoxError | undefined> {
  const { clock, identity, scheduler } = parts
  const from = identity.replicasetId
  const [here, there] = await Promise.allSettled([
    takeTurn(scheduler, clock, 'move', turnMs),
    reservedAt(target, bucketId, from, turnMs),
  ])
  if (here.status === 'fulfilled' && there.status === 'fulfilled') return undefined
  if (here.status === 'fulfilled') scheduler.end('move')
  else void target.callMaster(releaseTurnCall(bucketId, from), readDone, ANSWER_MS).catch(expiresByItself)
  for (const outcome of [here, there])
    if (outcome.status === 'rejected' && !(outcome.reason instanceof BoxError && isTimeout(outcome.reason)))
      throw outcome.reason
  return timeoutFor(
    `storage references ${here.status === 'rejected' ? 'here' : `on replicaset ${target.id}`} have not ended`,
  )
}

async function reservedAt(target: ReplicasetLink, bucketId: number, from: string, turnMs: number): Promise<void> {
  try {
    const reply = await target.callMaster(reserveTurnCall(bucketId, from, turnMs), readDone, turnMs + ANSWER_MS)
    if (!reply.ok) throw reply.error
  } catch (error) {
    // Lua has no such function, or no rights on it.
    if (error instanceof BoxError && (error.boxCode === NO_SUCH_PROC || error.boxCode === ACCESS_DENIED)) return
    throw error
  }
}

/** A reservation that cannot be given back ends after its time. */
function expiresByItself(_error: unknown): void {
  return
}

/** @returns the receiver's refusal to begin, which it may take back later; the bucket is active again then */
async function sendRows(
  parts: VshardParts,
  bucketId: number,
  generation: number,
  target: ReplicasetLink,
  limits: Limits,
): Promise<VshardError | BoxError | undefined> {
  const { engine, identity, settings, transfers } = parts
  const reader = new BucketReader(engine, bucketId, shardedSpaces(engine, settings.shardIndex), {
    rows: CHUNK_ROWS,
    bytes: settings.maxChunkBytes,
  })
  let sent = 0
  for (let data = reader.next(); data !== undefined; data = reader.next()) {
    transfers.step(bucketId, `sending rows from ${sent} on`)
    const isFirst = sent === 0
    const chunk = { bucketId, from: identity.replicasetId, data, generation }
    const reply: ServiceReply<true> = await target.callMaster(
      bucketRecvCall(
        isFirst ? { ...chunk, timeoutMs: Math.min(RECEIVER_TURN_MS, left(parts, limits.deadline)) } : chunk,
      ),
      readBucketRecv,
      Math.min(limits.chunkMs, left(parts, limits.deadline)),
    )
    expectSending(parts, bucketId, generation)
    if (!reply.ok) {
      // A refusal of the first message is definite: nothing of this generation is over there.
      if (isFirst && hasNotBegun(reply.error)) {
        setActive(parts, bucketId)
        await parts.committed()
        if (isTimeout(reply.error)) return reply.error
      }
      throw reply.error
    }
    sent += data.reduce((rows, [, tuples]) => rows + tuples.length, 0)
    if (isFirst && sent === 0) sent = 1
    await new Promise<void>((resolve) => parts.clock.soon(resolve))
  }
  return undefined
}

/** Refusals that a receiver gives before it makes its record. */
const BEFORE_BEGINNING: ReadonlySet<string> = new Set([
  'TOO_MANY_RECEIVING',
  'REPLICASET_IS_LOCKED',
  'NO_SUCH_REPLICASET',
  'NON_MASTER',
  'MASTER_NOT_SYNCED',
])

function hasNotBegun(error: VshardError | BoxError): boolean {
  return error instanceof VshardError ? BEFORE_BEGINNING.has(error.vshardName) : isTimeout(error)
}

function isTimeout(error: VshardError | BoxError): boolean {
  return error instanceof BoxError && error.boxCode === 78
}

function setActive({ buckets }: VshardParts, bucketId: number): void {
  const record = buckets.get(bucketId)
  if (record !== undefined && BUCKET_STATUS[record.status].next.includes('active'))
    buckets.put({ ...record, status: 'active', destination: undefined })
}

function isStillMaster({ identity }: VshardParts): boolean {
  return identity.isMaster
}

function expectStatus({ buckets }: VshardParts, bucketId: number, status: BucketRecord['status']): BucketRecord {
  const record = buckets.get(bucketId)
  if (record?.status === status) return record
  throw VshardError.of('WRONG_BUCKET', {
    bucket_id: bucketId,
    reason: `bucket state is changed: was ${status}, became ${record?.status ?? 'nil'}`,
    destination: record?.destination,
  })
}

function expectSending(parts: VshardParts, bucketId: number, generation: number): void {
  const record = expectStatus(parts, bucketId, 'sending')
  if (record.generation === generation) return
  throw VshardError.of('WRONG_BUCKET', {
    bucket_id: bucketId,
    reason: `bucket state is changed: had generation ${generation}, now ${record.generation}`,
    destination: record.destination,
  })
}

function left({ clock }: VshardParts, deadline: number): number {
  return Math.max(0, deadline - clock.now())
}

function pause({ clock, random }: VshardParts, ms: number): Promise<void> {
  return new Promise((resolve) => clock.schedule(ms * (0.8 + random() * 0.4), resolve))
}

/** Beyond what an instance waits for, for its answer to come. */
const ANSWER_MS = 1_000
