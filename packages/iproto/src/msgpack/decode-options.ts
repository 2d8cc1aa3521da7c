/** How values are represented in JavaScript. The defaults lose nothing and are what plain code expects. */
export interface DecodeOptions {
  /**
   * `auto` (default): a number when it is a safe integer, else a bigint, whatever the width on the wire. `bigint`: always a bigint.
   * `number`: always a number; an unsafe one throws MalformedFrameError.
   */
  readonly integers?: 'auto' | 'bigint' | 'number'
  /**
   * `auto` (default): a plain object when every key is a string (`__proto__` included: it is an own property like any other), else
   * a Map, whose keys keep their types. `map`: always a Map. Of duplicate keys the last wins.
   */
  readonly maps?: 'auto' | 'map'
  /**
   * `auto` (default): a string, or a ByteString when the bytes are not UTF-8. `bytes`: always a ByteString; keys of maps stay strings
   * where they can, since they could not be looked up otherwise.
   */
  readonly strings?: 'auto' | 'bytes'
}
