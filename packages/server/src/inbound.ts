import type { FrameHeader } from '@orbweaver/iproto'
import type { InboundFrame } from './session.js'

/** A request as it arrived. Most handlers read its body where it lies, so a slice is made only for those that ask. */
export class Inbound implements InboundFrame {
  readonly type: number
  readonly syncHigh: number
  readonly syncLow: number
  readonly streamId: bigint | number
  readonly schemaVersion: number | undefined
  readonly bytes: Buffer
  readonly bodyStart: number
  readonly bodyEnd: number

  constructor(bytes: Buffer, header: FrameHeader) {
    this.type = header.type
    this.syncHigh = header.syncHigh
    this.syncLow = header.syncLow
    this.streamId = header.streamId
    this.schemaVersion = header.schemaVersion
    this.bytes = bytes
    this.bodyStart = header.bodyStart
    this.bodyEnd = header.bodyEnd
  }

  get body(): Buffer {
    return this.bytes.subarray(this.bodyStart, this.bodyEnd)
  }
}
