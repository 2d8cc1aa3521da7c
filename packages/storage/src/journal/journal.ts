/*
 * The data directory of one instance: a snapshot and the journal behind it. Loads them, appends records, and takes the next
 * snapshot when the journal has grown enough. The instance says what its state is and what to do with what was read.
 */
import type { Clock } from '@orbweaver/connection'
import type { BoxError, Row } from '@orbweaver/iproto'
import type { RowBody } from '../engine/engine.js'
import { boxErrors } from '../errors.js'
import type { SnapshotHead, StreamFrame, Vote } from '../replication/stream-codec.js'
import { diskTrouble, JournalError } from './errors.js'
import type { JournalOwnerId } from './file-head.js'
import { dataFiles, UNFINISHED } from './file-name.js'
import type { JournalFiles } from './journal-files.js'
import { readJournal } from './reader.js'
import { decodeRecords } from './record.js'
import type { JournalRecord } from './record.js'
import { readSnapshot, writeSnapshot } from './snapshot.js'
import type { SnapshotView } from './snapshot.js'
import { JournalWriter } from './writer.js'

/** The instance behind the journal. */
export interface JournalSubject {
  /** Rows of the snapshot, slice by slice, and what it says besides; before any record. */
  loadRows(rows: readonly RowBody[]): void
  loadHead(head: SnapshotHead, vote: Vote): void
  /** One frame of the journal: rows and promises as they were. */
  replay(frame: StreamFrame, header: Row): void
  /** Everything now, or undefined while that makes no sense; called in a turn of the loop of its own. */
  view(): SnapshotView | undefined
  /** Everything now is in what was appended up to this record, which goes to the disk as one. */
  sealed(sequence: number): void
  /** Everything up to this record is on disk. */
  durable(sequence: number): void
}

export interface JournalOptions {
  readonly files: JournalFiles
  readonly clock: Clock
  /** Bytes of journal behind the last snapshot that make the next one due. */
  readonly snapshotBytes: number
  /** Records of journal that do. */
  readonly snapshotRows: number
  /** Size of one file of the journal. Default 8 MiB. */
  readonly segmentBytes?: number
}

/** Where the journal stands, for people. */
export interface JournalInfo {
  /** Number of the last record, and of the last one on disk. */
  readonly sequence: number
  readonly durable: number
  /** The record the last snapshot was taken at; 0 before the first. */
  readonly snapshot: number
  /** Bytes of the journal's files that hold records. */
  readonly bytes: number
  readonly files: number
  /** Why writing to disk fails now; undefined while it works. */
  readonly trouble: string | undefined
}

const DEFAULT_SEGMENT_BYTES = 8 * 1024 * 1024
const RETRY_MS = 1_000
/** Every start begins a file: however little is in them, more than these are too many. */
const MAX_FILES = 64

export class Journal {
  readonly #options: JournalOptions
  readonly #subject: JournalSubject
  #writer: JournalWriter | undefined
  #owner: JournalOwnerId | undefined
  /** Record of the last snapshot. */
  #snapshot = 0
  /** Bytes the writer had written then. */
  #marked = 0
  #running: Promise<void> | undefined
  /** The state was replaced as a whole: the journal goes on only behind a snapshot of the new one. */
  #isReplaced = false
  #isClosed = false
  #snapshotTrouble: string | undefined
  #cancelRetry: (() => void) | undefined

  constructor(options: JournalOptions, subject: JournalSubject) {
    this.#options = options
    this.#subject = subject
  }

  get isOpen(): boolean {
    return this.#writer !== undefined
  }

  /**
   * Takes the directory, reads what is in it and makes it ready for more.
   * @param owner - `uuid` undefined: whoever the data belong to
   * @returns whose data they are
   * @throws JournalError (`locked`, `foreign`, `damaged`, `disk`)
   */
  async open(owner: { uuid: string | undefined; number: number }, newUuid: () => string): Promise<JournalOwnerId> {
    const { files } = this.#options
    try {
      await files.lock()
      try {
        return await this.#load(owner, newUuid)
      } catch (error) {
        await this.#writer?.close()
        this.#writer = undefined
        await files.unlock()
        throw error
      }
    } catch (error) {
      throw error instanceof JournalError
        ? error
        : new JournalError('disk', `${files.place} cannot be used: ${diskTrouble(error)}`, { cause: error })
    }
  }

  append(record: JournalRecord): void {
    this.#require().append(record)
    this.#look()
  }

  get sequence(): number {
    return this.#writer?.sequence ?? 0
  }

  get isDurable(): boolean {
    return this.#writer?.isDurable ?? true
  }

  /** undefined: everything appended is on disk. Rejects with BoxError 216 (executed `unknown`) while the disk refuses. */
  whenDurable(sequence?: number): Promise<void> | undefined {
    return this.#writer?.whenDurable(sequence)
  }

  /** While the disk refuses, no more is taken: what waits for it stays bounded. */
  get refusal(): BoxError | undefined {
    const trouble = this.#writer?.trouble ?? (this.#isReplaced ? this.#snapshotTrouble : undefined)
    return trouble === undefined ? undefined : boxErrors.journalFailed(trouble)
  }

