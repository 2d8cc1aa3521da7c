/** A replicaset of scripted instances under virtual time, for tests that are timelines. */
import type { Address, Clock, Dial, PendingRequest, ReplySink, Transport, TransportSink } from '@orbweaver/connection'
import { type PeerRequest, ScriptedPeer, uuidOf, VirtualClock } from '@orbweaver/connection/testing'
import {
  insertRequest,
  Key,
  type OrbweaverError,
  type Reply,
  type Request,
  type RequestClass,
  RequestType,
  Uuid,
} from '@orbweaver/iproto'
import { onTestFinished } from 'vitest'
import {
  type Attempt,
  type CallMode,
  createReplicaset,
  type InstanceHandle,
  type ReplicasetHandle,
  type ReplicasetOptions,
} from '../src/index.js'

/** What a scripted instance does with a call of a function. */
export type TestFunction = (args: readonly unknown[], request: PeerRequest, instance: TestInstance) => void

/** One scripted Tarantool: it executes inserts while it is writable, and says so by events or polls. */
export class TestInstance {
  readonly id: string
  readonly uuid: string
  readonly peer: ScriptedPeer
  /** First fields of the tuples it inserted, in order. */
  readonly executed: number[] = []
  readonly functions = new Map<string, TestFunction>()
  /** Fields of the read-only error. */
  refusalFields: ReadonlyMap<string, unknown> | undefined
  isRo = true
  status = 'running'
  /** undefined: says nothing of elections (`{}`). */
  term: number | undefined
  /** Answers every request with this error instead. */
  loading: { readonly code: number; readonly message: string } | undefined
  /** How long an insert takes. */
  workMs = 0
  isFrozen = false
  readonly #clock: Clock
  #waiting: (() => void)[] = []

  constructor(
    id: string,
    clock: Clock,
    options: { readonly version?: string; readonly uuid?: string; readonly replicasetUuid?: string } = {},
  ) {
    this.id = id
    this.#clock = clock
    this.uuid = options.uuid ?? uuidOf(id)
    this.peer = new ScriptedPeer({ clock, uuid: this.uuid, version: options.version ?? '3.2.1' })
    this.peer.values.set('box.status', {})
    this.peer.values.set('box.election', {})
    this.peer.values.set('box.id', {
      id: id.charCodeAt(0) - 96,
      instance_uuid: Uuid.from(this.uuid),
      replicaset_uuid: Uuid.from(options.replicasetUuid ?? uuidOf('replicaset')),
    })
    for (const type of [RequestType.insert, RequestType.replace]) this.#on(type, (request) => this.#insert(request))
    this.#on(RequestType.select, (request) => request.reply([[this.id]]))
    this.#on(RequestType.call, (request) => this.#call(request))
    this.#on(RequestType.ping, (request) => request.ok())
    this.#on(RequestType.watchOnce, (request) => {
      const key = request.body.requireText(Key.eventKey)
      request.reply(this.peer.values.has(key) ? [this.peer.values.get(key)] : [])
    })
  }

  /** Becomes writable and says so; without elections the term is 1, and a replica has none until then. */
  rw(term?: number): void {
    this.isRo = false
    this.term = term ?? this.term ?? 1
    this.say()
  }

  ro(term?: number): void {
    this.isRo = true
    this.term = term ?? this.term
    this.say()
  }

  /** Broadcasts what it is: the status first, as Tarantool does. */
  say(): void {
    this.sayStatus()
    this.sayElection()
  }

  sayStatus(): void {
    this.peer.broadcast('box.status', { is_ro: this.isRo, is_ro_cfg: this.isRo, status: this.status })
  }

  sayElection(): void {
    if (this.term === undefined) this.peer.broadcast('box.election', {})
    else
      this.peer.broadcast('box.election', {
        term: this.term,
        is_ro: this.isRo,
        role: this.isRo ? 'follower' : 'leader',
        leader: 0,
      })
  }

  /** Dies: connections break and new ones are refused. */
  kill(): void {
    this.peer.refusal = Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' })
    this.peer.cut()
    this.#waiting = []
    this.isFrozen = false
    this.peer.silentFrom = undefined
  }

  /** Comes back before `box.cfg`: it listens and knows nothing. */
  revive(): void {
    this.peer.refusal = undefined
    this.peer.values.set('box.status', {})
    this.peer.values.set('box.election', {})
    this.peer.values.delete('box.shutdown')
  }

  shutdown(): void {
    this.peer.broadcast('box.shutdown', true)
  }

  /** As a stopped process: nothing is read or answered, connections stay. */
  freeze(): void {
    this.isFrozen = true
    this.peer.silentFrom = 'greeting'
  }

  /** What was waiting in its sockets is worked on first. */
  thaw(): void {
    this.isFrozen = false
    this.peer.silentFrom = undefined
    const waiting = this.#waiting
    this.#waiting = []
    for (const work of waiting) work()
  }

  #on(type: number, handler: (request: PeerRequest) => void): void {
    this.peer.handle(type, (request) => {
      if (this.isFrozen) this.#waiting.push(() => this.#serve(request, handler))
      else this.#serve(request, handler)
    })
  }

  #serve(request: PeerRequest, handler: (request: PeerRequest) => void): void {
    if (this.loading !== undefined && request.type !== RequestType.ping && request.type !== RequestType.watchOnce)
      request.error(this.loading.code, this.loading.message)
    else handler(request)
  }

  #insert(request: PeerRequest): void {
    const work = (): void => {
      if (!request.session.open) return
      if (this.isRo) {
        request.error(7, `Can't modify data on a read-only instance`, this.refusalFields)
        return
      }
      const [number] = request.body.requireArray(Key.tuple)
      this.executed.push(number as number)
      request.reply([[number]])
    }
    if (this.workMs === 0) work()
    else this.#clock.schedule(this.workMs, work)
  }

  #call(request: PeerRequest): void {
    const name = request.body.requireText(Key.functionName)
    const args = request.body.array(Key.tuple) ?? []
    const own = this.functions.get(name)
    if (own !== undefined) own(args, request, this)
    else if (name === 'box.info') request.reply([this.boxInfo()])
    else if (name === 'who') request.reply([this.id])
    else request.error(33, `Procedure '${name}' is not defined`)
  }

  boxInfo(): Record<string, unknown> {
    return {
      ro: this.isRo,
      status: this.status,
      uuid: this.uuid,
      cluster: { uuid: uuidOf('replicaset') },
      ...(this.term === undefined ? {} : { election: { term: this.term } }),
    }
  }
}

