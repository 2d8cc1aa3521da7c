/* Embedded storages and a router in memory, under a clock that moves when told: links take time, can be cut, and are counted. */
import type { Address, Environment, Transport, TransportSink } from '@orbweaver/connection'
import { VirtualClock } from '@orbweaver/connection/testing'
import { createRouter } from '@orbweaver/router'
import type { Router, RouterOptions } from '@orbweaver/router'
import { createStorage } from '@orbweaver/storage'
import type { Storage } from '@orbweaver/storage'
import type { ReplicasetConfig } from '@orbweaver/vshard'

export interface VirtualClusterOptions {
  /** How many buckets each replicaset has at the start. */
  readonly spread: readonly number[]
  readonly instances?: number
  readonly quorum?: number
  /** One way, between the router and a storage; default 0. */
  readonly latencyMs?: number
  /** One way, between storages; default 0. */
  readonly peerLatencyMs?: number
  readonly seed?: number
  readonly setUp?: (storage: Storage) => void
}

const PORT = 3_000
const LOGIN = { user: 'root', password: 'r' } as const

export class VirtualCluster {
  readonly clock: VirtualClock = new VirtualClock()
  readonly bucketCount: number
  readonly replicasets: readonly ReplicasetConfig[]
  #router: Router | undefined
  readonly #options: VirtualClusterOptions
  readonly #storages = new Map<string, Storage>()
  readonly #routers: Router[] = []
  readonly #links = new Set<{ from: string; to: string; transport: Transport }>()
  readonly #cut = new Set<string>()
  #random: number

  constructor(options: VirtualClusterOptions) {
    this.#options = options
    this.#random = options.seed ?? 1
    this.bucketCount = options.spread.reduce((sum, count) => sum + count, 0)
    this.replicasets = options.spread.map((_count, set): ReplicasetConfig => {
      const id = String.fromCharCode(97 + set)
      return {
        id,
        name: id,
        master: 'auto',
        weight: 1,
        instances: Array.from({ length: options.instances ?? 1 }, (_unused, i) => ({
          id: `${id}${i + 1}`,
          name: `${id}${i + 1}`,
          uuid: `aaaaaaaa-aaaa-4aaa-8aaa-${String(set).padStart(6, '0')}${String(i + 1).padStart(6, '0')}`,
          uri: `${id}${i + 1}:${PORT}`,
        })),
      }
    })
    for (const set of this.replicasets) for (const { id } of set.instances) this.#create(set, id)
  }

