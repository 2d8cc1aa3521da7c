/* Frames the proxy answers with itself, in the layout a server uses. */
import {
  type BodyWriter,
  type BoxError,
  FrameHeader,
  FrameWriter,
  Key,
  patchReplySync,
  RequestType,
  writeErrorBody,
} from '@orbweaver/iproto'

/** Where an answer goes: the sync of the request it belongs to. */
export interface SyncHalves {
  readonly syncHigh: number
  readonly syncLow: number
}

/** Small replies share a slab; what `take` gives belongs to whoever it is written to. */
const writer = new FrameWriter({ slabBytes: 16_384 })
const header = new FrameHeader()

/** @param schemaVersion - the last one seen: clients reload their schema when it changes */
export function errorReply(to: SyncHalves, schemaVersion: number, error: BoxError): Buffer[] {
  writer.beginReply(RequestType.errorFlag | (error.boxCode & 0x7fff), to.syncHigh, to.syncLow, schemaVersion)
  writeErrorBody(writer, error)
  writer.end()
  return writer.take()
}

export function okReply(to: SyncHalves, schemaVersion: number, body: (out: BodyWriter) => void = emptyBody): Buffer[] {
  writer.beginReply(RequestType.ok, to.syncHigh, to.syncLow, schemaVersion)
  body(writer)
  writer.end()
  return writer.take()
}

/**
 * A reply of a target under another sync: eight bytes are written over where a server puts them, in a new frame where a
 * server lays its header out in another way.
 */
export function readdressed(frame: Buffer, to: SyncHalves): Buffer[] {
  if (patchReplySync(frame, to.syncHigh, to.syncLow)) return [frame]
  header.read(frame)
  writer.beginReply(header.type, to.syncHigh, to.syncLow, header.schemaVersion ?? 1)
  writer.raw(frame.subarray(header.bodyStart, header.bodyEnd))
  writer.end()
  return writer.take()
}

/** An EVENT with a body that is encoded already. */
export function eventFrame(to: SyncHalves, body: Uint8Array): Buffer[] {
  writer.beginEvent(to.syncHigh, to.syncLow)
  writer.raw(body)
  writer.end()
  return writer.take()
}

/** Body of an EVENT. @param value - encoded; undefined: the key has no value */
export function eventBody(key: string, value: Uint8Array | undefined): Buffer {
  return bodyOf((out) => {
    out.mapHeader(value === undefined ? 1 : 2)
    out.uint(Key.eventKey)
    out.text(key)
    if (value === undefined) return
    out.uint(Key.eventData)
    out.raw(value)
  })
}

/** A body by itself: for requests of the proxy's own. */
export function bodyOf(write: (out: BodyWriter) => void): Buffer {
  const out = new FrameWriter({ slabBytes: 512 })
  out.beginFrame()
  write(out)
  out.end()
  const frame = Buffer.concat(out.take())
  return frame.subarray(PREFIX_BYTES)
}

function emptyBody(out: BodyWriter): void {
  out.mapHeader(0)
}

const PREFIX_BYTES = 5
