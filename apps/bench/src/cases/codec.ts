/** The codec alone: no server, no socket. */
import type { CaseBase, SubjectName, Target } from './bench-case.js'

export interface CodecCase extends CaseBase {
  readonly kind: 'codec'
  readonly direction: 'decode' | 'encode'
  /** `frames`: each value in a slice of a received chunk, as replies arrive; `one`: the same buffer again and again. */
  readonly bytesIn: 'one' | 'frames'
  readonly rows: number
  readonly fields: 4 | 10
}

const DECODERS: readonly SubjectName[] = ['orbweaver', 'msgpackr', 'msgpack-lite']
const ENCODERS: readonly SubjectName[] = ['orbweaver', 'orbweaver, own buffer', 'msgpackr', 'msgpack-lite']
const DECODE_TARGETS: readonly Target[] = [
  { metric: 'speed', of: 'msgpackr', must: 0.85, aim: 1 },
  { metric: 'speed', of: 'msgpack-lite' },
]
const ENCODE_TARGETS: readonly Target[] = [
  { metric: 'speed', of: 'msgpackr', must: 1, aim: 1.3 },
  { metric: 'speed', of: 'msgpack-lite', must: 4, aim: 7 },
]

const codec = (direction: 'decode' | 'encode', rows: number, fields: 4 | 10): CodecCase => ({
  kind: 'codec',
  id: `${direction}-${rows}x${fields}`,
  words: `${direction} ${rows === 1 ? 'a row' : `${rows} rows`} of ${fields} fields`,
  direction,
  bytesIn: 'one',
  rows,
  fields,
  subjects: direction === 'decode' ? DECODERS : ENCODERS,
  targets: direction === 'decode' ? DECODE_TARGETS : ENCODE_TARGETS,
})

const row = codec('decode', 1, 10)

export const CODEC_CASES: readonly CodecCase[] = [
  ...(['decode', 'encode'] as const).flatMap((direction) => [
    codec(direction, 1, 10),
    codec(direction, 100, 10),
    codec(direction, 1_000, 4),
  ]),
  { ...row, id: 'decode-frames', bytesIn: 'frames', words: `${row.words}, each in a frame of a received chunk` },
]
