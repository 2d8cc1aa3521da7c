/*
 * The end of the journal that grows. Records are gathered into one block while the block before it is on its way to disk, and go
 * together when it has arrived: group commit, however many clients write. The file they go to was filled with zeros before, so
 * that a synced write changes no metadata. When a write fails, nothing is given up: it is tried again until there is room,
 * and meanwhile whoever waits is told.
 */
import type { Clock } from '@orbweaver/connection'
import { FrameWriter } from '@orbweaver/iproto'
import type { BoxError } from '@orbweaver/iproto'
import { boxErrors } from '../errors.js'
import { BLOCK_HEADER_BYTES, blockHeader } from './block.js'
import { diskTrouble } from './errors.js'
import { fileHead } from './file-head.js'
import type { JournalOwnerId } from './file-head.js'
import { dataFileName, UNFINISHED } from './file-name.js'
import type { JournalFile, JournalFiles } from './journal-files.js'
import { encodeRecord } from './record.js'
import type { JournalRecord } from './record.js'

const SLAB_BYTES = 256 * 1024
const RETRY_MS = 1_000
const ENDED = 'the instance has ended'

/** A finished or current file of the journal. */
export interface Segment {
  readonly name: string
  /** Number of the first record it holds or will hold. */
  readonly first: number
  /** Bytes of whole blocks in it. */
  bytes: number
}

interface PendingBlock {
  readonly first: number
  readonly count: number
  readonly chunks: readonly Uint8Array[]
}

interface Waiter {
  readonly sequence: number
  readonly promise: Promise<void>
  readonly resolve: () => void
  readonly reject: (error: BoxError) => void
}

export interface WriterOptions {
  readonly files: JournalFiles
  readonly clock: Clock
  readonly owner: JournalOwnerId
  /** Size of a file of the journal. */
  readonly segmentBytes: number
  /** Everything up to this record, the last that was appended, will be written together. */
  readonly onSealed: (sequence: number) => void
  /** Everything up to this record is on disk. */
  readonly onDurable: (sequence: number) => void
}

export class JournalWriter {
  readonly #options: WriterOptions
  /** The buffer that fills; its chunks are handed to the disk while the next one fills. */
  readonly #frames = new FrameWriter({ slabBytes: SLAB_BYTES })
  #sequence: number
  #durable: number
  #written: number
  #openCount = 0
  #pending: PendingBlock[] = []
  /** In the order of `sequence`. */
  #waiters: Waiter[] = []
  readonly #segments: Segment[]
  #file: JournalFile | undefined
  #prepared: Promise<JournalFile | undefined> | undefined
  #isRunning = false
  #holds = 0
  #isClosed = false
  #trouble: string | undefined
  #cancelRetry: (() => void) | undefined
  #idle: (() => void)[] = []

  /** @param end - what is there already: the last record, its files, and the bytes behind the last snapshot */
  constructor(options: WriterOptions, end: { sequence: number; segments: readonly Segment[]; bytes: number }) {
    this.#options = options
    this.#sequence = end.sequence
    this.#durable = end.sequence
    this.#segments = [...end.segments]
    this.#written = end.bytes
  }

  /** Makes the first file, so that a disk that cannot be written to is noticed before anybody relies on it. */
  async open(): Promise<void> {
    await this.#nextSegment()
  }

  /** The number of the last record appended. */
  get sequence(): number {
    return this.#sequence
  }

  get durable(): number {
    return this.#durable
  }

  /** Why the last write failed; undefined while writing works. */
  get trouble(): string | undefined {
    return this.#trouble
  }

  /** Bytes of blocks ever written behind the last snapshot of the start; only differences mean anything. */
  get written(): number {
    return this.#written
  }

  /** Bytes of all files that are still needed. */
  get bytes(): number {
    return this.#segments.reduce((bytes, segment) => bytes + segment.bytes, 0)
  }

  get segments(): readonly Segment[] {
    return this.#segments
  }

  append(record: JournalRecord): void {
    encodeRecord(this.#frames, record)
    this.#sequence++
    this.#openCount++
    this.#start()
  }

  /** The next record begins a block of its own: a snapshot of now ends where a block does. */
  seal(): void {
    if (this.#openCount === 0) return
    this.#pending.push({
      first: this.#sequence - this.#openCount + 1,
      count: this.#openCount,
      chunks: this.#frames.take(),
    })
    this.#openCount = 0
    this.#options.onSealed(this.#sequence)
  }

  /** Nothing more reaches the disk until `release`. */
  hold(): void {
    this.#holds++
  }

  release(): void {
    this.#holds--
    this.#start()
  }

  /** Nothing waits for the disk. */
  get isDurable(): boolean {
    return this.#sequence <= this.#durable
  }

