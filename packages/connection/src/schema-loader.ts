import {
  BoxError,
  decodeData,
  MalformedFrameError,
  type OrbweaverError,
  type Reply,
  selectRequest,
} from '@orbweaver/iproto'
import { RequestTimeoutError } from './errors.js'
import type { Link } from './link.js'
import { type Schema, SchemaTable } from './schema.js'

/**
 * Fetches the schema when requests wait for it: one refresh for all of them, two SELECTs in one write. The refresh begins
 * at the end of the turn in which it was wanted, so everybody of that turn shares it.
 */
export class SchemaLoader {
  readonly #link: Link
  readonly #schema: Schema
  readonly #timeoutMs: number
  #isWanted = false
  #isLoading = false

  constructor(link: Link, timeoutMs: number) {
    this.#link = link
    this.#schema = link.schema
    this.#timeoutMs = timeoutMs
  }

  want(): void {
    if (this.#isWanted || this.#isLoading) return
    this.#isWanted = true
    queueMicrotask(() => {
      this.#isWanted = false
      this.#load()
    })
  }

  #load(): void {
    if (this.#isLoading || !this.#link.isUp) return
    this.#isLoading = true
    const refresh = this.#schema.begin()
    const { generation } = this.#link
    const pin = { generation }
    const deadline = this.#link.nowMs + this.#timeoutMs
    let spaces: Reply | undefined
    let indexes: Reply | undefined
    let failure: OrbweaverError | undefined
    let outstanding = 2
    const arrived = (): void => {
      outstanding -= 1
      if (outstanding > 0) return
      this.#isLoading = false
      if (this.#link.generation !== generation || !this.#link.isUp) return
      if (spaces !== undefined && indexes !== undefined) this.#loaded(spaces, indexes, refresh)
      else if (failure !== undefined) this.#link.flow.schemaFailed(neverSent(failure))
    }
    const failed = (error: OrbweaverError): void => {
      failure ??= error
      arrived()
    }
    // Together they are one picture unless the schema changes between them; the older version tells that at the first use.
    this.#link.send(
      selectRequest({ space: VSPACE, key: [] }),
      { deadline, pin },
      {
        done: (reply) => {
          spaces = reply
          arrived()
        },
        failed,
      },
    )
    this.#link.send(
      selectRequest({ space: VINDEX, key: [] }),
      { deadline, pin },
      {
        done: (reply) => {
          indexes = reply
          arrived()
        },
        failed,
      },
    )
  }

  #loaded(spaces: Reply, indexes: Reply, refresh: number): void {
    try {
      const version = Math.min(spaces.schemaVersion, indexes.schemaVersion)
      this.#schema.loaded(new SchemaTable(version, decodeData(spaces), decodeData(indexes)), refresh)
    } catch (error) {
      this.#link.flow.schemaFailed(neverSent(error as OrbweaverError))
      return
    }
    this.#link.flow.schemaLoaded()
  }
}

/** Why the schema is missing, as the end of a request that was not sent because of it. */
function neverSent(error: OrbweaverError): OrbweaverError {
  if (error.executed === 'no') return error
  if (error instanceof BoxError) return new BoxError(error.entries, { executed: 'no' })
  const message = `The schema could not be fetched: ${error.message}`
  const options = { executed: 'no', cause: error } as const
  return error instanceof RequestTimeoutError
    ? new RequestTimeoutError(message, options)
    : new MalformedFrameError(message, options)
}

/** `_vspace` and `_vindex`: what the user may see of `_space` and `_index`. */
const VSPACE = 281
const VINDEX = 289
