import { randomBytes } from 'node:crypto'
import { parseListenAddress, resolveEnvironment, transportPair } from '@orbweaver/connection'
import type { Address, Environment, Transport } from '@orbweaver/connection'
import {
  type BoxError,
  ConfigError,
  decodeValue,
  encodeValue,
  Feature,
  InvalidArgumentError,
  optionRule,
  shownValue,
  Uuid,
} from '@orbweaver/iproto'
import { createServer, createWatchHub, standardFront } from '@orbweaver/server'
import type { ClientSession, InboundFrame, Server, SessionHandler, WatchHub } from '@orbweaver/server'
import { userProblems, validateStorageOptions } from './config.js'
import type { StorageOptions } from './config.js'
import { Dispatch } from './dispatch.js'
import type { DispatchParts } from './dispatch.js'
import { Engine } from './engine/engine.js'
import { diskFiles } from './journal/disk.js'
import type { JournalInfo, JournalOptions } from './journal/journal.js'
import { buildSpace } from './engine/index-builder.js'
import type { SpaceOptions } from './engine/index-builder.js'
import { indexTuple, spaceTuple, SYSTEM_SPACE } from './engine/schema.js'
import type { Transaction } from './engine/transaction.js'
import { boxErrors } from './errors.js'
import { CallContext, functionError } from './function-context.js'
import type { FunctionContext, SpaceHandle } from './function-context.js'
import { resultList } from './functions.js'
import type { StoredFunction } from './functions.js'
import { Hooks } from './hooks.js'
import type { BeforeEvents, BeforeListener } from './hooks.js'
import { tell } from './listeners.js'
import { assertEventKey, assertForeignEvent, OwnEvents } from './own-events.js'
import { REPLICATION_RIGHT } from './replication/relays.js'
import { Replication } from './replication/replication.js'
import type { LinkInfo } from './replication/applier.js'
import { validateSpaceOptions } from './space-options.js'
import { Users } from './users.js'
import type { UserOptions } from './users.js'
import type { VshardIdentity } from './vshard/bucket-refs.js'
import { BUCKET_SPACE } from './vshard/buckets.js'
import { VshardSide } from './vshard/vshard-storage.js'
import type { VshardStorage } from './vshard/vshard-storage.js'

/** An instance as its operator sees it. */
export interface StorageInfo {
  readonly name: string
  readonly uuid: string
  readonly status: 'running' | 'loading'
  readonly isReadonly: boolean
  readonly term: number
  /** uuid of the master as far as it is known. */
  readonly leader: string | undefined
  readonly vclock: ReadonlyMap<number, number>
  /** Where the data on disk stand; undefined without durability. */
  readonly journal: JournalInfo | undefined
  /** Links to the other instances, by their numbers. */
  readonly links: ReadonlyMap<number, LinkInfo>
  readonly sessions: number
  readonly buckets: number
  readonly storageRefs: number
}

