/*
 * Receiving a bucket, message by message: the first makes the record (receiving), each brings rows, the last one makes it active.
 * Order of checks and texts: vshard 0.1.42, `bucket_recv`. Before the record is made the sender is asked whether this very
 * transfer still runs: a message that was on its way while the sender gave up must not begin anything.
 */
import { BoxError, decodeValue } from '@orbweaver/iproto'
import { readRecoveryBucketStat, recoveryBucketStatCall, VshardError } from '@orbweaver/vshard'
import { arrayHead, fieldOffsets } from '../engine/tuple.js'
import type { StoredTuple } from '../engine/tuple.js'
import { boxErrors } from '../errors.js'
import type { BucketRecord } from './bucket-record.js'
import { CHUNK_ROWS } from './bucket-reader.js'
import { awaitRefsCall, readDone } from './peer-services.js'
import { timeoutFor } from './refusals.js'
import { takeTurn } from './scheduler-turn.js'
import type { VshardParts } from './vshard-parts.js'

/** One message. */
export interface BucketMessage {
  readonly bucketId: number
  /** Id of the sending replicaset. */
  readonly from: string
  readonly data: readonly { readonly space: string; readonly tuples: readonly StoredTuple[] }[]
  readonly generation: number
  readonly isLast: boolean
  /** How long it may wait for its turn between storage references. */
  readonly timeoutMs: number
}

const DEFAULT_TURN_MS = 300_000
const ASK_SENDER_MS = 5_000

/** @throws VshardError, BoxError */
export async function receiveBucket(parts: VshardParts, message: BucketMessage): Promise<void> {
  const { bucketId, from } = message
  parts.assertMaster()
  parts.transfers.begin(bucketId, 'receive', from)
  try {
    parts.cluster.get(from)
    const record = parts.buckets.get(bucketId)
    if (record === undefined) await begin(parts, message)
    else expectReceiving(record, message)
    for (const { space, tuples } of message.data) await insertRows(parts, message, space, tuples)
    if (!message.isLast) return
    const { generation } = message
    parts.buckets.put({ id: bucketId, status: 'active', destination: undefined, generation })
  } finally {
    parts.transfers.end(bucketId)
  }
}

/** Takes the turn of a transfer that is about to begin, and keeps it for its first message. @throws VshardError, BoxError */
export async function reserveTurn(
  parts: VshardParts,
  bucketId: number,
  from: string,
  timeoutMs: number,
): Promise<void> {
  parts.assertSynced()
  parts.cluster.get(from)
  if (parts.isLocked) throw VshardError.of('REPLICASET_IS_LOCKED')
  assertQuota(parts)
  await parts.reservations.reserve(bucketId, from, timeoutMs)
}

async function begin(parts: VshardParts, message: BucketMessage): Promise<void> {
  const { bucketId, from, generation, timeoutMs } = message
  const { buckets, scheduler, settings, transfers } = parts
  if (message.isLast) throw stateChanged(message, 'last message is received, but the bucket does not exist anymore')
  if (parts.isLocked) throw VshardError.of('REPLICASET_IS_LOCKED')
  parts.assertSynced()
  assertQuota(parts)
  transfers.step(bucketId, `asking replicaset ${from}`)
  await assertSending(parts, message)
  await foreignRefsEnded(parts, message)
  transfers.step(bucketId, 'waiting for a turn between storage references')
  if (!parts.reservations.claim(bucketId, from))
    await takeTurn(scheduler, parts.clock, 'move', timeoutMs, { joins: true })
  try {
    parts.assertSynced()
    if (buckets.count('receiving') >= settings.rebalancerMaxReceiving) throw VshardError.of('TOO_MANY_RECEIVING')
    const present = buckets.get(bucketId)
    if (present !== undefined) expectReceiving(present, message)
    else buckets.put({ id: bucketId, status: 'receiving', destination: from, generation })
  } finally {
    scheduler.end('move')
  }
  await parts.committed()
  try {
    transfers.step(bucketId, 'waiting for the replicas')
    await parts.own.synced(Math.min(timeoutMs, settings.moveSyncTimeoutMs), `receiving bucket ${bucketId}`)
    await foreignRefsEnded(parts, message)
  } catch (error) {
    // The sender will hear that nothing has begun: so it must be.
    const record = buckets.get(bucketId)
    if (record?.status === 'receiving' && parts.identity.isMaster) buckets.put({ ...record, status: 'garbage' })
    throw error
  }
}

/**
 * Maps that a former master of this replicaset still runs would see the bucket arrive, and with it rows they have seen elsewhere:
 * they must have ended. Asked before there is a record, when waiting costs nothing, and again when the record, which keeps new
 * references from being given, is everywhere.
 */
async function foreignRefsEnded(parts: VshardParts, { bucketId, timeoutMs }: BucketMessage): Promise<void> {
  const { unconnected } = parts.own
  if (unconnected.length > 0) throw timeoutFor(`${unconnected.join(', ')} cannot be asked whether maps still run there`)
  parts.transfers.step(bucketId, 'waiting for maps that former masters run')
  await parts.own.askAll(awaitRefsCall(timeoutMs), readDone, timeoutMs + ANSWER_MS)
}

