/* A sharded cluster in memory, under a clock that moves when told: links between instances can be cut, calls intercepted. */
import { createConnection } from '@orbweaver/connection'
import type { Address, Connection, Environment, Transport } from '@orbweaver/connection'
import { VirtualClock } from '@orbweaver/connection/testing'
import type { ReplicasetConfig } from '@orbweaver/vshard'
import { createStorage } from '../src/index.js'
import type { FunctionContext, Storage, StoredFunction, VshardOptions } from '../src/index.js'
import type { VshardSide } from '../src/vshard/vshard-storage.js'
import { during } from './memory.js'
import { MemoryFiles } from './memory-files.js'

export interface MemoryClusterOptions {
  readonly replicasets: number
  readonly instances?: number
  readonly bucketCount?: number
  readonly quorum?: number
  readonly seed?: number
  readonly vshard?: Partial<VshardOptions>
  /** What is acknowledged is on (memory) disk, and survives `crash`. Default false. */
  readonly isDurable?: boolean
  /** Of the replicasets, in their order; default 1. */
  readonly weights?: readonly number[]
}

/** What becomes of an intercepted call. */
export type Interceptor = (run: () => unknown, args: readonly unknown[], context: FunctionContext) => unknown

/** Statuses of one bucket by the replicaset that has a record of it. */
export type Owners = Readonly<Record<string, string>>

const FIRST_PORT = 3_000

export class MemoryCluster {
  readonly clock: VirtualClock = new VirtualClock()
  readonly bucketCount: number
  readonly config: ReplicasetConfig[]
  readonly #options: MemoryClusterOptions
  readonly #storages = new Map<string, Storage>()
  readonly #disks = new Map<string, MemoryFiles>()
  readonly #cut = new Set<string>()
  readonly #links = new Set<{ from: string; to: string; transport: Transport }>()
  #random: number

  constructor(options: MemoryClusterOptions) {
    this.#options = options
    this.bucketCount = options.bucketCount ?? 20
    this.#random = options.seed ?? 1
    this.config = Array.from({ length: options.replicasets }, (_, set): ReplicasetConfig => {
      const name = String.fromCharCode(97 + set)
      return {
        id: name,
        name,
        master: 'auto',
        weight: options.weights?.[set] ?? 1,
        instances: Array.from({ length: options.instances ?? 1 }, (_unused, i) => ({
          id: `${name}${i + 1}`,
          name: `${name}${i + 1}`,
          uuid: uuidOf(set, i + 1),
          uri: `${name}${i + 1}:${FIRST_PORT}`,
        })),
      }
    })
    for (const set of this.config) for (const instance of set.instances) this.#create(set, instance.id)
  }