interface SceneView {
  checkTarget(id: string): void
  readonly clock: Clock
  readonly replicaset: ReplicasetHandle
}

/** A write of a test: an insert of its number. */
export class TestWrite implements Attempt, ReplySink {
  readonly number: number
  readonly deadline: number
  readonly bytes: number = 100
  readonly requestClass: RequestClass
  readonly idempotent: boolean
  readonly orderKey: string | undefined
  readonly signal: AbortSignal | undefined
  readonly inStream: boolean
  readonly mode: CallMode
  readonly startMs: number
  /** Who it was sent to, each time. */
  readonly sentTo: string[] = []
  readonly sentMs: number[] = []
  outcome: Reply | OrbweaverError | undefined
  /** How often it was told its end. */
  ends = 0
  endMs = Number.NaN
  elsewhere = false
  readonly #scene: SceneView
  readonly #request: Request
  #token = 0
  #pending: PendingRequest | undefined

  constructor(scene: SceneView, number: number, options: WriteOptions) {
    this.#scene = scene
    this.number = number
    this.startMs = scene.clock.now()
    this.deadline = this.startMs + (options.timeout ?? 60_000)
    this.#request = options.request ?? insertRequest(512, [number])
    this.requestClass = this.#request.requestClass
    this.idempotent = options.idempotent ?? false
    this.orderKey = options.orderKey
    this.signal = options.signal
    this.inStream = options.inStream ?? false
    this.mode = options.mode ?? 'rw'
  }

  /** '' when it succeeded, else the code of its error (and of the box error in it); undefined: still under way. */
  get result(): string | undefined {
    const { outcome } = this
    if (outcome === undefined) return undefined
    if (!(outcome instanceof Error)) return ''
    return 'boxCode' in outcome ? `${outcome.code} ${String(outcome.boxCode)}` : outcome.code
  }

  get error(): OrbweaverError {
    if (!(this.outcome instanceof Error)) throw new Error(`Write ${String(this.number)} has not failed`)
    return this.outcome
  }

