import type { ChildProcess } from 'node:child_process'

/** The port in the line `ready <port>` of a server that starts. @throws Error with what it said instead */
export function announcedPort(child: ChildProcess): Promise<number> {
  return new Promise((resolve, reject) => {
    let said = ''
    const timer = setTimeout(
      () => reject(new Error(`The server did not come up in ${START_MS / 1000} s: ${said}`)),
      START_MS,
    )
    const hear = (bytes: Buffer): void => {
      said += bytes.toString()
      const port = /^ready (\d+)$/m.exec(said)?.[1]
      if (port === undefined) return
      clearTimeout(timer)
      resolve(Number(port))
    }
    child.stdout?.on('data', hear)
    child.stderr?.on('data', hear)
    child.once('error', reject)
    child.once('exit', (code, signal) => {
      clearTimeout(timer)
      reject(new Error(`The server ended (${signal ?? code ?? 'unknown'}): ${said}`))
    })
  })
}

const START_MS = 30_000