  /** A random number in [0, 1), the same sequence for the same seed (mulberry32). */
  random = (): number => {
    this.#random = (this.#random + 0x6d2b79f5) | 0
    let t = Math.imul(this.#random ^ (this.#random >>> 15), 1 | this.#random)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296
  }

  at(name: string): Storage {
    return this.#storages.get(name)!
  }

  get names(): readonly string[] {
    return [...this.#storages.keys()]
  }

  /** One that knows where all buckets are. */
  get router(): Router {
    return this.#router!
  }

  /** The writable instance of a replicaset. */
  master(set: string): Storage {
    return this.at(this.names.find((name) => name.startsWith(set) && !this.at(name).isReadonly)!)
  }

  newRouter(options: Partial<RouterOptions> = {}): Router {
    const router = createRouter({
      config: { bucketCount: this.bucketCount, identification: 'name', ...LOGIN, replicasets: this.replicasets },
      environment: {
        clock: this.clock,
        random: this.random,
        dial: (address) => this.#dial('router', address, this.#options.latencyMs ?? 0),
      },
      ...options,
    })
    this.#routers.push(router)
    return router
  }

  /** Starts everything, makes first instances masters, spreads the buckets, and waits until the router knows them. */
  async start(): Promise<this> {
    for (const storage of this.#storages.values()) {
      await this.wait(storage.open())
      storage.start()
    }
    await this.clock.advance(200)
    let first = 1
    for (const [i, { id }] of this.replicasets.entries()) {
      const storage = this.at(`${id}1`)
      await this.wait(storage.promote())
      this.#options.setUp?.(storage)
      const count = this.#options.spread[i]!
      if (count > 0) await this.wait(storage.call('vshard.storage.bucket_force_create', first, count))
      first += count
    }
    for (const name of this.names) if (this.at(name).isReadonly) this.#options.setUp?.(this.at(name))
    await this.clock.advance(500)
    this.#router = this.newRouter()
    await this.wait(this.#router.ready())
    return this
  }

  /** Runs the clock while `work` waits. */
  async wait<T>(work: PromiseLike<T>): Promise<T> {
    let isOver = false
    const over = (): void => {
      isOver = true
    }
    work.then(over, over)
    for (let i = 0; i < 20_000; i++) {
      await this.clock.settle()
      if (isOver) return work
      await this.clock.advance(10)
    }
    throw new Error('It did not end within 200 seconds of virtual time')
  }

  /** The error of what must fail. */
  async failure(work: PromiseLike<unknown>): Promise<unknown> {
    const outcome: Promise<unknown> = Promise.resolve(work).then(
      (value) => {
        throw new Error(`It did not fail: ${JSON.stringify(value)}`)
      },
      (error: unknown) => error,
    )
    return this.wait(outcome)
  }

  move(bucketId: number, from: string, to: string, timeout = 60_000): Promise<void> {
    return this.master(from).vshard.sendBucket(bucketId, to, { timeout })
  }

  /** References held now, by instance; those without any are left out. */
  get refs(): Readonly<Record<string, number>> {
    const held = this.names.map((name): [string, number] => [name, this.at(name).vshard.refs.list().length])
    return Object.fromEntries(held.filter(([, count]) => count > 0))
  }

  /** Ids of the buckets an instance has, of any status. */
  bucketsOf(name: string): readonly number[] {
    return this.at(name)
      .space('_bucket')
      .select()
      .map(([id]) => id as number)
  }

  /** Cuts an instance off: from the router, or from everybody. */
  cut(name: string, from: string | 'everybody' = 'router'): void {
    const others = from === 'everybody' ? ['router', ...this.names.filter((other) => other !== name)] : [from]
    for (const other of others) this.#cut.add(linkOf(name, other))
    for (const link of [...this.#links]) {
      if (!this.#cut.has(linkOf(link.from, link.to))) continue
      this.#links.delete(link)
      link.transport.destroy(new Error(`The link between ${link.from} and ${link.to} is cut`))
    }
  }

  mend(name: string): void {
    for (const link of [...this.#cut]) if (link.split('-').includes(name)) this.#cut.delete(link)
  }

  async close(): Promise<void> {
    for (const router of this.#routers) await this.wait(router.close({ timeout: 0 }))
    for (const storage of this.#storages.values()) await this.wait(storage.close({ graceMs: 0 }))
  }

  #create(set: ReplicasetConfig, name: string): void {
    const environment: Partial<Environment> = {
      clock: this.clock,
      random: this.random,
      dial: (address) => this.#dial(name, address, this.#options.peerLatencyMs ?? 0),
    }
    const number = set.instances.findIndex(({ id }) => id === name) + 1
    const peers = set.instances.flatMap((peer, i) =>
      i + 1 === number ? [] : [{ number: i + 1, uuid: peer.uuid!, address: { host: peer.id, port: PORT } }],
    )
    this.#storages.set(
      name,
      createStorage({
        name,
        uuid: set.instances[number - 1]!.uuid!,
        replicasetName: set.id,
        users: { [LOGIN.user]: { password: LOGIN.password, rights: 'super' } },
        replication: { number, peers, credential: LOGIN, quorum: this.#options.quorum ?? 1 },
        vshard: {
          bucketCount: this.bucketCount,
          identification: 'name',
          replicasets: this.replicasets,
          credential: LOGIN,
          rebalancerMode: 'off',
        },
        environment,
      }),
    )
  }

  #dial(from: string, address: Address, latencyMs: number): Promise<Transport> {
    const to = 'host' in address ? address.host : ''
    const target = this.#storages.get(to)
    if (target === undefined || this.#cut.has(linkOf(from, to)))
      return Promise.reject(new Error(`No link between ${from} and ${to}`))
    const direct = target.connect()
    const transport = latencyMs === 0 ? direct : new SlowTransport(direct, this.clock, latencyMs)
    this.#links.add({ from, to, transport })
    return Promise.resolve(transport)
  }
}

/** Everything takes its time, in both directions. */
class SlowTransport implements Transport {
  readonly peer: string
  readonly encrypted = false
  readonly #inner: Transport
  readonly #clock: VirtualClock
  readonly #latencyMs: number

  constructor(inner: Transport, clock: VirtualClock, latencyMs: number) {
    this.#inner = inner
    this.#clock = clock
    this.#latencyMs = latencyMs
    this.peer = inner.peer
  }

  get pendingBytes(): number {
    return this.#inner.pendingBytes
  }

  attach(sink: TransportSink): void {
    this.#inner.attach({
      data: (chunk) => this.#later(() => sink.data(chunk)),
      drain: () => this.#later(() => sink.drain()),
      end: () => this.#later(() => sink.end()),
      closed: (cause) => this.#later(() => sink.closed(cause)),
    })
  }

  write(chunks: readonly Uint8Array[]): boolean {
    this.#later(() => this.#inner.write(chunks))
    return true
  }

  pauseReading(): void {
    this.#inner.pauseReading()
  }

  resumeReading(): void {
    this.#inner.resumeReading()
  }

  end(): void {
    this.#later(() => this.#inner.end())
  }

  destroy(cause?: Error): void {
    this.#inner.destroy(cause)
  }

  #later(task: () => void): void {
    this.#clock.schedule(this.#latencyMs, task)
  }
}

function linkOf(a: string, b: string): string {
  return a < b ? `${a}-${b}` : `${b}-${a}`
}
