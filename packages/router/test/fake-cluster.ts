/* Storages of a few lines each, under virtual time: buckets with a status, and answers a test may take over. */
import { Key, RequestType } from '@orbweaver/iproto'
import { ScriptedPeer, uuidOf, VirtualClock } from '@orbweaver/connection/testing'
import type { PeerRequest } from '@orbweaver/connection/testing'
import type { Address, Transport } from '@orbweaver/connection'
import { VshardError } from '@orbweaver/vshard'
import type { ClusterConfig, ReplicasetConfig } from '@orbweaver/vshard'
import { createRouter } from '../src/index.js'
import type { Router, RouterOptions } from '../src/index.js'

export interface FakeRecord {
  status: string
  destination?: string
}

/** What reached a storage after its login, the polls for its role left out. */
export interface Seen {
  readonly who: string
  readonly set: string
  readonly call: string
  readonly args: readonly unknown[]
  readonly atMs: number
}

/** It never answers. */
export const SILENT = Symbol('silent')
/** A box error, as a raised one arrives. */
export class Raised {
  readonly code: number
  readonly message: string
  constructor(code: number, message: string) {
    this.code = code
    this.message = message
  }
}
export type FakeAnswer = readonly unknown[] | typeof SILENT | Raised | undefined

const LOGIN = { user: 'storage', password: 'secret' } as const
const PAGE = 1_000

export class FakeCluster {
  readonly clock = new VirtualClock()
  readonly config: ClusterConfig
  readonly seen: Seen[] = []
  /** By instance: buckets of a storage. */
  readonly records = new Map<string, Map<number, FakeRecord>>()
  readonly peers = new Map<string, ScriptedPeer>()
  /** Answers instead of the storage; undefined: the storage answers. */
  answer: (seen: Seen) => FakeAnswer = () => undefined
  /** One way. */
  latencyMs = 0
  /** Dials made so far, by instance. */
  readonly dials = new Map<string, number>()
  readonly #down = new Set<string>()
  readonly #setOf = new Map<string, string>()
  readonly #routers: Router[] = []
  #random = 1

  /** @param sets - instances by the id of their replicaset; the first one is the master */
  constructor(
    sets: Readonly<Record<string, readonly string[]>>,
    bucketCount: number,
    config: Partial<ClusterConfig> = {},
  ) {
    this.config = {
      bucketCount,
      identification: 'name',
      ...LOGIN,
      replicasets: Object.entries(sets).map(([id, names]) => this.define(id, names)),
      ...config,
    }
  }

