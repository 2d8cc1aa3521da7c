/** A Tarantool that is started for the run. */
import { spawn, spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { SPACE_ID } from '../fixture.js'
import { announcedPort } from './announced-port.js'
import type { MeasuredServer } from './measured-server.js'

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

export interface TarantoolOptions {
  /** Put before the command. */
  readonly prefix?: readonly string[]
  /** `fsync`: an answered write is on disk. Default `none`. */
  readonly walMode?: 'none' | 'fsync'
  /** A second index, over the second field. */
  readonly hasSecondIndex?: boolean
}

export class TarantoolServer implements MeasuredServer {
  readonly pid: number
  readonly port: number
  readonly stop: () => void

  private constructor(pid: number, port: number, stop: () => void) {
    this.pid = pid
    this.port = port
    this.stop = stop
  }

  /** Starts it with an empty space. @throws Error with what it wrote when it does not come up */
  static async start({ program }: FoundServer, options: TarantoolOptions = {}): Promise<TarantoolServer> {
    const dir = mkdtempSync(join(tmpdir(), 'orbweaver-bench-'))
    writeFileSync(join(dir, 'server.lua'), script(options))
    const [command, ...args] = [...(options.prefix ?? []), program, join(dir, 'server.lua')]
    const child = spawn(command, args, { cwd: dir, stdio: ['pipe', 'pipe', 'pipe'] })
    const stop = (): void => {
      process.off('exit', stop)
      child.kill('SIGKILL')
      rmSync(dir, { recursive: true, force: true })
    }
    // Whatever ends the bench, also while the server is starting. Nobody needs what it holds.
    process.once('exit', stop)
    try {
      return new TarantoolServer(child.pid!, await announcedPort(child), stop)
    } catch (error) {
      stop()
      throw error
    }
  }
}

/** It ends when its standard input does, so that it cannot outlive the bench. */
const script = ({ walMode = 'none', hasSecondIndex = false }: TarantoolOptions): string => `
box.cfg{listen = '127.0.0.1:0', wal_mode = '${walMode}', memtx_memory = 1024 * 1024 * 1024, checkpoint_interval = 0, log = 'tarantool.log'}
local space = box.schema.space.create('bench', {id = ${SPACE_ID}})
space:create_index('primary', {parts = {{1, 'unsigned'}}})
${hasSecondIndex ? "space:create_index('second', {parts = {{2, 'string'}}, unique = false})" : ''}
function bench_add(a, b) return a + b end
box.schema.user.grant('guest', 'super')
require('fiber').create(function()
  require('socket').iowait(0, 'R')
  os.exit(0)
end)
print('ready ' .. box.info.listen:match('%d+$'))
io.flush()
`
