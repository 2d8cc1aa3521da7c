/** The process of something that stands before a server, and its starter's end. It ends with the process that started it. */
import { spawn, spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { connect as connectSocket, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createProxy } from '@orbweaver/proxy'

/** The argument that makes the program such a process instead of the bench. */
export const FRONT_FLAG = '--as-front'

export type FrontKind = 'proxy' | 'pipe'

interface Front {
  readonly pid: number
  readonly port: number
}

/** @param main - the program's main file. @throws Error when it does not come up */
export async function startFront(main: string, kind: FrontKind, serverPort: number): Promise<Front> {
  const args = [main, FRONT_FLAG, kind, String(serverPort)]
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] })
  process.once('exit', () => child.kill('SIGKILL'))
  const port = await new Promise<number>((resolve, reject) => {
    child.once('message', (message) => resolve(message as number))
    child.once('error', reject)
    child.once('exit', (code) => reject(new Error(`The ${kind} ended with ${code ?? 'a signal'}`)))
  })
  return { pid: child.pid!, port }
}

/** The child's end. */
export async function serveFront(): Promise<void> {
  process.on('disconnect', () => process.exit(0))
  process.on('SIGINT', () => {})
  const serverPort = Number(process.argv[4])
  process.send?.(process.argv[3] === 'proxy' ? await openProxy(serverPort) : await openPipe(serverPort))
}

async function openProxy(serverPort: number): Promise<number> {
  const proxy = createProxy({ targets: { server: { uri: `127.0.0.1:${serverPort}` } }, rw: 'server' })
  const address = await proxy.listen('127.0.0.1:0')
  if (!('port' in address)) throw new Error('The proxy listens without a port')
  return address.port
}

/** The least a proxy in Node.js can do: a socket of its own for each client, bytes as they come. */
function openPipe(serverPort: number): Promise<number> {
  return new Promise((resolve) => {
    const server = createServer({ noDelay: true }, (client) => {
      const upstream = connectSocket({ host: '127.0.0.1', port: serverPort, noDelay: true })
      client.pipe(upstream).pipe(client)
      const end = (): void => {
        client.destroy()
        upstream.destroy()
      }
      client.on('error', end)
      upstream.on('error', end)
    })
    server.listen(0, '127.0.0.1', () => {
      const address = server.address()
      if (typeof address === 'object' && address !== null) resolve(address.port)
    })
  })
}

/** Why there is no HAProxy here, as a sentence. */
export function missingHaproxy(): string | undefined {
  return spawnSync('haproxy', ['-v']).status === 0
    ? undefined
    : 'haproxy cannot be run: install it (apt-get install haproxy)'
}

export async function startHaproxy(serverPort: number): Promise<Front> {
  const missing = missingHaproxy()
  if (missing !== undefined) throw new Error(missing)
  const dir = mkdtempSync(join(tmpdir(), 'orbweaver-bench-'))
  const port = await freePort()
  writeFileSync(join(dir, 'haproxy.cfg'), haproxyConfig(port, serverPort))
  const child = spawn('haproxy', ['-db', '-f', join(dir, 'haproxy.cfg')], { stdio: ['ignore', 'ignore', 'ignore'] })
  process.once('exit', () => {
    child.kill('SIGKILL')
    rmSync(dir, { recursive: true, force: true })
  })
  await new Promise((resolve) => setTimeout(resolve, HAPROXY_START_MS))
  return { pid: child.pid!, port }
}

function freePort(): Promise<number> {
  return new Promise((resolve) => {
    const server = createServer().listen(0, '127.0.0.1', () => {
      const address = server.address()
      server.close(() => resolve(typeof address === 'object' && address !== null ? address.port : 0))
    })
  })
}

const haproxyConfig = (port: number, serverPort: number): string => `
global
  nbthread 1
defaults
  mode tcp
  timeout connect 5s
  timeout client 60s
  timeout server 60s
listen bench
  bind 127.0.0.1:${port}
  server one 127.0.0.1:${serverPort}
`

const HAPROXY_START_MS = 500