  /** A replicaset with its storages, not part of the configuration yet. */
  define(id: string, names: readonly string[]): ReplicasetConfig {
    for (const [i, name] of names.entries()) {
      this.#setOf.set(name, id)
      if (this.peers.has(name)) continue
      this.records.set(name, new Map())
      this.peers.set(name, this.#peer(name))
      this.setMaster(name, i === 0)
    }
    return {
      id,
      name: id,
      master: 'auto',
      weight: 1,
      instances: names.map((name) => ({ id: name, name, uuid: uuidOf(name), uri: `${name}:3301` })),
    }
  }

  /** Buckets `from` to `to` on all instances of a replicaset; a status of undefined takes them away. */
  put(set: string, from: number, to: number, status: string | undefined, destination?: string): void {
    for (const [name, ownSet] of this.#setOf) if (ownSet === set) this.putOn(name, from, to, status, destination)
  }

  putOn(name: string, from: number, to: number, status: string | undefined, destination?: string): void {
    const records = this.records.get(name)!
    for (let id = from; id <= to; id++) {
      if (status === undefined) records.delete(id)
      else records.set(id, destination === undefined ? { status } : { status, destination })
    }
  }

  /** A bucket is elsewhere from now on, and the storage it left knows where to. */
  move(bucketId: number, from: string, to: string): void {
    this.put(from, bucketId, bucketId, 'sent', to)
    this.put(to, bucketId, bucketId, 'active')
  }

  setMaster(name: string, isMaster: boolean): void {
    const peer = this.peers.get(name)!
    peer.broadcast('box.election', { term: 1, is_ro: !isMaster, role: isMaster ? 'leader' : 'follower', leader: 1 })
    peer.broadcast('box.status', { is_ro: !isMaster, is_ro_cfg: !isMaster, status: 'running' })
  }

  stop(name: string): void {
    this.#down.add(name)
    this.peers.get(name)!.cut()
  }

  restart(name: string): void {
    this.#down.delete(name)
  }

  /** A number in [0, 1), the same ones in every run. */
  random = (): number => {
    this.#random = (this.#random * 48_271) % 2_147_483_647
    return this.#random / 2_147_483_647
  }

  router(options: Partial<RouterOptions> = {}): Router {
    const router = createRouter({
      config: this.config,
      discoveryMode: 'off',
      environment: { clock: this.clock, random: this.random, dial: (address) => this.#dial(address) },
      ...options,
    })
    this.#routers.push(router)
    return router
  }

  /** A router whose connections are up, and who knows where all buckets are. */
  async readyRouter(options: Partial<RouterOptions> = {}): Promise<Router> {
    const router = this.router({ discoveryMode: 'once', ...options })
    await this.clock.advance(200)
    await this.clock.run(router.ready())
    this.seen.length = 0
    return router
  }

  /** Times the storages were asked, by function. */
  count(call: string, who?: string): number {
    return this.seen.filter((seen) => seen.call === call && (who === undefined || seen.who === who || seen.set === who))
      .length
  }

  async close(): Promise<void> {
    const closing = Promise.all(this.#routers.map((router) => router.close({ timeout: 0 })))
    await this.clock.advance(1_000)
    await closing
  }

  async #dial(address: Address): Promise<Transport> {
    const name = 'host' in address ? address.host : ''
    this.dials.set(name, (this.dials.get(name) ?? 0) + 1)
    const peer = this.peers.get(name)
    if (peer === undefined || this.#down.has(name)) throw new Error(`${name} is down`)
    return (peer.address as { connect(): Transport }).connect()
  }

  #peer(name: string): ScriptedPeer {
    const peer = new ScriptedPeer({
      clock: this.clock,
      uuid: uuidOf(name),
      version: '3.2.1',
      users: { [LOGIN.user]: LOGIN.password },
    })
    peer.values.set('box.id', { instance_name: name })
    peer.handle(RequestType.watchOnce, (request) =>
      request.reply([peer.values.get(request.body.requireText(Key.eventKey))]),
    )
    peer.handle(RequestType.call, (request) => this.#receive(name, request))
    return peer
  }

  #receive(who: string, request: PeerRequest): void {
    if (this.latencyMs === 0) this.#serve(who, request)
    else this.clock.schedule(this.latencyMs, () => this.#serve(who, request))
  }

  #serve(who: string, request: PeerRequest): void {
    const call = request.body.requireText(Key.functionName)
    const args = request.body.array(Key.tuple) ?? []
    const isMaster = !(this.peers.get(who)!.values.get('box.status') as { is_ro: boolean }).is_ro
    if (call === 'vshard.storage._call' && args[0] === 'info') {
      request.reply([{ is_master: isMaster, name: who }])
      return
    }
    const seen: Seen = {
      who,
      set: this.#setOf.get(who)!,
      call: call.replace('vshard.storage.', ''),
      args,
      atMs: this.clock.now(),
    }
    this.seen.push(seen)
    const answer = this.answer(seen) ?? this.#own(seen, isMaster)
    if (answer === SILENT || answer === undefined) return
    const send = (): void =>
      answer instanceof Raised ? request.error(answer.code, answer.message) : request.reply(answer)
    if (this.latencyMs === 0) send()
    else this.clock.schedule(this.latencyMs, send)
  }

  #own({ who, call, args, set }: Seen, isMaster: boolean): FakeAnswer {
    const records = this.records.get(who)!
    switch (call) {
      case 'call': {
        const [bucketId, mode, name, list] = args as [number, string, string, unknown[]]
        const refusal = refusalOf(bucketId, mode, records.get(bucketId))
        if (refusal !== undefined) return [null, refusal.toWire()]
        if (mode === 'write' && !isMaster)
          return [null, VshardError.of('NON_MASTER', { replica: who, replicaset: set }).toWire()]
        return name === 'who' ? [true, who] : [true, ...list]
      }
      case 'bucket_stat': {
        const [bucketId] = args as [number]
        const record = records.get(bucketId)
        if (record === undefined) return [null, refusalOf(bucketId, 'read', undefined)!.toWire()]
        const refusal = refusalOf(bucketId, 'read', record)
        return [{ id: bucketId, ...record }, ...(refusal === undefined ? [] : [refusal.toWire()])]
      }
      case 'buckets_discovery': {
        const [{ from }] = args as [{ from: number }]
        const ids = [...records.keys()].filter((id) => id >= from).toSorted((a, b) => a - b)
        const page = ids.slice(0, PAGE)
        const buckets = page.filter((id) => ['active', 'pinned'].includes(records.get(id)!.status))
        return [page.length === PAGE ? { buckets, next_from: page.at(-1)! + 1 } : { buckets }]
      }
      case 'buckets_count':
        return [records.size]
      case 'bucket_force_create': {
        const [first, count = 1] = args as [number, number?]
        this.put(set, first, first + count - 1, 'active')
        return [true]
      }
      case 'sync':
        return [true]
      default:
        return new Raised(33, `Procedure '${call}' is not defined`)
    }
  }
}

/** vshard.md 4: what a storage without counters says, by status and mode. */
function refusalOf(bucketId: number, mode: string, record: FakeRecord | undefined): VshardError | undefined {
  const destination = record?.destination
  const fields = { bucket_id: bucketId, destination }
  if (record === undefined) return VshardError.of('WRONG_BUCKET', { ...fields, reason: 'Not found' })
  const { status } = record
  if (status === 'active' || status === 'pinned') return undefined
  if (status === 'locked') return VshardError.of('BUCKET_IS_LOCKED', { bucket_id: bucketId })
  if (status === 'sent' || status === 'garbage' || (status === 'receiving' && mode === 'read'))
    return VshardError.of('WRONG_BUCKET', { ...fields, reason: `${mode} is prohibited` })
  if (mode === 'read') return undefined
  return VshardError.of('TRANSFER_IS_IN_PROGRESS', fields)
}

/** The error of what must fail. */
export function failure(work: Promise<unknown>): Promise<unknown> {
  return work.then(
    (value) => {
      throw new Error(`It did not fail: ${JSON.stringify(value)}`)
    },
    (error: unknown) => error,
  )
}
