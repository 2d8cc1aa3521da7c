/* A data directory on a disk. */
import { randomUUID } from 'node:crypto'
import { constants } from 'node:fs'
import { mkdir, open, readdir, rename, rm, stat, truncate } from 'node:fs/promises'
import type { FileHandle } from 'node:fs/promises'
import { join } from 'node:path'
import { DirectoryLock } from './directory-lock.js'
import type { JournalFile, JournalFiles } from './journal-files.js'

/** Files of zeros are made in pieces of this size, so that synced writes to other files are not held up. */
const ZEROS: Buffer = Buffer.alloc(256 * 1024)

export function diskFiles(directory: string): JournalFiles {
  return new DiskFiles(directory)
}

class DiskFiles implements JournalFiles {
  readonly place: string
  readonly #lock: DirectoryLock

  constructor(directory: string) {
    this.place = directory
    this.#lock = new DirectoryLock(directory, randomUUID())
  }

  async lock(): Promise<void> {
    await mkdir(this.place, { recursive: true })
    await this.#lock.take()
  }

  unlock(): Promise<void> {
    return this.#lock.give()
  }

  list(): Promise<readonly string[]> {
    return readdir(this.place)
  }

  async size(name: string): Promise<number> {
    return (await stat(this.#path(name))).size
  }

  async read(name: string, position: number, length: number): Promise<Buffer> {
    const handle = await open(this.#path(name), 'r')
    try {
      const bytes = Buffer.allocUnsafe(length)
      let have = 0
      while (have < length) {
        const { bytesRead } = await handle.read(bytes, have, length - have, position + have)
        if (bytesRead === 0) break
        have += bytesRead
      }
      return bytes.subarray(0, have)
    } finally {
      await handle.close()
    }
  }

  async create(name: string, bytes: number): Promise<JournalFile> {
    const path = this.#path(name)
    // Zeros first, synced once: a synced write into them later changes nothing but the bytes.
    const filler = await open(path, 'w')
    try {
      for (let at = 0; at < bytes; at += ZEROS.length)
        await filler.write(ZEROS, 0, Math.min(ZEROS.length, bytes - at), at)
      await filler.sync()
    } finally {
      await filler.close()
    }
    // Where the system has no O_DSYNC (it is undefined then), every write is followed by a sync.
    const synced = (constants.O_DSYNC as number | undefined) ?? 0
    return new DiskFile(await open(path, constants.O_WRONLY | synced), synced !== 0)
  }

  truncate(name: string, bytes: number): Promise<void> {
    return truncate(this.#path(name), bytes)
  }

  async rename(from: string, to: string): Promise<void> {
    await rename(this.#path(from), this.#path(to))
    await this.#syncDirectory()
  }

  remove(name: string): Promise<void> {
    return rm(this.#path(name), { force: true })
  }

  #path(name: string): string {
    return join(this.place, name)
  }

  /** A name is durable when its directory is. Windows has no such thing, and needs none. */
  async #syncDirectory(): Promise<void> {
    if (process.platform === 'win32') return
    const handle = await open(this.place, 'r')
    try {
      await handle.sync()
    } finally {
      await handle.close()
    }
  }
}

class DiskFile implements JournalFile {
  readonly #handle: FileHandle
  readonly #isSynced: boolean

  constructor(handle: FileHandle, isSynced: boolean) {
    this.#handle = handle
    this.#isSynced = isSynced
  }

  async write(chunks: readonly Uint8Array[], position: number): Promise<void> {
    let left = [...chunks]
    let at = position
    while (left.length > 0) {
      const { bytesWritten } = await this.#handle.writev(left, at)
      at += bytesWritten
      left = behind(left, bytesWritten)
    }
    if (!this.#isSynced) await this.#handle.datasync()
  }

  close(): Promise<void> {
    return this.#handle.close()
  }
}

/** What is left of the chunks behind their first `bytes`: a full disk takes a part. */
function behind(chunks: readonly Uint8Array[], bytes: number): Uint8Array[] {
  let skip = bytes
  for (const [i, chunk] of chunks.entries()) {
    if (skip < chunk.length) return [chunk.subarray(skip), ...chunks.slice(i + 1)]
    skip -= chunk.length
  }
  return []
}
