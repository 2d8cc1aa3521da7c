/*
 * The question of a candidate, in the words of Tarantool's VOTE (68): its own answers with a ballot.
 *   request  0x53 TERM uint, 0x02 REPLICA_ID uint: who asks
 *   answer   0x26 VCLOCK map, 0x53 TERM uint, 0x02 REPLICA_ID uint: where the asked one stands, and whose term that is
 */
import { BodyReader, Key, replyBody, RequestType, vclockOf, writeVclock } from '@orbweaver/iproto'
import type { FrameWriter, Reply, Request } from '@orbweaver/iproto'
import type { Epoch } from './transaction.js'
import type { Vclock } from './vclock.js'

/** What an instance says when it promises: where it stands. */
export interface PromiseAnswer extends Epoch {
  readonly vclock: Vclock
}

export function promiseRequest(term: number, candidate: number): Request {
  return {
    type: RequestType.vote,
    requestClass: 'session',
    writeBody(out) {
      out.mapHeader(2)
      out.uint(Key.term)
      out.uint(term)
      out.uint(Key.replicaId)
      out.uint(candidate)
    },
  }
}

/** @throws BoxError 20 or 69 when a field is of another kind or missing */
export function readPromiseRequest(body: Buffer): { term: number; candidate: number } {
  const reader = new BodyReader(body)
  return { term: reader.requireUint(Key.term), candidate: reader.requireUint(Key.replicaId) }
}

export function encodePromiseAnswer(
  writer: FrameWriter,
  sync: readonly [high: number, low: number],
  answer: PromiseAnswer,
): void {
  writer.beginReply(RequestType.ok, ...sync, 1)
  writer.mapHeader(3)
  writer.uint(Key.vclock)
  writeVclock(writer, answer.vclock)
  writer.uint(Key.term)
  writer.uint(answer.term)
  writer.uint(Key.replicaId)
  writer.uint(answer.leader)
  writer.end()
}

/** @throws BoxError 20 or 69, MalformedFrameError when it is no such answer */
export function readPromiseAnswer(reply: Reply): PromiseAnswer {
  const body = replyBody(reply)
  return {
    vclock: vclockOf(body.value(Key.vclock)),
    term: body.requireUint(Key.term),
    leader: body.requireUint(Key.replicaId),
  }
}
