/* Embedded storages in memory, under a clock that moves when told. */
import { createConnection } from '@orbweaver/connection'
import type { Connection, Environment } from '@orbweaver/connection'
import { VirtualClock } from '@orbweaver/connection/testing'
import type { Reply } from '@orbweaver/iproto'
import { createStorage } from '../src/index.js'
import type { JournalFiles, Storage, StorageOptions } from '../src/index.js'
import { promiseRequest, readPromiseAnswer } from '../src/replication/promise-request.js'
import type { PromiseAnswer } from '../src/replication/promise-request.js'

/** Runs `clock` while `work` waits. */
export async function during<T>(clock: VirtualClock, work: Promise<T>): Promise<T> {
  const ended: { value?: PromiseSettledResult<T> } = {}
  void Promise.allSettled([work]).then(([result]) => {
    ended.value = result
  })
  for (let i = 0; i < 20_000; i++) {
    await clock.settle()
    if (ended.value !== undefined) return work
    await clock.advance(10)
  }
  throw new Error('It did not end within 200 seconds of virtual time')
}

/** Asks an instance for a promise, as a candidate does. */
export async function askPromise(
  storage: Storage,
  environment: Partial<Environment>,
  [term, candidate]: readonly [term: number, candidate: number],
): Promise<PromiseAnswer> {
  const connection = createConnection({ uri: { connect: () => storage.connect({ user: 'root' }) }, environment })
  try {
    const reply = await new Promise<Reply>((resolve, reject) => {
      connection.send(promiseRequest(term, candidate), { deadline: Infinity }, { done: resolve, failed: reject })
    })
    return readPromiseAnswer(reply)
  } finally {
    connection.destroy()
  }
}

export interface Alone {
  readonly clock: VirtualClock
  readonly environment: Partial<Environment>
  readonly storage: Storage
  /** A connection of a user who may do everything. */
  connect(user?: string): Connection
  /** Runs the clock while `work` waits. */
  wait<T>(work: Promise<T>): Promise<T>
}

/** @param isStarted - false: the caller opens and starts it */
export function startAlone(
  options: Partial<StorageOptions> = {},
  { isStarted = true }: { isStarted?: boolean } = {},
): Alone {
  const clock = new VirtualClock()
  const environment = { clock, random: () => 0.5 }
  const storage = createStorage({
    name: 'alone',
    users: { root: { password: 'r', rights: 'super' } },
    ...options,
    environment,
  })
  if (isStarted) storage.start()
  return {
    clock,
    environment,
    storage,
    connect: (user = 'root') => createConnection({ uri: { connect: () => storage.connect({ user }) }, environment }),
    wait: (work) => during(clock, work),
  }
}

export interface ReplicasetOptions {
  readonly quorum?: number
  readonly quorumTimeoutMs?: number
  /** Directories by instance: durable instances, to be opened with `open`. */
  readonly dirs?: readonly JournalFiles[]
  readonly snapshotRows?: number
}

/** A replicaset in memory whose links can be cut. */
export class MemoryReplicaset {
  readonly clock: VirtualClock = new VirtualClock()
  readonly environment: Partial<Environment> = { clock: this.clock, random: () => 0.5 }
  readonly storages: Storage[]
  /** Numbers of instances nobody can reach. */
  readonly isolated: Set<number> = new Set<number>()
  readonly #restarted = new Map<number, Storage>()
  readonly #size: number
  readonly #options: ReplicasetOptions

  constructor(size: number, options: ReplicasetOptions = {}) {
    this.#size = size
    this.#options = options
    this.storages = Array.from({ length: size }, (_, i) => this.#create(i + 1, options.dirs?.[i]))
    if (options.dirs === undefined) for (const storage of this.storages) storage.start()
  }

  /** Opens and starts all of them; only where they have directories. */
  async open(): Promise<void> {
    for (const storage of this.storages) {
      await this.wait(storage.open())
      storage.start()
    }
  }

  /** Another process takes the place of an instance: over this directory, or with nothing. */
  async replace(number: number, dir?: JournalFiles): Promise<Storage> {
    await this.wait(this.at(number).close({ graceMs: 0 }))
    const next = this.#create(number, dir)
    await this.wait(next.open())
    this.#restarted.set(number, next)
    next.start()
    return next
  }

  /** By its number, from 1. */
  at(number: number): Storage {
    return this.#restarted.get(number) ?? this.storages[number - 1]!
  }

  wait<T>(work: Promise<T>): Promise<T> {
    return during(this.clock, work)
  }

  connect(number: number): Connection {
    return createConnection({
      uri: { connect: () => this.at(number).connect({ user: 'root' }) },
      environment: this.environment,
    })
  }

  /** Cuts all links of an instance to its peers, and keeps them cut. */
  async isolate(number: number): Promise<void> {
    this.isolated.add(number)
    await this.clock.advance(7_000) // links notice by silence
  }

  async rejoin(number: number): Promise<void> {
    this.isolated.delete(number)
    await this.clock.advance(3_000)
  }

  async close(): Promise<void> {
    for (const storage of [...this.storages, ...this.#restarted.values()])
      await this.wait(storage.close({ graceMs: 0 }))
  }

  #create(number: number, dir: JournalFiles | undefined): Storage {
    const { quorum, quorumTimeoutMs, snapshotRows } = this.#options
    const peers = Array.from({ length: this.#size }, (_, i) => i + 1)
      .filter((peer) => peer !== number)
      .map((peer) => ({
        number: peer,
        uuid: uuid(peer),
        address: {
          connect: () => {
            if (this.isolated.has(number) || this.isolated.has(peer))
              throw new Error(`No link between ${number} and ${peer}`)
            const transport = this.at(peer).connect({ user: 'root' })
            this.#cutWhenIsolated(transport, number, peer)
            return transport
          },
        },
      }))
    return createStorage({
      name: `i${number}`,
      uuid: uuid(number),
      users: { root: { password: 'r', rights: 'super' } },
      replication: {
        number,
        peers,
        ...(quorum === undefined ? {} : { quorum }),
        ...(quorumTimeoutMs === undefined ? {} : { quorumTimeoutMs }),
      },
      ...(dir === undefined ? {} : { durability: 'full', dir }),
      ...(snapshotRows === undefined ? {} : { snapshotRows }),
      environment: this.environment,
    })
  }

  #cutWhenIsolated(transport: { destroy(cause?: Error): void }, a: number, b: number): void {
    const look = (): void => {
      if (this.isolated.has(a) || this.isolated.has(b)) transport.destroy(new Error('The link is cut'))
      else this.clock.schedule(50, look)
    }
    this.clock.schedule(50, look)
  }
}

function uuid(number: number): string {
  return `aaaaaaaa-aaaa-4aaa-8aaa-${String(number).padStart(12, '0')}`
}
