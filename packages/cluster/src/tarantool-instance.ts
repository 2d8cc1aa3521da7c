/*
 * Tarantool processes as instances of a cluster. Masters are whom the cluster promotes: with elections (2.10 and newer) by
 * `box.ctl.promote`, so that terms order the claims; before that by read-only flags, the old one first.
 */
import { spawn, spawnSync } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { connect } from '@orbweaver/connection'
import { InvalidArgumentError } from '@orbweaver/iproto'
import { writeVshardConfig } from '@orbweaver/vshard'
import type { ClusterConfig } from '@orbweaver/vshard'
import type { EngineDriver, InstanceSpec, RunningInstance } from './engine-driver.js'
import { findInstance } from './find-instance.js'
import { findTarantool, hasElections, hasStrategies } from './tarantool-program.js'
import type { TarantoolPlaces, TarantoolProgram } from './tarantool-program.js'

/**
 * Real Tarantool with the vshard module. Each instance is a process of its own and keeps its data in its directory, so what it
 * acknowledged is there after a restart whatever `durability` says. Instances identified by name need Tarantool 3.0.
 */
export function tarantoolEngine(places: TarantoolPlaces = {}): EngineDriver {
  return {
    name: 'tarantool',
    missing: () => {
      const found = findTarantool(places)
      return typeof found === 'string' ? found : undefined
    },
    start: async (spec) => {
      const found = findTarantool(places, spec.vshard)
      if (typeof found === 'string') throw new InvalidArgumentError(found)
      refuseWhatItCannot(spec, found)
      const instance = new TarantoolInstance(spec, found)
      await instance.start()
      return instance
    },
  }
}

function refuseWhatItCannot(
  { inProcess, setUp, config }: InstanceSpec,
  { version: [major, minor] }: TarantoolProgram,
): void {
  if (inProcess) throw new InvalidArgumentError('Tarantool runs in processes of its own: leave inProcess out')
  if (setUp !== undefined)
    throw new InvalidArgumentError(
      'setUp is for embedded storages: give the functions of a Tarantool as `lua`, a Lua file',
    )
  if (config.identification === 'name' && major < 3)
    throw new InvalidArgumentError(`Tarantool ${major}.${minor} knows no names of instances: use identification 'uuid'`)
}

class TarantoolInstance implements RunningInstance {
  readonly uri: string
  readonly exited: Promise<number | string>
  readonly #spec: InstanceSpec
  readonly #program: TarantoolProgram
  #child: ChildProcess | undefined
  #ended: (how: number | string) => void = () => undefined

  constructor(spec: InstanceSpec, program: TarantoolProgram) {
    this.uri = findInstance(spec).instance.uri
    this.#spec = spec
    this.#program = program
    this.exited = new Promise((resolve) => {
      this.#ended = resolve
    })
  }