/** Beyond what an instance waits for, for its answer to come. */
const ANSWER_MS = 1_000

/** Those that have a record, and those that are about to: each takes a place. */
function assertQuota({ buckets, settings, transfers }: VshardParts): void {
  const beginning = transfers
    .list()
    .filter(({ bucketId, direction }) => direction === 'receive' && buckets.get(bucketId) === undefined).length
  // This message is one of those that begin.
  if (buckets.count('receiving') + beginning > settings.rebalancerMaxReceiving)
    throw VshardError.of('TOO_MANY_RECEIVING')
}

async function assertSending(parts: VshardParts, message: BucketMessage): Promise<void> {
  const { bucketId, from, generation } = message
  const sender = parts.cluster.get(from)
  const reply = await sender.callMaster(recoveryBucketStatCall(bucketId), readRecoveryBucketStat, ASK_SENDER_MS)
  if (!reply.ok) throw reply.error
  const { bucket } = reply.value
  if (bucket?.status === 'sending' && bucket.generation === generation) return
  throw stateChanged(
    message,
    `the sender's bucket is '${bucket?.status ?? 'nil'}' of generation ${bucket?.generation ?? 0}, not 'sending' of ${generation}`,
  )
}

/** In transactions of 1,000 rows, with a breath between them. @throws VshardError BUCKET_RECV_DATA_ERROR, BoxError 36 */
async function insertRows(
  parts: VshardParts,
  message: BucketMessage,
  spaceName: string,
  tuples: readonly StoredTuple[],
): Promise<void> {
  const { bucketEvents, buckets, clock, engine } = parts
  const { bucketId } = message
  const space = engine.schema.get(spaceName)
  for (let start = 0; start < tuples.length; start += CHUNK_ROWS) {
    if (start > 0) await new Promise<void>((resolve) => clock.soon(resolve))
    const record = buckets.get(bucketId)
    if (record === undefined) throw stateChanged(message, 'bucket state is changed: was receiving, became nil')
    expectReceiving(record, message)
    engine.run(undefined, (transaction) => {
      bucketEvents.fire(transaction, 'bucket_data_recv_txn', bucketId, spaceName)
      for (const tuple of tuples.slice(start, start + CHUNK_ROWS)) {
        try {
          engine.insert(transaction, space, tuple)
        } catch (error) {
          if (!(error instanceof BoxError)) throw error
          const shown = decodeValue(tuple)
          throw VshardError.of('BUCKET_RECV_DATA_ERROR', {
            bucket_id: bucketId,
            space: spaceName,
            tuple: shown,
            reason: error,
          })
        }
      }
    })
  }
}

function expectReceiving(record: BucketRecord, message: BucketMessage): void {
  if (record.status !== 'receiving')
    throw stateChanged(message, `bucket state is changed: was receiving, became ${record.status}`)
  if (record.generation !== message.generation) {
    throw stateChanged(
      message,
      `bucket state is changed: had generation ${record.generation}, now ${message.generation}`,
    )
  }
  if (record.destination !== message.from)
    throw stateChanged(message, `bucket state is changed: receiving it from replicaset ${record.destination ?? 'nil'}`)
}

function stateChanged({ bucketId, from }: BucketMessage, reason: string): VshardError {
  return VshardError.of('WRONG_BUCKET', { bucket_id: bucketId, reason, destination: from })
}

/**
 * A message from the arguments of the call as they came: rows keep their bytes, since forms matter (3.0 is not 3).
 * @throws BoxError 32 for arguments that are none
 */
export function readBucketMessage(bytes: Buffer): BucketMessage {
  const parts = elementsOf(bytes)
  const [bucketId, from] = parts.slice(0, 2).map((part) => decodeValue(part))
  if (typeof bucketId !== 'number' || typeof from !== 'string')
    throw boxErrors.procLua('Usage: bucket_recv(bucket_id, from, data, opts)')
  const options = parts[3] === undefined ? undefined : decodeValue(parts[3], { maps: 'map' })
  const option = (name: string): unknown => (options instanceof Map ? options.get(name) : undefined)
  const [generation, timeout] = [option('generation'), option('timeout')]
  return {
    bucketId,
    from,
    data: parts[2] === undefined ? [] : elementsOf(parts[2]).map(readSpaceRows),
    generation: typeof generation === 'number' ? generation : 0,
    isLast: option('is_last') === true,
    timeoutMs: typeof timeout === 'number' && timeout >= 0 ? timeout * 1000 : DEFAULT_TURN_MS,
  }
}

function readSpaceRows(entry: Buffer): { space: string; tuples: StoredTuple[] } {
  const [name, rows] = elementsOf(entry)
  const space = name === undefined ? undefined : decodeValue(name)
  if (typeof space !== 'string' || rows === undefined)
    throw boxErrors.procLua('Rows of a bucket come as [space name, list of tuples]')
  // Copied: what is stored must not keep the received chunk alive.
  return { space, tuples: elementsOf(rows).map((row) => Buffer.from(row)) }
}

function elementsOf(bytes: Buffer): Buffer[] {
  const { size } = arrayHead(bytes)
  const offsets = fieldOffsets(bytes)
  return Array.from({ length: size }, (_, i) => bytes.subarray(offsets[i], offsets[i + 1]))
}
