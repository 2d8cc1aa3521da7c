import { RawValue, skipValue } from '@orbweaver/iproto'
import type { Reply } from '@orbweaver/iproto'

const TRUE = 0xc3

/**
 * What stands behind the `true` of a storage's answer, each value as the bytes it came in. They are copies: a slice would keep all
 * that was received with it.
 * @returns undefined when the answer is no success
 */
export function rawValues({ frame, dataStart, dataEnd }: Reply): RawValue[] | undefined {
  // Behind the head of an array: one byte, or five from Tarantool.
  const head = frame[dataStart] === 0xdd ? 5 : frame[dataStart] === 0xdc ? 3 : 1
  let at = dataStart + head
  if (at >= dataEnd || frame[at] !== TRUE) return undefined
  const values: RawValue[] = []
  for (at += 1; at < dataEnd;) {
    const end = skipValue(frame, at, dataEnd)
    values.push(new RawValue(Buffer.from(frame.subarray(at, end))))
    at = end
  }
  return values
}
