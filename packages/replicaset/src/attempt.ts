/** The seam between a replicaset and whoever sends requests through it. */
import type { PendingRequest, ReplySink, SendOptions } from '@orbweaver/connection'
import type { BoxError, OrbweaverError, Reply, Request, RequestClass } from '@orbweaver/iproto'

/**
 * Who may serve a call, as vshard names it: `rw` the master; `ro` the nearest; `bro` all in turn; `re` the nearest that is
 * not the master; `bre` all but the master in turn. `re` and `bre` fall back to the master.
 */
export type CallMode = 'rw' | 'ro' | 'bro' | 're' | 'bre'

/** What a reply says about the instance that gave it. `refused` promises that user code did not run. */
export type Verdict =
  | { readonly says: 'notMaster'; readonly refused: true; readonly hint: string | undefined }
  | { readonly says: 'unusable'; readonly reason: string }

/** The words of whatever runs on the instances (vshard's storages, say). Without one, polls are `box.info` and only error 7 is a verdict. */
export interface Dialect {
  /** How to ask an instance whether it is the master. `read` gives undefined for an unexpected shape. */
  readonly poll: {
    request(): Request
    read(reply: Reply): { readonly isMaster: boolean; readonly name?: string } | undefined
  }
  /** What an outcome says about the instance; undefined: nothing. Called for every outcome, so it looks before it decodes. */
  judge(outcome: Reply | BoxError): Verdict | undefined
  /** Keys whose events carry `is_master_cfg`, watched beside the built-in ones. */
  readonly electionKeys: readonly string[]
}

/**
 * A request on its way: the caller's own object. It is the `ReplySink` of its sends too, and waits as itself; nothing is
 * allocated for it until it has to wait.
 *
 * Life: `dispatch` leads to any number of `run`; each `run` that said `sent` is followed by one `settle` of the caller, with
 * the token it was given. Whoever gets `true` from `settle` does nothing more: `run` or `giveUp` will follow.
 */
export interface Attempt {
  /** Instant on the clock of the environment; Infinity: none. */
  readonly deadline: number
  /** What it counts in the hold budget while it waits. */
  readonly bytes: number
  readonly requestClass: RequestClass
  /** Running it twice does no harm. */
  readonly idempotent: boolean
  /** Requests with the same key keep their order while they wait and drain. */
  readonly orderKey: string | undefined
  /** Ends the wait at once, with `RequestAbortedError`. Only looked at while it waits: what is sent has the signal of its send. */
  readonly signal?: AbortSignal | undefined
  /** For reads: do not ask an instance that is farther behind the master, or about which that is not known. */
  readonly maxLagMs?: number | undefined
  /** For `ro` and `re`: takes the place of nearness, the lowest first. Default: by zones, as configured. */
  readonly rank?: ((instance: InstanceHandle) => number) | undefined
  /** It belongs to a stream that may hold a transaction: never held, never sent again. */
  readonly inStream?: boolean
  /**
   * Sends it. Must not call back into the replicaset before it returns.
   * @param epoch - a token of this dispatch, for `settle`; its value means nothing to the caller
   * @returns `elsewhere`: what it was for has moved to another replicaset while it waited; the caller goes on alone
   */
  run(instance: InstanceHandle, epoch: number): 'sent' | 'elsewhere'
  /** Final: its deadline, an eviction, the end of the window, an abort, a close. Nothing was executed. */
  giveUp(error: OrbweaverError): void
}

/** One instance of a replicaset. */
export interface InstanceHandle {
  /** As in the definition. */
  readonly id: string
  /** Of the peer, or of the definition while there is none. */
  readonly uuid: string | undefined
  /** Sends a request to this instance and no other; on the connection of this moment, or it fails with `executed: 'no'`. */
  send(request: Request, options: SendOptions, sink: ReplySink): PendingRequest
  /** One connection of one generation, for requests that must share the server's session. Others may share it too. */
  pin(): PinnedSession
}

/** One session of a server: what lives in it (refs, transactions) is gone when it is lost. */
export interface PinnedSession {
  readonly lost: boolean
  /** What its server and we agreed on; empty while there is no connection. */
  readonly features: ReadonlySet<number>
  /** After the loss the sink gets `ConnectionLostError` with `executed: 'no'`. */
  send(request: Request, options: SendOptions, sink: ReplySink): PendingRequest
}