  /** undefined: everything up to `sequence` is on disk. Rejects with BoxError 216 (executed `unknown`) when it cannot be written now. */
  whenDurable(sequence: number = this.#sequence): Promise<void> | undefined {
    if (sequence <= this.#durable) return undefined
    if (this.#trouble !== undefined) return Promise.reject(boxErrors.journalPending(this.#trouble))
    const last = this.#waiters.at(-1)
    if (last?.sequence === sequence) return last.promise
    let settle: Pick<Waiter, 'resolve' | 'reject'> | undefined
    const promise = new Promise<void>((resolve, reject) => {
      settle = { resolve, reject }
    })
    this.#waiters.push({ sequence, promise, ...settle! })
    if (last !== undefined && last.sequence > sequence) this.#waiters.sort((a, b) => a.sequence - b.sequence)
    return promise
  }

  /** Removes files all of whose records are up to `sequence`: a snapshot holds them. */
  async forget(sequence: number): Promise<void> {
    while (this.#segments.length > 1 && this.#segments[1]!.first <= sequence + 1) {
      await this.#options.files.remove(this.#segments[0]!.name)
      this.#segments.shift()
    }
  }

  /** Writes what is waiting, once, and closes the files. */
  async close(): Promise<void> {
    this.#cancelRetry?.()
    this.#cancelRetry = undefined
    this.#isClosed = true
    if (this.#isRunning) await new Promise<void>((resolve) => this.#idle.push(resolve))
    if (this.#holds === 0 && this.#sequence > this.#durable) await this.#run()
    this.#trouble = ENDED
    this.#failWaiters(boxErrors.journalPending(ENDED))
    try {
      await this.#tidy()
    } catch {
      // A disk that fails now has failed writes before, and those were reported; the next start tidies up.
    }
  }

  async #tidy(): Promise<void> {
    const { files } = this.#options
    const prepared = await this.#prepared
    const file = this.#file
    this.#file = undefined
    await prepared?.close()
    await file?.close()
    if (prepared !== undefined) await files.remove(UNFINISHED.segment)
    const last = this.#segments.at(-1)
    if (file !== undefined && last !== undefined) await files.truncate(last.name, last.bytes)
  }

  #start(): void {
    if (this.#isRunning || this.#holds > 0 || this.#isClosed || this.#cancelRetry !== undefined) return
    if (this.#sequence === this.#durable) return
    this.#isRunning = true
    this.#options.clock.soon(() => void this.#run())
  }

  async #run(): Promise<void> {
    this.#isRunning = true
    while (this.#holds === 0 && this.#sequence > this.#durable) {
      if (this.#pending.length === 0) this.seal()
      const block = this.#pending[0]!
      try {
        await this.#write(block)
      } catch (error) {
        this.#failed(diskTrouble(error))
        break
      }
      this.#pending.shift()
      this.#arrived(block.first + block.count - 1)
    }
    this.#isRunning = false
    for (const resolve of this.#idle.splice(0)) resolve()
  }

  async #write(block: PendingBlock): Promise<void> {
    const header = blockHeader(block.first, block.count, block.chunks)
    const bytes = header.readUInt32LE(4) + BLOCK_HEADER_BYTES
    if (this.#file === undefined || !this.#fits(bytes)) await this.#nextSegment(block.first, bytes)
    const segment = this.#segments.at(-1)!
    await this.#file!.write([header, ...block.chunks], segment.bytes)
    segment.bytes += bytes
    this.#written += bytes
    if (segment.bytes * 2 > this.#options.segmentBytes) this.#prepared ??= this.#prepare()
  }

  /** A block larger than a whole file goes behind an empty beginning. */
  #fits(bytes: number): boolean {
    return this.#segments.at(-1)!.bytes + bytes <= this.#options.segmentBytes
  }

  async #nextSegment(first: number = this.#sequence + 1, bytes: number = 0): Promise<void> {
    const { files, owner, segmentBytes } = this.#options
    const head = fileHead(owner, first)
    const headBytes = head.reduce((sum, chunk) => sum + chunk.length, 0)
    const prepared = await this.#prepared
    this.#prepared = undefined
    const isLarge = bytes + headBytes > segmentBytes
    if (isLarge) await prepared?.close()
    const file =
      prepared === undefined || isLarge
        ? await files.create(UNFINISHED.segment, Math.max(segmentBytes, bytes + headBytes))
        : prepared
    const name = dataFileName('journal', first)
    try {
      await file.write(head, 0)
      await files.rename(UNFINISHED.segment, name)
    } catch (error) {
      await file.close()
      throw error
    }
    const last = this.#segments.at(-1)
    // A file with no record in it has the name of the next one.
    if (last?.name === name) this.#segments.pop()
    this.#segments.push({ name, first, bytes: headBytes })
    const before = this.#file
    this.#file = file
    await before?.close()
    if (last !== undefined && last.name !== name) await files.truncate(last.name, last.bytes)
  }

  /** The next file, ahead of its time. When that fails it is made when it is needed, and a failure is reported then. */
  #prepare(): Promise<JournalFile | undefined> {
    const { files, segmentBytes } = this.#options
    return files.create(UNFINISHED.segment, segmentBytes).catch(() => undefined)
  }

  #arrived(sequence: number): void {
    this.#durable = sequence
    this.#trouble = undefined
    let done = 0
    while (done < this.#waiters.length && this.#waiters[done]!.sequence <= sequence) this.#waiters[done++]!.resolve()
    this.#waiters.splice(0, done)
    this.#options.onDurable(sequence)
  }

  #failed(trouble: string): void {
    this.#trouble = trouble
    this.#failWaiters(boxErrors.journalPending(trouble))
    if (this.#isClosed) return
    this.#cancelRetry = this.#options.clock.schedule(RETRY_MS, () => {
      this.#cancelRetry = undefined
      this.#start()
    })
  }

  #failWaiters(error: BoxError): void {
    for (const waiter of this.#waiters.splice(0)) waiter.reject(error)
  }
}