  /** A random number in [0, 1), the same sequence for the same seed. */
  random = (): number => {
    // mulberry32
    this.#random = (this.#random + 0x6d2b79f5) | 0
    let t = Math.imul(this.#random ^ (this.#random >>> 15), 1 | this.#random)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296
  }

  at(name: string): Storage {
    return this.#storages.get(name)!
  }

  /** Its insides: for calls beneath an interception. */
  side(name: string): VshardSide {
    return this.at(name).vshard as VshardSide
  }

  get names(): readonly string[] {
    return [...this.#storages.keys()]
  }

  /** The writable instance of a replicaset. */
  master(set: string): Storage {
    const found = this.names.find((name) => name.startsWith(set) && !this.at(name).isReadonly)
    if (found === undefined) throw new Error(`Replicaset ${set} has no master`)
    return this.at(found)
  }

  /** Starts everything, makes first instances masters, spreads the buckets evenly, and makes a sharded space `s`. */
  async start(spread: readonly number[] = []): Promise<this> {
    for (const storage of this.#storages.values()) {
      await this.wait(storage.open())
      storage.start()
    }
    await this.clock.advance(200)
    let first = 1
    for (const [i, { id }] of this.config.entries()) {
      const storage = this.at(`${id}1`)
      await this.wait(storage.promote())
      storage.createSpace('s', {
        format: [
          { name: 'id', type: 'unsigned' },
          { name: 'bucket_id', type: 'unsigned' },
          { name: 'value', type: 'any', isNullable: true },
        ],
        indexes: [
          { name: 'pk', parts: ['id'] },
          { name: 'bucket_id', parts: ['bucket_id'], isUnique: false },
        ],
      })
      const count = spread[i] ?? Math.floor(this.bucketCount / this.config.length)
      if (count === 0) continue
      const reply = await this.wait(storage.call('vshard.storage.bucket_force_create', first, count))
      if (reply[0] !== true) throw new Error(`bootstrap failed: ${JSON.stringify(reply)}`)
      for (let id = first; id < first + count; id++) storage.space('s').insert([id, id, `row of ${id}`])
      first += count
    }
    await this.clock.advance(200)
    return this
  }

  wait<T>(work: Promise<T>): Promise<T> {
    return during(this.clock, work)
  }

  /** A client of an instance. */
  connect(name: string): Connection {
    return createConnection({
      uri: { connect: () => this.at(name).connect({ user: 'root' }) },
      environment: { clock: this.clock, random: this.random },
    })
  }

  /** Puts `interceptor` before a function of an instance. @returns takes it away again */
  intercept(name: string, functionName: string, interceptor: Interceptor): () => void {
    const original = this.side(name).functions[functionName]!
    const wrapped: StoredFunction = (context, ...args) => interceptor(() => original(context, ...args), args, context)
    this.at(name).define(functionName, wrapped)
    return () => this.at(name).define(functionName, original)
  }

  /** Cuts the links between two instances, in both directions, until they are mended. */
  cut(a: string, b: string): void {
    this.#cut.add(linkOf(a, b))
    for (const link of [...this.#links]) {
      if (linkOf(link.from, link.to) !== linkOf(a, b)) continue
      this.#links.delete(link)
      link.transport.destroy(new Error(`The link between ${a} and ${b} is cut`))
    }
  }

  mend(a: string, b: string): void {
    this.#cut.delete(linkOf(a, b))
  }

  isolate(name: string): void {
    for (const other of this.names) if (other !== name) this.cut(name, other)
  }

  rejoin(name: string): void {
    for (const other of this.names) if (other !== name) this.mend(name, other)
  }

  /** The process ends where it is; another one starts over what is on its disk, if its replicaset has no other instance as its master. */
  async crash(name: string): Promise<void> {
    const disk = this.#disks.get(name)!
    const left = disk.crashed()
    disk.gone()
    this.#disks.set(name, left)
    const old = this.#storages.get(name)!
    this.#create(
      this.config.find(({ instances }) => instances.some(({ id }) => id === name))!,
      name,
    )
    await old.close({ graceMs: 0 })
    const next = this.at(name)
    this.onCreated(next)
    await next.open()
    next.start()
  }

  /** Told of an instance that took the place of a crashed one. */
  onCreated: (storage: Storage) => void = () => undefined

  /** What every replicaset's master says of a bucket. */
  owners(bucketId: number): Owners {
    const owners: Record<string, string> = {}
    for (const { id } of this.config) {
      for (const instance of this.names.filter((name) => name.startsWith(id))) {
        if (this.at(instance).isReadonly) continue
        const record = this.side(instance).buckets.get(bucketId)
        if (record !== undefined) owners[id] = record.status
      }
    }
    return owners
  }

  /** Ids of replicasets that serve writes to a bucket. */
  writers(bucketId: number): string[] {
    return Object.entries(this.owners(bucketId)).flatMap(([id, status]) =>
      status === 'active' || status === 'pinned' ? [id] : [],
    )
  }

  /** Buckets with two servers, which must never be. */
  doubled(): number[] {
    return Array.from({ length: this.bucketCount }, (_, i) => i + 1).filter((id) => this.writers(id).length > 1)
  }

  /** Every bucket is served by exactly one replicaset, and nothing of a move is left. */
  get isAtRest(): boolean {
    return Array.from({ length: this.bucketCount }, (_, i) => i + 1).every((id) => {
      const statuses = Object.values(this.owners(id))
      return statuses.length === 1 && (statuses[0] === 'active' || statuses[0] === 'pinned')
    })
  }

  async close(): Promise<void> {
    for (const storage of this.#storages.values()) await this.wait(storage.close({ graceMs: 0 }))
  }

  #create(set: ReplicasetConfig, name: string): void {
    const environment: Partial<Environment> = {
      clock: this.clock,
      random: this.random,
      dial: (address) => this.#dial(name, address),
    }
    const number = set.instances.findIndex((instance) => instance.id === name) + 1
    const peers = set.instances.flatMap((peer, i) =>
      i + 1 === number ? [] : [{ number: i + 1, uuid: peer.uuid!, address: { host: peer.id, port: FIRST_PORT } }],
    )
    const credential = { user: 'root', password: 'r' }
    if (this.#options.isDurable === true && !this.#disks.has(name)) this.#disks.set(name, new MemoryFiles())
    const disk = this.#disks.get(name)
    this.#storages.set(
      name,
      createStorage({
        name,
        uuid: set.instances[number - 1]!.uuid!,
        replicasetName: set.id,
        users: { root: { password: 'r', rights: 'super' } },
        replication: { number, peers, credential, quorum: this.#options.quorum ?? 1 },
        vshard: {
          bucketCount: this.bucketCount,
          identification: 'name',
          replicasets: this.config,
          credential,
          rebalancerMode: 'off',
          ...this.#options.vshard,
        },
        ...(disk === undefined ? {} : { durability: 'full' as const, dir: disk }),
        environment,
      }),
    )
  }

  #dial(from: string, address: Address): Promise<Transport> {
    const to = 'host' in address ? address.host : ''
    const target = this.#storages.get(to)
    if (target === undefined || this.#cut.has(linkOf(from, to)))
      return Promise.reject(new Error(`No link between ${from} and ${to}`))
    const transport = target.connect()
    this.#links.add({ from, to, transport })
    return Promise.resolve(transport)
  }
}

function linkOf(a: string, b: string): string {
  return a < b ? `${a}-${b}` : `${b}-${a}`
}

function uuidOf(set: number, number: number): string {
  return `aaaaaaaa-aaaa-4aaa-8aaa-${String(set).padStart(6, '0')}${String(number).padStart(6, '0')}`
}
