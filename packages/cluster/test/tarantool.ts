/** Starts a real Tarantool for a test: a child process on a free port of this machine, which dies with the test run. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { freePorts } from '../src/layout.js'

export interface TarantoolOptions {
  /** Run after `box.cfg`, also after a restart: the data of a server without a journal is gone by then. */
  readonly lua?: string
  /** Default none. */
  readonly walMode?: 'none' | 'write' | 'fsync'
  /** Further fields of `box.cfg`, as Lua. */
  readonly cfg?: string
  /** Also listen on `iproto.sock` in `dir`; Tarantool 2.10 and newer. */
  readonly unixSocket?: boolean
  /** Default: a free one. */
  readonly port?: number
  /** Listen from the first `box.cfg` on, which instances that bootstrap from each other need. Default: last of all. */
  readonly listensFirst?: boolean
}

/** A running server. */
export interface TarantoolServer {
  readonly port: number
  /** `127.0.0.1:<port>`. */
  readonly uri: string
  /** Holds its files; removed by `stop`. */
  readonly dir: string
  signal(name: 'SIGTERM' | 'SIGKILL' | 'SIGSTOP' | 'SIGCONT'): void
  /** Resolves when the process of this moment is gone. */
  exited(): Promise<void>
  /** Starts it again on the same port after its process has ended. */
  start(): Promise<void>
  /** Kills it and removes its files. */
  stop(): Promise<void>
  /** What it wrote to its log. */
  log(): Promise<string>
}

const binary = process.env['TARANTOOL'] ?? 'tarantool'
const versionText = readVersion()

/** Why there is no server here, in words for the title of a skipped suite; undefined: there is one. */
export const missingTarantool: string | undefined =
  versionText === undefined ? `no Tarantool: "${binary}" cannot be run; install it, or set TARANTOOL` : undefined

/** `2.6.0`; empty without a server. */
export const tarantoolVersion: string = versionText ?? ''

/** Whether the server is at least this version. */
export function isAtLeast(major: number, minor: number): boolean {
  const [ownMajor = 0, ownMinor = 0] = tarantoolVersion.split('.').map(Number)
  return ownMajor > major || (ownMajor === major && ownMinor >= minor)
}

/** @throws Error with the server's log when it does not start */
export async function startTarantool(options: TarantoolOptions = {}): Promise<TarantoolServer> {
  const dir = await mkdtemp(join(tmpdir(), 'orbweaver-tarantool-'))
  const port = options.port ?? (await freePort())
  const server = new Server(dir, port, options)
  try {
    await server.start()
  } catch (error) {
    await server.stop()
    throw error
  }
  return server
}

class Server implements TarantoolServer {
  readonly dir: string
  readonly port: number
  readonly uri: string
  readonly #options: TarantoolOptions
  #child: ChildProcess | undefined
  #exited: Promise<void> = Promise.resolve()

  constructor(dir: string, port: number, options: TarantoolOptions) {
    this.dir = dir
    this.port = port
    this.uri = `127.0.0.1:${String(port)}`
    this.#options = options
  }

  async start(): Promise<void> {
    const script = join(this.dir, 'init.lua')
    await writeFile(script, initScript(this.dir, this.uri, this.#options))
    // On Linux the kernel ends the server with this process, however that dies.
    const [command, ...args] =
      process.platform === 'linux' ? ['setpriv', '--pdeathsig', 'KILL', binary, script] : [binary, script]
    const child = spawn(command ?? binary, args, { stdio: ['ignore', 'pipe', 'pipe'] })
    this.#child = child
    this.#exited = new Promise((resolve) => {
      child.once('exit', () => resolve())
      child.once('error', () => resolve())
    })
    await this.#ready(child)
  }

  signal(name: 'SIGTERM' | 'SIGKILL' | 'SIGSTOP' | 'SIGCONT'): void {
    this.#child?.kill(name)
  }

  exited(): Promise<void> {
    return this.#exited
  }

  async stop(): Promise<void> {
    this.signal('SIGKILL')
    await this.#exited
    await rm(this.dir, { recursive: true, force: true })
  }

  async log(): Promise<string> {
    try {
      return await readFile(join(this.dir, 'tarantool.log'), 'utf8')
    } catch {
      return '(no log)'
    }
  }

  #ready(child: ChildProcess): Promise<void> {
    return new Promise((resolve, reject) => {
      let output = ''
      const onData = (chunk: Buffer): void => {
        output += chunk.toString()
        if (output.includes(READY)) resolve()
      }
      child.stdout?.on('data', onData)
      child.stderr?.on('data', onData)
      child.once('error', reject)
      child.once('exit', () => {
        void this.log().then((log) => reject(new Error(`Tarantool ended before it was ready: ${output}\n${log}`)))
      })
    })
  }
}

function initScript(dir: string, uri: string, options: TarantoolOptions): string {
  const { lua = '', walMode = 'none', cfg = '', unixSocket = false, listensFirst = false } = options
  // Interactive transactions on memtx need its MVCC engine.
  const mvcc = isAtLeast(2, 10) ? 'memtx_use_mvcc_engine = true,' : ''
  const listen = unixSocket ? `${uri},unix/:${dir}/iproto.sock` : uri
  const first = listensFirst ? `listen = '${listen}',` : ''
  // It listens last: whoever gets in finds everything the script makes.
  return `
box.cfg{work_dir = '${dir}', log = '${dir}/tarantool.log', wal_mode = '${walMode}', memtx_memory = 64 * 1024 * 1024, ${mvcc} ${first} ${cfg}}
${lua}
box.cfg{listen = '${listen}'}
io.stdout:write('${READY}\\n')
io.stdout:flush()
`
}

/** A port of this machine nobody listens on. */
export async function freePort(): Promise<number> {
  const [port] = await freePorts('127.0.0.1', 1)
  return port!
}

function readVersion(): string | undefined {
  const { stdout, status } = spawnSync(binary, ['--version'], { encoding: 'utf8' })
  return status === 0 ? /^Tarantool(?: Enterprise)? (\d+\.\d+\.\d+)/m.exec(stdout)?.[1] : undefined
}

const READY = 'orbweaver: ready'