  /** Everything was replaced by the state of another instance; call it before anything of the new state is appended. */
  replaced(): void {
    const writer = this.#require()
    if (!this.#isReplaced) writer.hold()
    this.#isReplaced = true
    this.#schedule()
  }

  info(): JournalInfo {
    const writer = this.#writer
    return {
      sequence: writer?.sequence ?? 0,
      durable: writer?.durable ?? 0,
      snapshot: this.#snapshot,
      bytes: writer?.bytes ?? 0,
      files: writer?.segments.length ?? 0,
      trouble: writer?.trouble ?? this.#snapshotTrouble,
    }
  }

  /** Takes a snapshot now, or waits for the one that is being taken. */
  async snapshot(): Promise<void> {
    if (this.#running === undefined) this.#run()
    await this.#running
  }

  async close(): Promise<void> {
    if (this.#isClosed) return
    this.#isClosed = true
    this.#cancelRetry?.()
    await this.#running
    if (this.#writer === undefined) return
    await this.#writer.close()
    await this.#options.files.unlock()
  }

  async #load(
    { uuid, number }: { uuid: string | undefined; number: number },
    newUuid: () => string,
  ): Promise<JournalOwnerId> {
    const { files, clock, segmentBytes = DEFAULT_SEGMENT_BYTES } = this.#options
    const names = await files.list()
    for (const name of Object.values(UNFINISHED)) if (names.includes(name)) await files.remove(name)
    const found = dataFiles(names)
    const segments = found.filter((file) => file.kind === 'journal')
    const wanted = uuid === undefined ? undefined : { uuid, number }
    const newest = found.findLast((file) => file.kind === 'snapshot')
    let owner = wanted
    if (newest !== undefined) {
      const read = await readSnapshot(files, newest, wanted, (rows) => this.#subject.loadRows(rows))
      this.#subject.loadHead(read.head, read.vote)
      this.#snapshot = newest.sequence
      owner = read.owner
    }
    const end = await readJournal(files, segments, this.#snapshot, owner, (block) => {
      for (const { frame, header } of decodeRecords(block.payload)) this.#subject.replay(frame, header)
    })
    owner ??= end.owner ?? { uuid: newUuid(), number }
    this.#owner = owner
    const last = end.segments.at(-1)
    if (last !== undefined) await files.truncate(last.name, last.bytes)
    this.#writer = new JournalWriter(
      {
        files,
        clock,
        owner,
        segmentBytes,
        onSealed: (sequence) => this.#subject.sealed(sequence),
        onDurable: (sequence) => this.#subject.durable(sequence),
      },
      end,
    )
    await this.#writer.open()
    await this.#forget()
    this.#subject.durable(end.sequence)
    this.#look()
    return owner
  }

  #require(): JournalWriter {
    if (this.#writer === undefined) throw boxErrors.loading()
    return this.#writer
  }

  #look(): void {
    if (this.#running !== undefined || this.#isClosed || this.#cancelRetry !== undefined) return
    const { snapshotBytes, snapshotRows } = this.#options
    const { written, sequence, segments } = this.#require()
    const isDue =
      written - this.#marked >= snapshotBytes ||
      sequence - this.#snapshot >= snapshotRows ||
      segments.length > MAX_FILES
    if (!isDue) return
    if (sequence === this.#snapshot) return
    this.#schedule()
  }

  /** Not within the request that made it due: a view must not be taken in the middle of a transaction. */
  #schedule(): void {
    this.#options.clock.soon(() => {
      if (this.#running === undefined && !this.#isClosed) this.#run()
    })
  }

  #run(): void {
    this.#cancelRetry?.()
    this.#cancelRetry = undefined
    this.#running = this.#snapshotNow().then(
      (isOvertaken) => {
        this.#running = undefined
        this.#snapshotTrouble = undefined
        if (isOvertaken) this.#schedule()
        else if (!this.#isReplaced) this.#look()
      },
      (error: unknown) => {
        this.#running = undefined
        this.#snapshotTrouble = `no snapshot can be taken: ${diskTrouble(error)}`
        if (this.#isClosed) return
        this.#cancelRetry = this.#options.clock.schedule(RETRY_MS, () => this.#run())
      },
    )
  }

  /** @returns true when it was overtaken by a new state and is to be taken again */
  async #snapshotNow(): Promise<boolean> {
    const writer = this.#require()
    const { files } = this.#options
    const view = this.#subject.view()
    if (view === undefined) return false
    writer.seal()
    const { sequence, written } = writer
    const isOfReplaced = this.#isReplaced
    const size = await writeSnapshot(
      files,
      this.#owner!,
      sequence,
      view,
      () => this.#isClosed || this.#isReplaced !== isOfReplaced,
    )
    if (size === undefined) return true
    this.#snapshot = sequence
    this.#marked = written
    if (isOfReplaced) {
      this.#isReplaced = false
      writer.release()
    }
    await this.#forget()
    return false
  }

  /** Removes what the last snapshot makes needless. */
  async #forget(): Promise<void> {
    const { files } = this.#options
    for (const file of dataFiles(await files.list()))
      if (file.kind === 'snapshot' && file.sequence < this.#snapshot) await files.remove(file.name)
    await this.#writer?.forget(this.#snapshot)
  }
}
