/*
 * What a stored function sees: spaces by name, transactions, other functions. Everything on spaces is synchronous and takes
 * effect at once in memory; the reply of the request waits until all of it is committed.
 */
import { inspect } from 'node:util'
import {
  BoxError,
  decodeValue,
  encodeValue,
  InvalidArgumentError,
  isOrbweaverError,
  IteratorType,
  RawValue,
} from '@orbweaver/iproto'
import type { IteratorName } from '@orbweaver/iproto'
import type { Clock } from '@orbweaver/connection'
import type { Engine } from './engine/engine.js'
import type { Space } from './engine/space.js'
import type { Transaction } from './engine/transaction.js'
import type { StoredTuple } from './engine/tuple.js'
import { boxErrors } from './errors.js'
import { StreamTurn } from './streams.js'

export interface SpaceSelectOptions {
  /** Name or number; default the primary key. */
  readonly index?: number | string
  /** Default EQ, or ALL for an empty key. */
  readonly iterator?: IteratorName
  readonly offset?: number
  readonly limit?: number
  /** Continue behind this tuple. */
  readonly after?: readonly unknown[]
}

/** A space inside a stored function. Tuples are arrays of JavaScript values. */
export interface SpaceHandle<T extends readonly unknown[] = unknown[]> {
  readonly id: number
  readonly name: string
  /** By the full key of a unique index. */
  get(key: readonly unknown[], index?: number | string): T | undefined
  select(key?: readonly unknown[], options?: SpaceSelectOptions): T[]
  /** As `select`, with tuples as stored bytes: returning them costs no decoding and keeps every form. */
  selectRaw(key?: readonly unknown[], options?: SpaceSelectOptions): RawValue[]
  insert(tuple: T): T
  replace(tuple: T): T
  /** undefined when there is no such tuple. */
  update(key: readonly unknown[], operations: readonly (readonly unknown[])[], index?: number | string): T | undefined
  upsert(tuple: T, operations: readonly (readonly unknown[])[]): void
  /** The tuple that was there. */
  delete(key: readonly unknown[], index?: number | string): T | undefined
  /** Number of tuples. */
  count(): number
}

export interface FunctionContext {
  /** Who called: 0 and `admin` for a call from this process. */
  readonly session: { readonly id: number; readonly user: string }
  /** True when this instance takes no writes. */
  readonly isReadonly: boolean
  /** @throws BoxError 36 */
  space<T extends readonly unknown[] = unknown[]>(name: string | number): SpaceHandle<T>
  /** Runs `work` as one transaction: all of it or, when it throws, nothing. It must not wait: a promise is refused. */
  atomic<T>(work: () => T): T
  /**
   * Opens a transaction that may last over waits; others see nothing of it before `commit`. In a stream it is the stream's: the
   * client may commit it later. Outside one it must be over when the function returns: else it is rolled back and the
   * call fails with error 30.
   * @param options.timeout - milliseconds after which it is rolled back; default: none
   * @throws BoxError 79 when one is open
   */
  begin(options?: { timeout?: number }): void
  /** Makes the open transaction final; nothing when none is open. @throws BoxError 97 when others changed what it read or wrote, 231 */
  commit(): void
  /** Undoes the open transaction; nothing when none is open. */
  rollback(): void
  /** Calls another function of this instance and gives its first result. @throws BoxError 33 */
  call(name: string, ...args: unknown[]): Promise<unknown>
}

/** What a context needs of the storage. */
export interface ContextOwner {
  readonly engine: Engine
  /** The transaction of a listener that runs now: statements made outside any other transaction are a part of it. */
  readonly ambient: Transaction | undefined
  readonly clock: Clock
  readonly isReadonly: boolean
  invoke(
    context: FunctionContext,
    name: string,
    args: readonly unknown[],
  ): readonly unknown[] | Promise<readonly unknown[]>
}

export class CallContext implements FunctionContext {
  readonly session: { readonly id: number; readonly user: string }
  /** The arguments as they came, an encoded array valid during the call: for functions that store parts of them as they are. */
  readonly argumentBytes: Buffer | undefined
  readonly #owner: ContextOwner
  /** The stream the call runs in, whose transaction its statements are a part of; one of its own where it began one outside any. */
  #turn: StreamTurn | undefined
  readonly #isInStream: boolean
  /** The transaction of a running `atomic`. */
  #atomic: Transaction | undefined