  get waitMs(): number {
    return this.endMs - this.startMs
  }

  run(instance: InstanceHandle, epoch: number): 'sent' | 'elsewhere' {
    if (this.elsewhere) return 'elsewhere'
    this.#token = epoch
    if (this.mode === 'rw') this.#scene.checkTarget(instance.id)
    this.sentTo.push(instance.id)
    this.sentMs.push(this.#scene.clock.now())
    const { deadline, signal } = this
    this.#pending = instance.send(this.#request, signal === undefined ? { deadline } : { deadline, signal }, this)
    return 'sent'
  }

  giveUp(error: OrbweaverError): void {
    this.#end(error)
  }

  done(reply: Reply): void {
    if (!this.#scene.replicaset.settle(this, this.#token, reply)) this.#end(reply)
  }

  failed(error: OrbweaverError): void {
    if (!this.#scene.replicaset.settle(this, this.#token, error)) this.#end(error)
  }

  get pending(): PendingRequest | undefined {
    return this.#pending
  }

  #end(outcome: Reply | OrbweaverError): void {
    this.outcome = outcome
    this.ends += 1
    this.endMs = this.#scene.clock.now()
  }
}

export interface WriteOptions {
  readonly timeout?: number
  readonly request?: Request
  readonly idempotent?: boolean
  readonly orderKey?: string
  readonly signal?: AbortSignal
  readonly inStream?: boolean
  readonly mode?: CallMode
}

export interface SceneOptions<C extends SceneClock = VirtualClock> extends Partial<
  Omit<ReplicasetOptions, 'definition' | 'environment'>
> {
  readonly ids?: readonly string[]
  /** Servers that have no events (2.6). */
  readonly old?: readonly string[]
  readonly latencyMs?: number
  readonly clock?: C
  readonly name?: string
  readonly master?: string
  readonly random?: () => number
  readonly zones?: Readonly<Record<string, string | number>>
  readonly weights?: Readonly<Record<string, number>>
  /** Destroyed by the test itself, before its end: a test of thousands of scenes must not keep them. Default false. */
  readonly isShort?: boolean
}

/** What a scene asks of its clock beside being one. */
export interface SceneClock extends Clock {
  settle(): Promise<void>
  advance(ms: number): Promise<void>
}

export class Scene<C extends SceneClock = VirtualClock> {
  readonly clock: C
  readonly instances: Readonly<Record<string, TestInstance>>
  readonly replicaset: ReplicasetHandle
  readonly writes: TestWrite[] = []
  readonly events: string[] = []
  /** Addresses dialled so far. */
  dials = 0
  /** Writes sent where it was known that they must not go. */
  readonly #wrongTargets: string[] = []
  readonly #isStatic: boolean
  #cancelWriter: (() => void) | undefined

  constructor(options: SceneOptions<C> = {}) {
    const {
      ids = ['a', 'b', 'c'],
      old = [],
      latencyMs = 1,
      clock = new VirtualClock() as unknown as C,
      name = 'A',
      master,
      random,
      zones,
      weights,
      isShort = false,
      ...rest
    } = options
    this.clock = clock
    this.#isStatic = master !== undefined
    const dial: Dial = async (address: Address) => {
      this.dials += 1
      if (!('connect' in address)) throw new Error('Only scripted peers are dialled here')
      return delayed(address.connect(), clock, latencyMs)
    }
    this.instances = Object.fromEntries(
      ids.map((id) => [id, new TestInstance(id, clock, { version: old.includes(id) ? '2.6.0' : '3.2.1' })]),
    )
    this.replicaset = createReplicaset({
      definition: {
        id: name,
        instances: ids.map((id) => ({
          id,
          uri: this.at(id).peer.address,
          ...(zones?.[id] === undefined ? {} : { zone: zones[id] }),
          ...(weights?.[id] === undefined ? {} : { weight: weights[id] }),
        })),
        ...(master === undefined ? {} : { master }),
      },
      environment: { clock, dial, random: random ?? (() => 0.5) },
      ...rest,
    })
    this.replicaset.on('master', ({ master: id }) => this.events.push(`${String(clock.now())} master ${id ?? '-'}`))
    this.replicaset.on('window', ({ why, reason }) =>
      this.events.push(`${String(clock.now())} window ${why ?? `opened ${reason}`}`),
    )
    if (isShort) return
    onTestFinished(() => {
      this.#cancelWriter?.()
      this.replicaset.destroy()
    })
  }

  at(id: string): TestInstance {
    const instance = this.instances[id]
    if (instance === undefined) throw new Error(`There is no instance ${id}`)
    return instance
  }

  write(options: WriteOptions = {}): TestWrite {
    const write = new TestWrite(this, this.writes.length + 1, options)
    this.writes.push(write)
    this.replicaset.dispatch(write, write.mode)
    return write
  }

  /** Writes at this pace until told otherwise, the first one pace from now. */
  writeEvery(ms: number, options: WriteOptions = {}): void {
    this.#cancelWriter = this.clock.schedule(ms, () => {
      this.write(options)
      this.writeEvery(ms, options)
    })
  }

