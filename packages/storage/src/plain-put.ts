/* The commonest write and no other: INSERT or REPLACE of a tuple into a space by its id, read where it lies, like PointSelect. */
import { Key } from '@orbweaver/iproto'
import { skipField } from './engine/tuple.js'
import { shortUint } from './point-select.js'

export class PlainPut {
  spaceId = 0
  /** Where the tuple is in the bytes that were read. */
  tupleStart = 0
  tupleEnd = 0

  /**
   * @param at - @param end - the body in `bytes`
   * @returns whether it is such a request
   * @throws MalformedFrameError for a tuple that is cut, as the reader of all bodies
   */
  read(bytes: Buffer, at: number, end: number): boolean {
    if (at === end || bytes[at] !== MAP_OF_TWO) return false
    this.spaceId = this.tupleStart = -1
    let next = at + 1
    for (let entries = 2; entries > 0; entries--) {
      const key = bytes[next]!
      const start = next + 1
      if (start >= end) return false
      next = skipField(bytes, start, end)
      if (key === Key.tuple) {
        this.tupleStart = start
        this.tupleEnd = next
      } else if (key === Key.spaceId) this.spaceId = shortUint(bytes, start)
      else return false
    }
    return next === end && this.spaceId >= 0 && this.tupleStart >= 0
  }
}

const MAP_OF_TWO = 0x82