/** An embedded storage: memory, the wire protocol of Tarantool, and the storage side of vshard. For development and tests. */
export interface Storage {
  readonly name: string
  readonly uuid: string
  /** Accepts clients; may be called for several addresses. @returns the address in use */
  listen(address: Address | string): Promise<Address>
  /**
   * With `durability: 'full'`: takes the directory and reads back what is in it; needed before anything else, and harmless
   * without. Whoever was the master of a replicaset must be promoted again: another one may have taken over meanwhile.
   * @throws JournalError when the directory is in use, damaged, another instance's, or cannot be written
   */
  open(): Promise<void>
  /** Connects to the other instances of the replicaset. Call it when they can be answered: behind `open` and `listen`. */
  start(): void
  /** Resolves when everything written until now is as safe as this storage makes it: on disk, and on its quorum. */
  committed(): Promise<void>
  /** Writes a snapshot, which makes the journal so far needless. It happens by itself; nothing without durability. */
  snapshot(): Promise<void>
  /** The client's end of a connection without a socket. With `user` it is logged in already: same process, same trust. */
  connect(options?: { user?: string }): Transport
  /**
   * Makes a space here and, by replication, everywhere.
   * @throws ConfigError naming all that is wrong with the definition; BoxError 7 on a replica, 3 when it exists
   */
  createSpace(name: string, options: SpaceOptions): void
  /** Removes the contents of a space. @throws BoxError 36 */
  truncateSpace(name: string): void
  /** Removes a space with its contents. @throws BoxError 36 */
  dropSpace(name: string): void
  /** A space as a stored function sees it. */
  space<T extends readonly unknown[] = unknown[]>(name: string): SpaceHandle<T>
  /** Makes a function callable by name; each instance needs its own. @throws InvalidArgumentError */
  define(name: string, run: StoredFunction): void
  /** Calls a function of this instance as its administrator. */
  call(name: string, ...args: unknown[]): Promise<readonly unknown[]>
  /**
   * Adds a user, or replaces it: its password and its rights. Sessions keep their login and have the new rights at once.
   * @throws ConfigError
   */
  setUser(name: string, options: UserOptions): void
  /**
   * Removes a user: its sessions may do nothing any more, and nobody logs in by its name. `guest` stays, without rights.
   * @returns whether there was one
   */
  removeUser(name: string): boolean
  /**
   * What this storage keeps of a user's password, sha1(sha1(password)): for a proxy in this process, which checks logins with it.
   * undefined: no such user, or one without a password.
   */
  hash2(user: string): Uint8Array | undefined
  /**
   * Sets an event's value (undefined: none) and tells everybody who watches it.
   * @throws InvalidArgumentError for a key that begins with `box.`: those are the storage's own, as in Tarantool
   */
  broadcast(key: string, value: unknown): void
  /**
   * Watches an event from within this process, as a client does over the wire: `onValue` gets the value of the moment soon
   * (undefined when there is none), and the newest one after each change. What it throws is told on `orbweaver:log`.
   * @returns ends it
   */
  watch(key: string, onValue: (value: unknown) => unknown): () => void
  /**
   * Calls `listener` before a bucket moves away, before `demote` gives the role up, or before `close` ends the storage. Listeners
   * may be async; they run together, and the storage waits for them, for `hookTimeoutMs` at the most. Then their signal fires
   * and the storage goes on. A listener that throws refuses a move; nothing refuses a demotion or the end. What is thrown, and
   * who takes too long, is told on `orbweaver:log`.
   * @returns ends it
   * @throws InvalidArgumentError
   */
  before<K extends keyof BeforeEvents>(what: K, listener: BeforeListener<K>): () => void
  readonly isReadonly: boolean
  readonly term: number
  /** Becomes the master of its replicaset. */
  promote(options?: { timeout?: number }): Promise<void>
  /** Gives the role up: writes to buckets are refused, those that run may end within `timeout` (default 3,000 ms), then it takes no writes. */
  demote(options?: { timeout?: number }): Promise<void>
  info(): StorageInfo
  /** The storage side of vshard. @throws InvalidArgumentError without `vshard` in the options */
  readonly vshard: VshardStorage
  /**
   * Keeps every bucket in its place until the reference is disposed of, or expires: `storage.vshard.refs.ref`.
   * @throws VshardError NON_MASTER, BoxError 78 when buckets did not come to rest within `timeout` (milliseconds)
   */
  ref(options: { timeout: number; expire?: number }): Promise<AsyncDisposable>
  /** Tells watchers of `box.shutdown`, gives them a moment to leave, and ends. Idempotent. */
  close(options?: { graceMs?: number }): Promise<void>
  [Symbol.asyncDispose](): Promise<void>
}

/** @throws ConfigError */
export function createStorage(options: StorageOptions): Storage {
  validateStorageOptions(options)
  return new StorageShell(options)
}

/** Features 0 to 6: streams, transactions, error extension, watchers, pagination, names, watch once. */
const FEATURES: ReadonlySet<number> = new Set([
  Feature.streams,
  Feature.transactions,
  Feature.errorExtension,
  Feature.watchers,
  Feature.pagination,
  Feature.names,
  Feature.watchOnce,
])

const SALT_BYTES = 32
const DEFAULT_VERSION = '2.11.0'

