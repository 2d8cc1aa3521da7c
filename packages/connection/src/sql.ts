import { BoxError, ErrorCode, type PreparedInfo, type SqlColumn } from '@orbweaver/iproto'
import type { Clock } from './clock.js'
import { ConnectionClosedError, ConnectionLostError } from './errors.js'
import type { RequestOptions, SqlRows } from './operations.js'
import { deadlineOf } from './options.js'
import type { SessionPin } from './pending.js'
import { waitFor } from './wait-for.js'

/** A statement as one session of the server knows it. */
export interface Prepared {
  readonly info: PreparedInfo
  readonly pin: SessionPin
  /** Of the answer to PREPARE: after a schema change the server has forgotten the statement. */
  readonly schemaVersion: number
}

/** What statements need of their connection. */
export interface StatementHost {
  readonly clock: Clock
  readonly requestTimeoutMs: number
  readonly generation: number
  /** The newest the connection has seen. */
  readonly schemaVersion: number
  prepareNow(text: string): Promise<Prepared>
  executeNow<Row>(prepared: Prepared, binds: readonly unknown[], options: RequestOptions): Promise<SqlRows<Row>>
  unprepareNow(prepared: Prepared): Promise<void>
}

/**
 * A prepared statement that stays usable: when the server has forgotten it (the schema changed, or this is another
 * session) it is prepared again, once for all callers, and the call is sent once more. That is safe, since the server
 * refused the first.
 */
export class PreparedStatement {
  readonly text: string
  readonly #host: StatementHost
  #current: Prepared
  #renewing: Promise<Prepared> | undefined
  #isReleased = false

  /** Made by `connection.prepare`. */
  constructor(text: string, prepared: Prepared, host: StatementHost) {
    this.text = text
    this.#current = prepared
    this.#host = host
  }

  /** Of the rows it returns; empty for statements that return none. */
  get columns(): readonly SqlColumn[] {
    return this.#current.info.columns
  }

  get bindCount(): number {
    return this.#current.info.bindCount
  }

  get binds(): readonly SqlColumn[] {
    return this.#current.info.binds
  }

  /** As `connection.execute` with this statement. */
  async execute<Row = unknown[]>(binds: readonly unknown[] = [], options: RequestOptions = {}): Promise<SqlRows<Row>> {
    const host = this.#host
    // One timeout for all of it; the arguments are the caller's again at once.
    const deadline = deadlineOf(host.clock.now(), options.timeout, host.requestTimeoutMs)
    const own = [...binds]
    const known = this.current ?? (await this.#renewed(undefined, deadline, options.signal))
    try {
      return await host.executeNow<Row>(known, own, { ...options, timeout: this.#left(deadline) })
    } catch (error) {
      const isRepeatable = options.idempotent === true && error instanceof ConnectionLostError
      if (!isRepeatable && !this.isForgotten(error, known)) throw error
    }
    const renewed = await this.#renewed(known, deadline, options.signal)
    return host.executeNow<Row>(renewed, own, { ...options, timeout: this.#left(deadline) })
  }

  /** Lets the server forget it. Harmless when repeated; a released statement that is executed prepares itself again. */
  async release(): Promise<void> {
    const { current } = this
    this.#isReleased = true
    if (current === undefined) return
    try {
      await this.#host.unprepareNow(current)
    } catch (error) {
      // Forgotten already, by the server or with the session: that is what was wanted.
      if (
        !(error instanceof ConnectionLostError || error instanceof ConnectionClosedError) &&
        codeOf(error) !== ErrorCode.wrongQueryId
      )
        throw error
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.release()
  }

  /** What this session of the server should still know; undefined: it has to be prepared again. */
  get current(): Prepared | undefined {
    return !this.#isReleased && this.#current.pin.generation === this.#host.generation ? this.#current : undefined
  }

  /** Whether an error says that the server does not know the statement (any more), so that it did not run. */
  isForgotten(error: unknown, prepared: Prepared): boolean {
    const code = codeOf(error)
    if (code === ErrorCode.wrongQueryId) return true
    // 159 is any failure of a statement; only a schema that moved since PREPARE makes it "the statement has expired".
    if (code === ErrorCode.sqlExecute) return this.#host.schemaVersion !== prepared.schemaVersion
    return (
      error instanceof ConnectionLostError &&
      error.executed === 'no' &&
      prepared.pin.generation !== this.#host.generation
    )
  }

  #renewed(stale: Prepared | undefined, deadline: number, signal: AbortSignal | undefined): Promise<Prepared> {
    const { current } = this
    if (current !== undefined && current !== stale) return Promise.resolve(current)
    if (this.#renewing === undefined) {
      this.#renewing = this.#host
        .prepareNow(this.text)
        .then((prepared) => {
          this.#current = prepared
          this.#isReleased = false
          return prepared
        })
        .finally(() => {
          this.#renewing = undefined
        })
    }
    return waitFor(this.#renewing, 'Preparing a statement again', this.#host.clock, deadline, signal)
  }

  #left(deadline: number): number {
    // Never 0 or less, which is no timeout: an overdue request fails at its first look at the clock.
    return Math.max(deadline - this.#host.clock.now(), Number.MIN_VALUE)
  }
}

function codeOf(error: unknown): number | undefined {
  return error instanceof BoxError ? error.boxCode : undefined
}