  stopWriting(): void {
    this.#cancelWriter?.()
  }

  /** Does things at their instants, given from the start of the virtual clock. */
  async play(timeline: Readonly<Record<number, () => void>>): Promise<void> {
    for (const [at, act] of Object.entries(timeline)) {
      await this.clock.advance(Number(at) - this.clock.now())
      act()
    }
    await this.clock.settle()
  }

  /** Until this instant. */
  async until(ms: number): Promise<void> {
    await this.clock.advance(ms - this.clock.now())
  }

  checkTarget(id: string): void {
    const target = this.replicaset.info().instances.find((instance) => instance.id === id)
    if (!this.#isStatic && (target === undefined || target.reason !== undefined))
      this.#wrongTargets.push(`a write went to ${id}, which is ${target?.reason ?? 'no member'}`)
  }

  /** Every write is settled once, nothing was executed twice, no slot is left: after each timeline. */
  get faults(): string[] {
    const faults: string[] = [...this.#wrongTargets]
    for (const write of this.writes) {
      if (write.ends !== 1) faults.push(`write ${String(write.number)} was settled ${String(write.ends)} times`)
      if (write.endMs > write.deadline + 50) faults.push(`write ${String(write.number)} ended after its deadline`)
    }
    const repeatable = new Set(this.writes.filter(({ idempotent }) => idempotent).map(({ number }) => number))
    const all = Object.values(this.instances)
      .flatMap(({ executed }) => executed)
      .filter((number) => !repeatable.has(number))
    if (new Set(all).size !== all.length) faults.push('something was executed twice')
    const { buffered } = this.replicaset.stats()
    if (buffered.now !== 0 || buffered.bytes !== 0 || buffered.draining !== 0)
      faults.push(`slots are left: ${JSON.stringify(buffered)}`)
    if (buffered.entered !== buffered.now + buffered.drained + buffered.expired + buffered.evicted + buffered.cancelled)
      faults.push('the counters of the buffer do not add up')
    return faults
  }

  /** The results of all writes that did not succeed. */
  get failures(): (string | undefined)[] {
    return this.writes.map(({ result }) => result).filter((result) => result !== '')
  }

  get longestWaitMs(): number {
    return Math.max(...this.writes.map(({ waitMs }) => waitMs))
  }

  get windows(): number {
    return Object.values(this.replicaset.stats().windows).reduce((sum, count) => sum + count, 0)
  }
}

/** A transport whose bytes take time in both directions. */
function delayed(inner: Transport, clock: Clock, ms: number): Transport {
  let isClosed = false
  const later = (task: () => void): void => void clock.schedule(ms, task)
  return {
    attach(sink: TransportSink) {
      inner.attach({
        data: (chunk) => later(() => isClosed || sink.data(chunk)),
        drain: () => later(() => isClosed || sink.drain()),
        end: () => later(() => isClosed || sink.end()),
        closed: (cause) =>
          later(() => {
            isClosed = true
            sink.closed(cause)
          }),
      })
    },
    write(chunks) {
      later(() => inner.write(chunks))
      return true
    },
    get pendingBytes() {
      return inner.pendingBytes
    },
    pauseReading: () => inner.pauseReading(),
    resumeReading: () => inner.resumeReading(),
    end: () => later(() => inner.end()),
    destroy: (cause) => {
      inner.destroy(cause)
    },
    peer: inner.peer,
    encrypted: inner.encrypted,
  }
}