class StorageShell implements Storage, DispatchParts, VshardIdentity {
  readonly name: string
  readonly version: string
  #uuid: string
  readonly engine: Engine = new Engine()
  readonly users: Users
  readonly clock: Environment['clock']
  readonly #options: StorageOptions
  readonly #environment: Environment
  readonly #server: Server
  readonly #watches: WatchHub
  readonly #events: OwnEvents
  readonly #hooks: Hooks
  readonly #replication: Replication
  readonly #functions = new Map<string, StoredFunction>()
  readonly #vshard: VshardSide | undefined
  #closing: Promise<void> | undefined
  /** The transaction of the listener that runs now. */
  #ambient: Transaction | undefined

  constructor(options: StorageOptions) {
    this.#options = options
    this.#environment = resolveEnvironment(options.environment)
    this.clock = this.#environment.clock
    this.name = options.name
    this.#uuid = options.uuid ?? Uuid.random().toString()
    this.version = options.version ?? DEFAULT_VERSION
    this.users = new Users(options.users ?? {})
    this.#watches = createWatchHub({ clock: this.clock })
    this.#events = new OwnEvents(this.name, this.#watches)
    this.#hooks = new Hooks(this.name, this.clock, options.hookTimeoutMs ?? DEFAULT_HOOK_TIMEOUT_MS)
    this.#replication = new Replication({
      engine: this.engine,
      options: options.replication ?? { number: 1, peers: [] },
      identity: this,
      environment: this.#environment,
      onRoleChange: () => this.#announce(),
      journal: journalOptions(options),
    })
    this.#vshard = options.vshard === undefined ? undefined : this.#vshardSide(options.vshard)
    this.engine.judge = (change) => this.#vshard?.buckets.judge(change)
    this.engine.onChange = (change) => {
      this.#vshard?.buckets.note(change)
      this.#events.schema(this.engine.schema.version)
    }
    this.engine.onRestored = () => {
      this.#vshard?.buckets.reload()
      this.#events.schema(this.engine.schema.version)
    }
    this.engine.guard = (space) => {
      const { refusal } = this.#replication
      if (refusal !== undefined) throw refusal
      if (this.isReadonly && !space.definition.isLocal) throw this.#readonlyError()
    }
    const dispatch = new Dispatch(this)
    const next: SessionHandler = {
      greet: (transport) => dispatch.greet(transport),
      frame: (session, frame) => dispatch.frame(session, frame),
      drain: (session) => this.#replication.drained(session),
      closed: (session) => dispatch.closed(session),
    }
    const front = standardFront(
      {
        users: this.users,
        features: FEATURES,
        watches: this.#watches,
        schemaVersion: () => this.engine.schema.version,
        clock: this.clock,
      },
      next,
    )
    this.#server = createServer({
      handler: front,
      environment: this.#environment,
      ...(options.limits === undefined ? {} : { limits: options.limits }),
    })
    for (const [name, run] of Object.entries(this.#vshard?.functions ?? {})) this.define(name, run)
    this.#announce()
  }

  async listen(address: Address | string): Promise<Address> {
    return this.#server.listen(typeof address === 'string' ? parseListenAddress(address) : address)
  }

  /** Without one in the options it is that of the data, once they are read. */
  get uuid(): string {
    return this.#uuid
  }

  async open(): Promise<void> {
    const owner = await this.#replication.open(this.#options.uuid, () => this.#uuid)
    if (owner === undefined) return
    this.#uuid = owner.uuid
    this.#announce()
  }

  async committed(): Promise<void> {
    await this.whenCommitted()
  }

  snapshot(): Promise<void> {
    return this.#replication.snapshotNow()
  }

  start(): void {
    this.#replication.start()
    if (this.#options.vshard !== undefined && !this.isReadonly) this.#createBucketSpace()
    this.#vshard?.start()
  }

  get vshard(): VshardStorage {
    if (this.#vshard === undefined)
      throw new InvalidArgumentError(`Storage '${this.name}' serves no vshard: its options have no \`vshard\``)
    return this.#vshard
  }

  ref(options: { timeout: number; expire?: number }): Promise<AsyncDisposable> {
    return this.vshard.refs.ref(options)
  }

  connect(options: { user?: string } = {}): Transport {
    const [client, server] = transportPair(this.clock)
    this.#server.accept(server, options.user === undefined ? undefined : { user: options.user })
    return client
  }

  // ---- definitions and data -----------------------------------------------------------------------------------------

  createSpace(name: string, options: SpaceOptions): void {
    validateSpaceOptions(name, options)
    const { schema } = this.engine
    if (schema.find(name) !== undefined) {
      if (options.ifNotExists === true) return
      throw boxErrors.tupleFound('name', '_space')
    }
    const { definition, indexes } = buildSpace(schema.nextSpaceId(), name, options)
    this.engine.run(this.#ambient, (transaction) => {
      this.engine.insert(transaction, schema.get(SYSTEM_SPACE.space), spaceTuple(definition))
      for (const index of indexes)
        this.engine.insert(transaction, schema.get(SYSTEM_SPACE.index), indexTuple(definition.id, index))
    })
  }

  truncateSpace(name: string): void {
    const space = this.engine.schema.get(name)
    this.engine.run(this.#ambient, (transaction) => this.engine.clear(transaction, space))
  }

  dropSpace(name: string): void {
    const { schema } = this.engine
    const space = schema.get(name)
    this.engine.run(this.#ambient, (transaction) => {
      this.engine.clear(transaction, space)
      for (const index of [...space.indexes].toReversed())
        this.engine.delete(transaction, schema.get(SYSTEM_SPACE.index), encodeValue([space.id, index.definition.id]))
      this.engine.delete(transaction, schema.get(SYSTEM_SPACE.space), encodeValue([space.id]))
    })
  }

  space<T extends readonly unknown[] = unknown[]>(name: string): SpaceHandle<T> {
    return new CallContext(this, ADMIN).space<T>(name)
  }

  define(name: string, run: StoredFunction): void {
    if (!optionRule.text.fits(name))
      throw new InvalidArgumentError(
        `The name of a function is ${shownValue(name)}, expected ${optionRule.text.expected}`,
      )
    if (typeof run !== 'function')
      throw new InvalidArgumentError(`Function '${name}' is ${shownValue(run)}, expected a function`)
    this.#functions.set(name, run)
  }

  async call(name: string, ...args: unknown[]): Promise<readonly unknown[]> {
    const results = await new CallContext(this, ADMIN).run(name, args)
    await this.whenCommitted()
    return results
  }

  setUser(name: string, options: UserOptions): void {
    if (!optionRule.text.fits(name))
      throw new InvalidArgumentError(`The name of a user is ${shownValue(name)}, expected ${optionRule.text.expected}`)
    const problems = userProblems(name, options)
    if (problems.length > 0) throw new ConfigError(problems, { subject: 'user' })
    this.users.set(name, options)
  }

  removeUser(name: string): boolean {
    return this.users.remove(name)
  }

  hash2(user: string): Uint8Array | undefined {
    return this.users.hash2(user)
  }

  broadcast(key: string, value: unknown): void {
    assertForeignEvent(key)
    this.#watches.broadcast(key, value === undefined ? undefined : encodeValue(value))
  }

  watch(key: string, onValue: (value: unknown) => unknown): () => void {
    assertEventKey(key)
    if (typeof onValue !== 'function')
      throw new InvalidArgumentError(`The watcher of '${key}' is ${shownValue(onValue)}, expected a function`)
    return this.#watches.listen(key, (encoded) =>
      tell(this.name, `watch('${key}')`, onValue, encoded === undefined ? undefined : decodeValue(encoded)),
    )
  }

  before<K extends keyof BeforeEvents>(what: K, listener: BeforeListener<K>): () => void {
    return this.#hooks.add(what, listener)
  }

  // ---- role ---------------------------------------------------------------------------------------------------------

  get isReadonly(): boolean {
    return !this.#replication.isWritable
  }

  get isMaster(): boolean {
    return this.#replication.isWritable
  }

  get term(): number {
    return this.#replication.term
  }

  async promote(options: { timeout?: number } = {}): Promise<void> {
    await this.#replication.promote(options)
    if (this.#options.vshard !== undefined) this.#createBucketSpace()
  }

  async demote({ timeout = DEFAULT_SETTLE_MS }: { timeout?: number } = {}): Promise<void> {
    if (!this.isReadonly && this.#hooks.has('demote')) await this.#hooks.run('demote', { term: this.term })
    const giveUp = (): void => this.#replication.demote()
    if (this.#vshard === undefined) giveUp()
    else await this.#vshard.settleWrites(timeout, giveUp)
  }

  info(): StorageInfo {
    return {
      name: this.name,
      uuid: this.uuid,
      status: this.#replication.status,
      isReadonly: this.isReadonly,
      term: this.term,
      leader: this.#leaderUuid(),
      vclock: this.#replication.vclock,
      journal: this.#replication.journal,
      links: this.#replication.links,
      sessions: this.#server.sessionCount,
      buckets: this.#vshard?.buckets.size ?? 0,
      storageRefs: this.#vshard?.storageRefs.size ?? 0,
    }
  }

  close(options: { graceMs?: number } = {}): Promise<void> {
    this.#closing ??= this.#close(options.graceMs ?? DEFAULT_GRACE_MS)
    return this.#closing
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  async #close(graceMs: number): Promise<void> {
    if (this.#hooks.has('shutdown')) await this.#hooks.run('shutdown', { isReadonly: this.isReadonly })
    this.#events.shutdown()
    if (this.#watches.watchers('box.shutdown') > 0) {
      await new Promise<void>((resolve) => {
        const deadline = this.clock.now() + graceMs
        const look = (): void => {
          if (this.#watches.watchers('box.shutdown') === 0 || this.clock.now() >= deadline) resolve()
          else this.clock.schedule(SHUTDOWN_POLL_MS, look)
        }
        look()
      })
    }
    this.#replication.stop()
    this.#vshard?.close()
    // The journal first: what it still writes is answered.
    await this.#replication.close()
    await this.#server.close()
  }

  // ---- what requests need -------------------------------------------------------------------------------------------

  newSalt(): Uint8Array {
    return randomBytes(SALT_BYTES)
  }

  get ambient(): Transaction | undefined {
    return this.#ambient
  }

  get unavailable(): BoxError | undefined {
    return this.#replication.isLoading ? boxErrors.loading() : undefined
  }

  get unreadable(): BoxError | undefined {
    return this.#replication.status === 'running' ? undefined : boxErrors.loading()
  }

  get isCommitted(): boolean {
    return this.#replication.isCommitted
  }

  whenCommitted(): Promise<void> | undefined {
    return this.#replication.whenCommitted()
  }

  invoke(
    context: FunctionContext,
    name: string,
    args: readonly unknown[],
  ): readonly unknown[] | Promise<readonly unknown[]> {
    const run = this.#functions.get(name)
    if (run === undefined) throw boxErrors.noSuchProc(name)
    let result: unknown
    try {
      result = run(context, ...args)
    } catch (error) {
      throw functionError(error)
    }
    if (!(result instanceof Promise)) return resultList(result)
    return result.then(resultList, (error: unknown) => {
      throw functionError(error)
    })
  }

  servePeer(session: ClientSession, frame: InboundFrame): void | Promise<void> {
    this.users.check(session.user, 'execute', REPLICATION_RIGHT)
    return this.#replication.serve(session, frame)
  }

  acknowledge(session: ClientSession, frame: InboundFrame): boolean {
    return this.#replication.acknowledge(session, frame)
  }

  sessionClosed(session: ClientSession): void {
    this.#replication.sessionClosed(session)
    this.#vshard?.storageRefs.sessionClosed(session.id)
  }

  // ---- vshard -------------------------------------------------------------------------------------------------------

  get instanceId(): string {
    return this.#options.vshard?.identification === 'name' ? this.name : this.uuid
  }

  get replicasetUuid(): string | undefined {
    return this.#options.replicasetUuid
  }

  get replicasetId(): string {
    const { replicasetName, replicasetUuid } = this.#options
    return (this.#options.vshard?.identification === 'name' ? replicasetName : replicasetUuid) ?? ''
  }

  get masterId(): string | undefined {
    const leader = this.#leaderUuid()
    if (leader === undefined || this.#options.vshard?.identification !== 'name') return leader
    if (leader === this.uuid) return this.name
    const own = this.#options.vshard.replicasets?.find((replicaset) => replicaset.id === this.replicasetId)
    return own?.instances.find((instance) => instance.uuid === leader)?.id
  }

  #vshardSide(options: NonNullable<StorageOptions['vshard']>): VshardSide {
    return new VshardSide(options, {
      engine: this.engine,
      storageName: this.name,
      hooks: this.#hooks,
      within: (transaction, work) => this.#within(transaction, work),
      announce: () => this.#announce(),
      environment: this.#environment,
      replication: this.#replication,
      replicationOptions: this.#options.replication ?? { number: 1, peers: [] },
      identity: this,
      name: options.identification === 'name' ? this.name : undefined,
      invoke: (context, name, args) => this.invoke(context, name, args),
    })
  }

  /** Statements that `work` makes on spaces of this storage are a part of `transaction`. */
  #within<T>(transaction: Transaction, work: () => T): T {
    const outer = this.#ambient
    this.#ambient = transaction
    try {
      return work()
    } finally {
      this.#ambient = outer
    }
  }

  #createBucketSpace(): void {
    this.createSpace(BUCKET_SPACE, {
      format: [
        { name: 'id', type: 'unsigned' },
        { name: 'status', type: 'string' },
        { name: 'destination', type: 'string', isNullable: true },
        { name: 'opts', type: 'map', isNullable: true },
      ],
      indexes: [
        { name: 'pk', parts: ['id'] },
        { name: 'status', isUnique: false, parts: ['status'] },
      ],
      ifNotExists: true,
    })
  }

  // ---- inside -------------------------------------------------------------------------------------------------------

  #announce(): void {
    const { status, term, leader } = this.#replication
    const { replicasetUuid, replication } = this.#options
    const vshard = this.#vshard
    this.#events.identity(
      replication?.number ?? 1,
      Uuid.from(this.uuid),
      replicasetUuid === undefined ? undefined : Uuid.from(replicasetUuid),
    )
    this.#events.role(
      { status, term, leader, isReadonly: this.isReadonly },
      vshard?.isStarted === true ? vshard : undefined,
    )
    this.#events.schema(this.engine.schema.version)
    vshard?.roleChanged()
  }

  #leaderUuid(): string | undefined {
    const { leader } = this.#replication
    if (leader === 0) return undefined
    const { replication } = this.#options
    if (replication === undefined || leader === replication.number) return this.uuid
    return replication.peers.find((peer) => peer.number === leader)?.uuid
  }

  #readonlyError(): BoxError {
    const { term, leader } = this.#replication
    const uuid = this.#leaderUuid()
    const isKnown = leader !== 0 && uuid !== undefined && uuid !== this.uuid
    return boxErrors.readonly(
      ` - state is election follower with term ${term}${isKnown ? `, leader is ${leader} (${uuid})` : ''}`,
      {
        reason: 'election',
        state: 'follower',
        term,
        ...(isKnown ? { leader_id: leader, leader_uuid: Uuid.from(uuid) } : {}),
      },
    )
  }
}

const DEFAULT_SNAPSHOT_BYTES = 64 * 1024 * 1024
const DEFAULT_SNAPSHOT_ROWS = 1_000_000

function journalOptions({
  durability = 'none',
  dir,
  snapshotBytes = DEFAULT_SNAPSHOT_BYTES,
  snapshotRows = DEFAULT_SNAPSHOT_ROWS,
}: StorageOptions): Omit<JournalOptions, 'clock'> | undefined {
  if (durability === 'none' || dir === undefined) return undefined
  return { files: typeof dir === 'string' ? diskFiles(dir) : dir, snapshotBytes, snapshotRows }
}

const DEFAULT_HOOK_TIMEOUT_MS = 5_000
const ADMIN = { id: 0, user: 'admin' } as const
/** As Tarantool: watchers of `box.shutdown` may finish their work for this long. */
const DEFAULT_GRACE_MS = 3_000
const SHUTDOWN_POLL_MS = 5
/** How long running writes to buckets may hold up a planned change of masters. */
const DEFAULT_SETTLE_MS = 3_000