  constructor(owner: ContextOwner, session: { id: number; user: string }, turn?: StreamTurn, argumentBytes?: Buffer) {
    this.argumentBytes = argumentBytes
    this.#owner = owner
    this.session = session
    this.#turn = turn
    this.#isInStream = turn !== undefined
  }

  get isReadonly(): boolean {
    return this.#owner.isReadonly
  }

  space<T extends readonly unknown[] = unknown[]>(name: string | number): SpaceHandle<T> {
    return new EngineSpace<T>(this.#owner.engine, this.#owner.engine.schema.get(name), this)
  }

  atomic<T>(work: () => T): T {
    return this.statement((current) =>
      this.#owner.engine.run(current, (transaction) => {
        const outer = this.#atomic
        this.#atomic = transaction
        try {
          const result = work()
          assertNotWaiting(result, 'The function given to atomic()')
          return result
        } finally {
          this.#atomic = outer
        }
      }),
    )
  }

  begin(options: { timeout?: number } = {}): void {
    if (this.#atomic !== undefined) throw boxErrors.activeTransaction()
    this.#turn ??= StreamTurn.ofCall(this.#owner.engine, this.#owner.clock)
    this.#turn.begin(options.timeout ?? 0)
  }

  commit(): void {
    if (this.#atomic !== undefined) throw boxErrors.activeTransaction()
    this.#turn?.commit()
  }

  rollback(): void {
    if (this.#atomic !== undefined) throw boxErrors.activeTransaction()
    this.#turn?.rollback()
  }

  /**
   * Calls a function for a client, or for this process: a transaction it leaves open outside a stream ends here.
   * @throws BoxError 30 when it returned with one, whatever the function throws, 33
   */
  run(name: string, args: readonly unknown[]): readonly unknown[] | Promise<readonly unknown[]> {
    let results: readonly unknown[] | Promise<readonly unknown[]>
    try {
      results = this.#owner.invoke(this, name, args)
    } catch (error) {
      this.#leftOpen()
      throw error
    }
    if (!(results instanceof Promise)) {
      if (this.#leftOpen()) throw boxErrors.functionTransactionActive()
      return results
    }
    return results.then(
      (list) => {
        if (this.#leftOpen()) throw boxErrors.functionTransactionActive()
        return list
      },
      (error: unknown) => {
        this.#leftOpen()
        throw error
      },
    )
  }

  /** Rolls back what a function outside a stream left open. @returns whether there was something */
  #leftOpen(): boolean {
    if (this.#isInStream || this.#turn?.hasTransaction !== true) return false
    this.#turn.rollback()
    return true
  }

  /** One statement in the transaction of the moment; a stream's transaction is in sight only while it runs. */
  statement<T>(work: (transaction: Transaction | undefined) => T): T {
    if (this.#atomic !== undefined || this.#turn === undefined) return work(this.#atomic ?? this.#owner.ambient)
    const transaction = this.#turn.enter()
    try {
      return work(transaction)
    } finally {
      this.#turn.leave()
    }
  }

  async call(name: string, ...args: unknown[]): Promise<unknown> {
    const results = await this.#owner.invoke(this, name, args)
    return results[0]
  }
}

/** What runs inside a transaction ends at once. @throws InvalidArgumentError for a promise */
export function assertNotWaiting(result: unknown, what: string): void {
  if (!(result instanceof Promise)) return
  result.catch(ignoreRefused)
  throw new InvalidArgumentError(`${what} returned a promise: a transaction must not wait`)
}

/** The refusal already reached the caller; how the refused promise ends changes nothing. */
function ignoreRefused(): void {
  return
}

class EngineSpace<T extends readonly unknown[]> implements SpaceHandle<T> {
  readonly #engine: Engine
  readonly #context: CallContext
  #held: Space

  constructor(engine: Engine, space: Space, context: CallContext) {
    this.#engine = engine
    this.#held = space
    this.#context = context
  }

  /** A handle may be kept: when the space was made anew, or came from another instance as a whole, it is the one of that name. */
  get #space(): Space {
    if (this.#held.isDropped) this.#held = this.#engine.schema.get(this.#held.name)
    return this.#held
  }

  get id(): number {
    return this.#space.id
  }

  get name(): string {
    return this.#space.name
  }

  get(key: readonly unknown[], index: number | string = 0): T | undefined {
    return decoded<T>(
      this.#context.statement((transaction) => this.#engine.get(transaction, this.#space, encodeValue(key), index)),
    )
  }

  select(key: readonly unknown[] = [], options: SpaceSelectOptions = {}): T[] {
    return this.#select(key, options).map((tuple) => decodeValue(tuple) as T)
  }

  selectRaw(key: readonly unknown[] = [], options: SpaceSelectOptions = {}): RawValue[] {
    return this.#select(key, options).map((tuple) => new RawValue(tuple))
  }

  insert(tuple: T): T {
    return decoded<T>(
      this.#context.statement((transaction) => this.#engine.insert(transaction, this.#space, encodeValue(tuple))),
    )!
  }

  replace(tuple: T): T {
    return decoded<T>(
      this.#context.statement((transaction) => this.#engine.replace(transaction, this.#space, encodeValue(tuple))),
    )!
  }

  update(
    key: readonly unknown[],
    operations: readonly (readonly unknown[])[],
    index: number | string = 0,
  ): T | undefined {
    return decoded<T>(
      this.#context.statement((transaction) =>
        this.#engine.update(transaction, this.#space, encodeValue(key), operations, { index }),
      ),
    )
  }

  upsert(tuple: T, operations: readonly (readonly unknown[])[]): void {
    this.#context.statement((transaction) =>
      this.#engine.upsert(transaction, this.#space, encodeValue(tuple), operations),
    )
  }

  delete(key: readonly unknown[], index: number | string = 0): T | undefined {
    return decoded<T>(
      this.#context.statement((transaction) => this.#engine.delete(transaction, this.#space, encodeValue(key), index)),
    )
  }

  count(): number {
    return this.#context.statement((transaction) => {
      transaction?.sawRange(this.#space)
      return this.#space.size
    })
  }

  #select(key: readonly unknown[], options: SpaceSelectOptions): StoredTuple[] {
    return this.#context.statement((transaction) =>
      this.#engine.select(transaction, this.#space, {
        key: encodeValue(key),
        iterator: ITERATORS[options.iterator ?? (key.length === 0 ? 'ALL' : 'EQ')],
        ...(options.index === undefined ? {} : { index: options.index }),
        ...(options.offset === undefined ? {} : { offset: options.offset }),
        ...(options.limit === undefined ? {} : { limit: options.limit }),
        ...(options.after === undefined ? {} : { after: { tuple: encodeValue(options.after) } }),
      }),
    )
  }
}

