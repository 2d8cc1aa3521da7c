/** The server everybody is measured against: a Tarantool without a log of writes, started for the run. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect } from '@orbweaver/connection'
import { ROW_COUNT, SPACE_ID, wideRow } from './fixture.js'
import type { Placement } from './placement.js'

export interface FoundServer {
  readonly program: string
  readonly version: string
}

/** The server's program, or why there is none, as a sentence. */
export function findServer(program: string = process.env['TARANTOOL'] ?? 'tarantool'): FoundServer | string {
  const { status, stdout } = spawnSync(program, ['--version'], { encoding: 'utf8' })
  if (status !== 0) {
    return `There is no Tarantool here (${program} cannot be run): install it (Debian: apt-get install tarantool) or name one with TARANTOOL=/path`
  }
  return { program, version: stdout.split('\n', 1)[0]!.trim() }
}

export class TarantoolServer {
  readonly port: number
  /** Ends it at once, for it holds nothing that anybody needs, and removes its files. Harmless when repeated. */
  readonly stop: () => void

  private constructor(port: number, stop: () => void) {
    this.port = port
    this.stop = stop
  }

  /** Starts it and fills its space. @throws Error with what it wrote when it does not come up */
  static async start({ program }: FoundServer, placement: Placement): Promise<TarantoolServer> {
    const dir = mkdtempSync(join(tmpdir(), 'orbweaver-bench-'))
    writeFileSync(join(dir, 'server.lua'), SCRIPT)
    const [command, ...args] = [...placement.prefix, program, join(dir, 'server.lua')]
    const child = spawn(command, args, { cwd: dir, stdio: ['pipe', 'pipe', 'pipe'] })
    const stop = (): void => {
      process.off('exit', stop)
      child.kill('SIGKILL')
      rmSync(dir, { recursive: true, force: true })
    }
    // Whatever ends the bench, also while the server is starting.
    process.once('exit', stop)
    try {
      const server = new TarantoolServer(await announcedPort(child), stop)
      await server.#fill()
      return server
    } catch (error) {
      stop()
      throw error
    }
  }

  async #fill(): Promise<void> {
    const connection = await connect({ uri: `127.0.0.1:${this.port}`, reconnect: false })
    for (let from = 1; from <= ROW_COUNT; from += FILL_BATCH) {
      const ids = Array.from({ length: Math.min(FILL_BATCH, ROW_COUNT - from + 1) }, (_, i) => from + i)
      await Promise.all(ids.map((id) => connection.insert(SPACE_ID, wideRow(id))))
    }
    await connection.close()
  }
}

function announcedPort(child: ChildProcess): Promise<number> {
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
const FILL_BATCH = 5_000

/** It ends when its standard input does, so that it cannot outlive the bench. */
const SCRIPT = `
box.cfg{listen = '127.0.0.1:0', wal_mode = 'none', memtx_memory = 512 * 1024 * 1024, checkpoint_interval = 0, log = 'tarantool.log'}
local space = box.schema.space.create('bench', {id = ${SPACE_ID}})
space:create_index('primary', {parts = {{1, 'unsigned'}}})
function bench_add(a, b) return a + b end
box.schema.user.grant('guest', 'super')
require('fiber').create(function()
  require('socket').iowait(0, 'R')
  os.exit(0)
end)
print('ready ' .. box.info.listen:match('%d+$'))
io.flush()
`
