/*
 * The directory of one instance's data, as the journal uses it. The seam between rules and the disk: tests hand in a directory
 * in memory that loses what was not synced, or is full.
 */

/** A file open for durable writing. */
export interface JournalFile {
  /** Writes all of it; resolves when it is on disk. One at a time. */
  write(chunks: readonly Uint8Array[], position: number): Promise<void>
  close(): Promise<void>
}

export interface JournalFiles {
  /** What messages call it: its path. */
  readonly place: string
  /** Creates the directory where it is missing, and makes it this instance's own. @throws JournalError (`locked`, `disk`) */
  lock(): Promise<void>
  unlock(): Promise<void>
  list(): Promise<readonly string[]>
  size(name: string): Promise<number>
  /** Up to `length` bytes; fewer at the end of the file. */
  read(name: string, position: number, length: number): Promise<Buffer>
  /** A new file of zeros, all of it on disk; replaces what has its name. */
  create(name: string, bytes: number): Promise<JournalFile>
  truncate(name: string, bytes: number): Promise<void>
  /** Replaces `to` at once and durably. */
  rename(from: string, to: string): Promise<void>
  /** Missing is fine. */
  remove(name: string): Promise<void>
}
