/*
 * A replicaset under a clock that moves when told, whose links are cut pair by pair and whose instances crash over disks that lose
 * what was not written: what a random history needs.
 */
import type { Transport } from '@orbweaver/connection'
import { VirtualClock } from '@orbweaver/connection/testing'
import { createStorage } from '../src/index.js'
import type { Storage } from '../src/index.js'
import { during } from './memory.js'
import { MemoryFiles } from './memory-files.js'

export interface WorldOptions {
  readonly size: number
  readonly quorum: number
  readonly random: () => number
  readonly isDurable?: boolean
  /** Stands between an instance and its peers. */
  readonly wrap?: (transport: Transport, clock: VirtualClock) => Transport
}

export class ReplicationWorld {
  readonly clock: VirtualClock = new VirtualClock()
  readonly numbers: readonly number[]
  readonly #options: WorldOptions
  readonly #storages = new Map<number, Storage>()
  readonly #disks = new Map<number, MemoryFiles>()
  readonly #cuts = new Set<string>()
  readonly #live = new Map<Transport, string>()

  constructor(options: WorldOptions) {
    this.#options = options
    this.numbers = Array.from({ length: options.size }, (_, i) => i + 1)
    for (const number of this.numbers) this.#disks.set(number, new MemoryFiles())
  }

  /** undefined while it is down. */
  find(number: number): Storage | undefined {
    return this.#storages.get(number)
  }

  at(number: number): Storage {
    const storage = this.#storages.get(number)
    if (storage === undefined) throw new Error(`Instance ${number} is down`)
    return storage
  }

  get up(): readonly Storage[] {
    return [...this.#storages.values()]
  }

  disk(number: number): MemoryFiles {
    return this.#disks.get(number)!
  }

  wait<T>(work: Promise<T>): Promise<T> {
    return during(this.clock, work)
  }

  async start(number: number): Promise<Storage> {
    const storage = this.#create(number)
    // Two rows that belong together.
    storage.define('write', (context, id) =>
      context.atomic(() => {
        context.space('s').insert([id])
        context.space('last').replace([Number(id) % 5, id])
      }),
    )
    await this.wait(storage.open())
    this.#storages.set(number, storage)
    storage.start()
    return storage
  }

  async startAll(): Promise<void> {
    for (const number of this.numbers) if (!this.#storages.has(number)) await this.start(number)
  }

  /** The process ends where it is; `start` finds what is on its disk. */
  async crash(number: number): Promise<void> {
    const storage = this.at(number)
    const left = this.disk(number).crashed()
    this.disk(number).gone()
    this.#disks.set(number, left)
    this.#storages.delete(number)
    this.#destroy((link) => link.split('-').includes(String(number)))
    await this.wait(storage.close({ graceMs: 0 }))
  }

  /** Its disk is lost too. */
  empty(number: number): void {
    this.#disks.set(number, new MemoryFiles())
  }

  /** Both directions, at once. */
  cut(a: number, b: number): void {
    this.#cuts.add(linkOf(a, b))
    this.#destroy((link) => link === linkOf(a, b))
  }

  /** Nothing new is connected; what is stays. */
  refuse(a: number, b: number): void {
    this.#cuts.add(linkOf(a, b))
  }

  isolate(number: number): void {
    for (const other of this.numbers) if (other !== number) this.cut(number, other)
  }

  heal(a: number, b: number): void {
    this.#cuts.delete(linkOf(a, b))
  }

  healAll(): void {
    this.#cuts.clear()
  }

  async close(): Promise<void> {
    for (const disk of this.#disks.values()) disk.gone()
    for (const storage of this.#storages.values()) await this.wait(storage.close({ graceMs: 0 }))
  }

  #destroy(isMeant: (link: string) => boolean): void {
    for (const [transport, link] of this.#live) {
      if (!isMeant(link)) continue
      this.#live.delete(transport)
      transport.destroy(new Error('The link is cut'))
    }
  }

  #create(number: number): Storage {
    const { quorum, random, isDurable = true } = this.#options
    const peers = this.numbers
      .filter((peer) => peer !== number)
      .map((peer) => ({ number: peer, uuid: uuidOf(peer), address: { connect: () => this.#connect(number, peer) } }))
    return createStorage({
      name: `i${number}`,
      uuid: uuidOf(number),
      users: { root: { password: 'r', rights: 'super' } },
      replication: { number, peers, quorum, quorumTimeoutMs: 1_000 },
      ...(isDurable ? { durability: 'full', dir: this.disk(number), snapshotRows: 40 } : {}),
      environment: { clock: this.clock, random },
    })
  }

  #connect(from: number, to: number): Transport {
    const link = linkOf(from, to)
    const peer = this.#storages.get(to)
    if (peer === undefined || this.#cuts.has(link)) throw new Error(`No link between ${from} and ${to}`)
    const transport = peer.connect({ user: 'root' })
    this.#live.set(transport, link)
    return this.#options.wrap?.(transport, this.clock) ?? transport
  }
}

export function uuidOf(number: number): string {
  return `aaaaaaaa-aaaa-4aaa-8aaa-${String(number).padStart(12, '0')}`
}

function linkOf(a: number, b: number): string {
  return a < b ? `${a}-${b}` : `${b}-${a}`
}