const ITERATORS: Readonly<Record<IteratorName, number>> = {
  EQ: IteratorType.eq,
  REQ: IteratorType.req,
  ALL: IteratorType.all,
  LT: IteratorType.lt,
  LE: IteratorType.le,
  GE: IteratorType.ge,
  GT: IteratorType.gt,
  BITS_ALL_SET: IteratorType.bitsAllSet,
  BITS_ANY_SET: IteratorType.bitsAnySet,
  BITS_ALL_NOT_SET: IteratorType.bitsAllNotSet,
  OVERLAPS: IteratorType.overlaps,
  NEIGHBOR: IteratorType.neighbor,
  NP: IteratorType.np,
  PP: IteratorType.pp,
}

function decoded<T>(tuple: StoredTuple | undefined): T | undefined {
  return tuple === undefined ? undefined : (decodeValue(tuple) as T)
}

/**
 * What a stored function threw, as its caller sees it: Tarantool's own errors as they are, other errors as error 32 with their
 * text. What is no error at all is told by its text, too, and (where it can be encoded) is the field `details`.
 */
export function functionError(error: unknown): BoxError {
  if (error instanceof BoxError) return error
  if (error instanceof Error) return boxErrors.procLua(error.message)
  if (typeof error === 'string') return boxErrors.procLua(error)
  const text = inspect(error, { breakLength: Infinity, maxStringLength: 200, maxArrayLength: 20 })
  try {
    encodeValue(error)
    return boxErrors.thrown(text, error)
  } catch (fault) {
    if (!isOrbweaverError(fault)) throw fault
    return boxErrors.procLua(text)
  }
}
