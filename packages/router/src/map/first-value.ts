/* The beginning of a storage's answer, read without decoding it. */
import type { Reply } from '@orbweaver/iproto'

/** Where the first value of DATA begins; its end when there is none, or DATA is no array. */
export function firstValueAt({ frame, dataStart, dataEnd }: Reply): number {
  if (dataStart === dataEnd) return dataEnd
  const lead = frame[dataStart]!
  if (lead > 0x90 && lead <= 0x9f) return dataStart + 1
  // Tarantool always writes the long form.
  if (lead === 0xdd) return Math.min(dataStart + 5, dataEnd)
  return lead === 0xdc ? Math.min(dataStart + 3, dataEnd) : dataEnd
}

/** The one value of DATA, if it is nothing but a number of at most 32 bits. */
export function onlyUint(reply: Reply): number | undefined {
  const { frame, dataEnd } = reply
  const at = firstValueAt(reply)
  switch (dataEnd - at) {
    case 1:
      return frame[at]! < 0x80 ? frame[at] : undefined
    case 2:
      return frame[at] === 0xcc ? frame[at + 1] : undefined
    case 3:
      return frame[at] === 0xcd ? frame.readUInt16BE(at + 1) : undefined
    case 5:
      return frame[at] === 0xce ? frame.readUInt32BE(at + 1) : undefined
    default:
      return undefined
  }
}
