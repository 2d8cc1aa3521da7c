/* A data directory in memory: it can be full, lose its power in the middle of a write, and be copied as a crash leaves it. */
import { JournalError } from '../src/index.js'
import type { JournalFile, JournalFiles } from '../src/index.js'

export class MemoryFiles implements JournalFiles {
  readonly place = 'memory'
  readonly files: Map<string, Buffer>
  /** What every write fails with, when set. */
  failure: Error | undefined
  /** Bytes that still reach the disk before the power goes; undefined: it stays on. */
  powerLeft: number | undefined
  /** Writes in the order in which they ended. */
  readonly writes: string[] = []
  #isLocked = false
  readonly #hanging: ((error: Error) => void)[] = []

  constructor(files: ReadonlyMap<string, Buffer> = new Map()) {
    this.files = new Map([...files].map(([name, bytes]) => [name, Buffer.from(bytes)]))
  }

  /** The directory as another process finds it when this one is gone. */
  crashed(): MemoryFiles {
    return new MemoryFiles(this.files)
  }

  /** The process that used it is gone: nothing reaches the disk any more. */
  gone(): void {
    this.failure = new Error('The process is gone')
    for (const reject of this.#hanging.splice(0)) reject(this.failure)
  }

  /** Bytes in all files of a kind. */
  bytesOf(ending: string): number {
    return [...this.files].reduce((sum, [name, bytes]) => (name.endsWith(ending) ? sum + bytes.length : sum), 0)
  }

  namesOf(ending: string): string[] {
    return [...this.files.keys()].filter((name) => name.endsWith(ending)).toSorted()
  }

  lock(): Promise<void> {
    if (this.#isLocked) return Promise.reject(new JournalError('locked', 'memory is in use by another instance'))
    this.#isLocked = true
    return Promise.resolve()
  }

  unlock(): Promise<void> {
    this.#isLocked = false
    return Promise.resolve()
  }

  list(): Promise<readonly string[]> {
    return Promise.resolve([...this.files.keys()])
  }

  size(name: string): Promise<number> {
    return Promise.resolve(this.#get(name).length)
  }

  read(name: string, position: number, length: number): Promise<Buffer> {
    return Promise.resolve(Buffer.from(this.#get(name).subarray(position, position + length)))
  }

  async create(name: string, bytes: number): Promise<JournalFile> {
    await this.#power(0)
    // A few of the zeros are enough to stand for all of them.
    const file = { name, bytes: Buffer.alloc(Math.min(bytes, SOME_ZEROS)) }
    this.files.set(name, file.bytes)
    return {
      write: async (chunks, position) => {
        const all = Buffer.concat(chunks)
        const take = await this.#power(all.length)
        // The file goes by its present name: it may have been renamed while it was open.
        const current = [...this.files].find(([, held]) => held === file.bytes)?.[0] ?? file.name
        const end = position + take
        const next =
          end > file.bytes.length ? Buffer.concat([file.bytes, Buffer.alloc(end - file.bytes.length)]) : file.bytes
        all.copy(next, position, 0, take)
        file.bytes = next
        this.files.set(current, next)
        this.writes.push(current)
        if (take < all.length) await this.#never()
      },
      close: () => Promise.resolve(),
    }
  }

  async truncate(name: string, bytes: number): Promise<void> {
    await this.#power(0)
    this.files.set(name, Buffer.from(this.#get(name).subarray(0, bytes)))
  }

  async rename(from: string, to: string): Promise<void> {
    await this.#power(0)
    this.files.set(to, this.#get(from))
    this.files.delete(from)
  }

  async remove(name: string): Promise<void> {
    await this.#power(0)
    this.files.delete(name)
  }

  #get(name: string): Buffer {
    const bytes = this.files.get(name)
    if (bytes === undefined) throw Object.assign(new Error(`ENOENT: no such file, '${name}'`), { code: 'ENOENT' })
    return bytes
  }

  /** A write that never ends: until the process does. */
  #never(): Promise<never> {
    return new Promise((_resolve, reject) => this.#hanging.push(reject))
  }

  /** How many of `bytes` get through. */
  async #power(bytes: number): Promise<number> {
    await Promise.resolve()
    if (this.failure !== undefined) throw this.failure
    if (this.powerLeft === undefined) return bytes
    if (this.powerLeft <= 0) return this.#never()
    const take = Math.min(bytes, this.powerLeft)
    this.powerLeft -= take
    return take
  }
}

const SOME_ZEROS = 256

export const DISK_FULL: Error = Object.assign(new Error('ENOSPC: no space left on device, write'), { code: 'ENOSPC' })