  /** @throws Error with what it said and logged when it does not come up */
  async start(): Promise<void> {
    const { dir } = this.#spec
    await mkdir(dir, { recursive: true })
    const file = join(dir, 'instance.json')
    await writeFile(file, JSON.stringify(await this.#instructions(), null, 2), { mode: 0o600 })
    const [command, ...args] = [...endsWithParent(), this.#program.program, luaPath('instance.lua'), file]
    const child = spawn(command, args, { stdio: ['pipe', 'pipe', 'pipe'] })
    this.#child = child
    child.once('exit', (code, signal) => this.#ended(signal ?? code ?? 0))
    child.once('error', (error) => this.#ended(error.message))
    await this.#ready(child)
  }

  /** On the others first: with read-only flags nobody else may write when this one begins to. */
  async promote(): Promise<void> {
    const { replicaset } = findInstance(this.#spec)
    if (!hasElections(this.#program)) {
      const others = replicaset.instances.filter(({ id }) => id !== this.#spec.id)
      await Promise.all(others.map(({ uri }) => this.#tell(uri, 'orbweaver.promote', [false]).catch(ignoreUnreachable)))
    }
    await this.#tell(this.uri, 'orbweaver.promote', [true])
  }

  signal(name: 'SIGTERM' | 'SIGKILL' | 'SIGSTOP' | 'SIGCONT'): void {
    this.#child?.kill(name)
  }

  async apply(config: ClusterConfig): Promise<void> {
    await this.#tell(this.uri, 'orbweaver.apply', [writeVshardConfig(config)])
  }

  async #tell(uri: string, name: string, args: readonly unknown[]): Promise<void> {
    const { user, password } = this.#spec.config
    const connection = await connect({ uri, user, password, reconnect: false, connectTimeoutMs: TELL_TIMEOUT_MS })
    try {
      await connection.call(name, args, { timeout: TELL_TIMEOUT_MS })
    } finally {
      connection.destroy()
    }
  }

  async #instructions(): Promise<Record<string, unknown>> {
    const { dir, config, vshard, lua } = this.#spec
    const { replicaset, instance, number } = findInstance(this.#spec)
    const login = `${encodeURIComponent(config.user)}:${encodeURIComponent(config.password)}@`
    const uris = replicaset.instances.map(({ uri }) => `${login}${uri}`)
    // What has data recovers by itself, and is no longer the one that makes the replicaset.
    const isNew = !(await readdir(dir)).some((name) => name.endsWith('.snap'))
    const isFirst = number === 1 && isNew
    return {
      dir,
      listen: instance.uri,
      user: config.user,
      password: config.password,
      instance_uuid: instance.uuid ?? instance.id,
      replicaset_uuid: replicaset.uuid ?? replicaset.id,
      names:
        this.#program.version[0] >= 3 && config.identification === 'name'
          ? { instance: instance.id, replicaset: replicaset.id }
          : undefined,
      is_first: isFirst || (uris.length === 1 && !hasElections(this.#program)),
      join_from: isNew ? (isFirst ? undefined : uris.slice(0, 1)) : uris,
      is_joining: isNew && !isFirst,
      has_strategies: hasStrategies(this.#program),
      peers: uris.length > 1 ? uris : undefined,
      elections: hasElections(this.#program) ? 'manual' : undefined,
      box_options: { ...config.boxOptions, ...instance.boxOptions },
      vshard_path: this.#program.vshardPath,
      vshard: vshard ? writeVshardConfig(config) : undefined,
      vshard_name: instance.id,
      set_up: lua === undefined ? undefined : fileURLToPath(new URL(lua)),
    }
  }

  #ready(child: ChildProcess): Promise<void> {
    return new Promise((resolve, reject) => {
      let said = ''
      const hear = (bytes: Buffer): void => {
        said = (said + bytes.toString()).slice(-SAID_TAIL_BYTES)
        if (said.includes('orbweaver: ready')) resolve()
      }
      child.stdout?.on('data', hear)
      child.stderr?.on('data', hear)
      void this.exited.then(async (how) => {
        const log = await this.#log()
        reject(new Error(`The Tarantool at ${this.uri} ended (${how}) before it was up: ${said.trim()}\n${log}`))
      })
    })
  }

  /** The end of its log. */
  async #log(): Promise<string> {
    const file = join(this.#spec.dir, 'tarantool.log')
    if (!existsSync(file)) return ''
    return (await readFile(file, 'utf8')).slice(-SAID_TAIL_BYTES)
  }
}

/** An old master that does not answer cannot be told: the caller decided that it is gone. */
function ignoreUnreachable(): void {}

function luaPath(name: string): string {
  return fileURLToPath(new URL(`../src/lua/${name}`, import.meta.url))
}

/** On Linux the kernel ends the server with this process, however that dies, frozen or not. */
function endsWithParent(): string[] {
  isSetprivHere ??= process.platform === 'linux' && spawnSync('setpriv', ['--version']).status === 0
  return isSetprivHere ? ['setpriv', '--pdeathsig', 'KILL'] : []
}

let isSetprivHere: boolean | undefined

const SAID_TAIL_BYTES = 4_096
const TELL_TIMEOUT_MS = 10_000
