import { FrameWriter, RawValue } from '@orbweaver/iproto'
import type { BodyWriter } from '@orbweaver/iproto'

/**
 * The arguments of a map, encoded once when it begins: what cannot be encoded is refused before anybody is asked for anything, and
 * the caller may change its arguments afterwards.
 */
export class MapArguments {
  readonly #count: number
  readonly #bytes: Uint8Array
  readonly #bucketArgs: ReadonlyMap<number, RawValue> | undefined

  /** @throws InvalidArgumentError naming the place of a value that cannot be encoded */
  constructor(args: readonly unknown[], bucketArgs: ReadonlyMap<number, unknown> | undefined) {
    this.#count = args.length
    this.#bytes = encoded(args, 'args')
    this.#bucketArgs =
      bucketArgs === undefined
        ? undefined
        : new Map(
            Array.from(bucketArgs, ([bucketId, value]): [number, RawValue] => [
              bucketId,
              new RawValue(encoded(value, `bucketArgs of bucket ${bucketId}`).subarray(PREFIX_BYTES)),
            ]),
          )
  }

  /** @param bucketIds - those whose arguments follow as one more argument, where buckets have such */
  write(out: BodyWriter, bucketIds: readonly number[]): void {
    const bucketArgs = this.#bucketArgs
    if (bucketArgs === undefined) {
      out.raw(this.#bytes, PREFIX_BYTES)
      return
    }
    out.arrayHeader(this.#count + 1)
    out.raw(this.#bytes, PREFIX_BYTES + arrayHeaderBytes(this.#count))
    out.value(new Map(bucketIds.map((bucketId) => [bucketId, bucketArgs.get(bucketId)])))
  }
}

/** Shared by all maps: what was taken from it is not written to again. */
const writer = new FrameWriter()
/** What a frame has in front of its contents. */
const PREFIX_BYTES = 5

function encoded(value: unknown, name: string): Uint8Array {
  writer.beginFrame()
  try {
    writer.value(value, name)
    writer.end()
  } catch (error) {
    writer.abort()
    throw error
  }
  const chunks = writer.take()
  return chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks)
}

function arrayHeaderBytes(size: number): number {
  if (size < 16) return 1
  return size < 65_536 ? 3 : 5
}
