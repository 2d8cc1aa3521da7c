/** A server that is measured: a process of its own with a space of rows that anybody may read and write. */
import { readdirSync, readFileSync } from 'node:fs'

export interface MeasuredServer {
  readonly pid: number
  readonly port: number
  /** Ends it at once and removes its files. Harmless when repeated. */
  readonly stop: () => void
}

/**
 * CPU time of a process so far in microseconds, all its threads included.
 * @throws Error where there is no /proc: figures of another process are taken on Linux only
 */
export function cpuOf(pid: number): number {
  const folder = `/proc/${pid}/task`
  const nanoseconds = readdirSync(folder).reduce(
    // The first figure is the time on a core; the kernel counts ticks of 10 ms in `stat`, which is too coarse here.
    (sum, thread) => sum + Number(readFileSync(`${folder}/${thread}/schedstat`, 'utf8').split(' ', 1)[0]),
    0,
  )
  return nanoseconds / 1_000
}

/** Memory of a process that is not on disk. @throws Error as `cpuOf` */
export function residentBytesOf(pid: number): number {
  const kilobytes = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]
  if (kilobytes === undefined) throw new Error(`The kernel does not tell the memory of process ${pid}`)
  return Number(kilobytes) * 1_024
}
