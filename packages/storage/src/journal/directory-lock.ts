/*
 * One instance at a time in a directory. Node has no file locks, so a file tells which process has it; a process is known by its id
 * and the moment it began, so the file of one that is gone, by kill -9 or a power cut, is recognised and replaced without
 * anybody's help.
 */
import { link, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { JournalError } from './errors.js'

interface Holder {
  readonly pid: number
  /** When the process began, in the system's own units; undefined where the system does not tell. */
  readonly began: string | undefined
  /** Tells instances of one process apart. */
  readonly token: string
}

const NAME = 'lock'
const ATTEMPTS = 5

export class DirectoryLock {
  readonly #directory: string
  readonly #token: string

  constructor(directory: string, token: string) {
    this.#directory = directory
    this.#token = token
  }

  /** @throws JournalError (`locked`) while another instance has it */
  async take(): Promise<void> {
    const path = join(this.#directory, NAME)
    const own = `${path}.${this.#token}`
    const holder: Holder = { pid: process.pid, began: await beginningOf(process.pid), token: this.#token }
    await writeFile(own, JSON.stringify(holder))
    try {
      for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
        // A link appears with its contents, or fails: two that try at once cannot both succeed.
        if (await succeeds(link(own, path), 'EEXIST')) return
        const other = await readHolder(path)
        if (other === undefined) continue
        if (await isAlive(other))
          throw new JournalError(
            'locked',
            `${this.#directory} is in use by another instance (process ${other.pid}): stop that one, or give this one a directory of its own`,
          )
        await removeStale(path, other, `${own}.stale`)
      }
      throw new JournalError('locked', `${this.#directory} is being taken by other instances at the same time`)
    } finally {
      await rm(own, { force: true })
    }
  }

  async give(): Promise<void> {
    const path = join(this.#directory, NAME)
    const holder = await readHolder(path)
    if (holder?.token === this.#token) await rm(path, { force: true })
  }
}

/** Takes away the file that was found stale, and no newer one: what was moved is looked at again. */
async function removeStale(path: string, stale: Holder, aside: string): Promise<void> {
  if (!(await succeeds(rename(path, aside), 'ENOENT'))) return
  const moved = await readHolder(aside)
  if (moved !== undefined && moved.token !== stale.token) await succeeds(link(aside, path), 'EEXIST')
  await rm(aside, { force: true })
}

/** Whether it worked; `expected` is the one failure that is an answer. */
async function succeeds(work: Promise<void>, expected: string): Promise<boolean> {
  try {
    await work
    return true
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === expected) return false
    throw error
  }
}

async function readHolder(path: string): Promise<Holder | undefined> {
  let text: string
  try {
    text = await readFile(path, 'utf8')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  }
  try {
    return JSON.parse(text) as Holder
  } catch {
    // Cut short by a power failure: its process is gone.
    return { pid: 0, began: undefined, token: '' }
  }
}

async function isAlive({ pid, began }: Holder): Promise<boolean> {
  if (pid === 0) return false
  try {
    process.kill(pid, 0)
  } catch (error) {
    // EPERM: it exists and is somebody else's.
    if ((error as NodeJS.ErrnoException).code === 'ESRCH') return false
  }
  return began === undefined || began === (await beginningOf(pid))
}

/** Field 22 of /proc/<pid>/stat, counted behind the name, which may hold anything; with the boot it is a part of. */
async function beginningOf(pid: number): Promise<string | undefined> {
  try {
    const text = await readFile(`/proc/${pid}/stat`, 'utf8')
    const boot = await readFile('/proc/sys/kernel/random/boot_id', 'utf8')
    const [state, ...fields] = text.slice(text.lastIndexOf(')') + 2).split(' ')
    // A zombie has ended: only its parent has not noticed yet.
    return state === 'Z' ? undefined : `${boot.trim()}/${fields[18]}`
  } catch {
    return undefined // no such file system (macOS, Windows), or the process has ended
  }
}
