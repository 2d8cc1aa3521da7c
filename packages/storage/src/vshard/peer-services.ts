/*
 * What only our own storages ask each other.
 *
 * await_refs: before a bucket is made readonly, the other instances of the replicaset say when the storage references they hold
 * now have ended. A former master may still run maps; they would miss the bucket.
 *
 * reserve_turn: before a bucket is made readonly, its receiver takes a turn between its storage references and keeps it for the
 * first message. A busy map-reduce holds references on one side while it waits for the other: whoever asks for the
 * second turn only when it has the first one hardly ever gets both.
 */
import type { ServiceCall, ServiceReply } from '@orbweaver/vshard'
import { toSeconds } from '@orbweaver/vshard'
import { errorReply } from './refusals.js'

export const AWAIT_REFS = 'orbweaver.vshard.await_refs'

export function awaitRefsCall(timeoutMs: number): ServiceCall {
  return { name: AWAIT_REFS, args: [toSeconds(timeoutMs)] }
}

/** These services answer true, or refuse. */
export function readDone(values: readonly unknown[]): ServiceReply<true> {
  return errorReply(values) ?? { ok: true, value: true }
}

export const RESERVE_TURN = 'orbweaver.vshard.reserve_turn'
export const RELEASE_TURN = 'orbweaver.vshard.release_turn'

export function reserveTurnCall(bucketId: number, from: string, timeoutMs: number): ServiceCall {
  return { name: RESERVE_TURN, args: [bucketId, from, toSeconds(timeoutMs)] }
}

export function releaseTurnCall(bucketId: number, from: string): ServiceCall {
  return { name: RELEASE_TURN, args: [bucketId, from] }
}
