import { BoxError, type FrameWriter, isOrbweaverError, RequestType, writeErrorBody } from '@orbweaver/iproto'
import type { ClientSession, InboundFrame } from './session.js'

/**
 * Answers a request with an error. An error whose text or fields cannot be encoded (half a surrogate pair, a value without a
 * MessagePack form) is answered all the same, by its code: the writer is shared and must not be left with an open frame.
 */
export function replyError(session: ClientSession, frame: InboundFrame, error: BoxError, schemaVersion: number): void {
  const writer = session.writer()
  try {
    write(writer, frame, error, schemaVersion)
  } catch (fault) {
    writer.abort()
    if (!isOrbweaverError(fault)) throw fault
    const plain = BoxError.of(error.boxCode, wellFormed(error.message), { boxType: wellFormed(error.boxType) })
    write(writer, frame, plain, schemaVersion)
  }
  session.written(writer.end())
}

function write(writer: FrameWriter, frame: InboundFrame, error: BoxError, schemaVersion: number): void {
  writer.beginReply(RequestType.errorFlag | (error.boxCode & 0x7fff), frame.syncHigh, frame.syncLow, schemaVersion)
  writeErrorBody(writer, error)
}

/** Text without halves of surrogate pairs, which have no UTF-8. */
function wellFormed(text: string): string {
  return text.replaceAll(/\p{Surrogate}/gu, '\ufffd')
}
