/* What a client needs of the proxy around it. */
import type { Clock } from '@orbweaver/connection'
import type { Authenticator } from './auth.js'
import type { Bouncer } from './bounce.js'
import type { Client } from './client.js'
import type { Counters } from './counters.js'
import type { Gate } from './gate.js'
import type { Lane } from './lane.js'
import type { ResolvedLimits } from './limits.js'
import type { Logins } from './login.js'
import type { FunctionNames, ReadRules } from './routing.js'
import type { RouterService } from './serve.js'
import type { Target } from './target.js'
import type { WatchRelay } from './watch-relay.js'

export interface ClientHost {
  readonly clock: Clock
  readonly limits: ResolvedLimits
  readonly counters: Counters
  readonly gate: Gate
  readonly relay: WatchRelay
  readonly rules: ReadRules
  readonly authenticator: Authenticator
  readonly logins: Logins
  /** The master; undefined: none is set. */
  readonly rw: Target | undefined
  /** Set where calls go to the replicaset of their bucket. */
  readonly bouncer: Bouncer | undefined
  /** Unknown request types below 128 are passed on. */
  readonly forwardUnknown: boolean
  /** Answers calls of a router in this process; undefined: there is none. */
  readonly routerService: RouterService | undefined
  /** Functions whose callers need a session of their own. */
  readonly pinnedFunctions: FunctionNames
  /** Reads whose connection was lost are sent once more. */
  readonly retriesReads: boolean
  /** Writes are refused here while the master says that it is read-only. */
  readonly rejectsWhenReadonly: boolean
  /** Whether a user's sessions hold nothing that a change of the master would lose. */
  mayRebind(user: string): boolean
  /** Where hashes of passwords come from: a metric label. */
  readonly loginMode: string
  /** The proxy is ending and answers nothing but error 279. */
  readonly isRefusing: boolean
  /** So much waits at the gate that no client with something waiting there is read further. */
  readonly isPauseFull: boolean
  /** For replies of the proxy's own: the last one seen. */
  readonly schemaVersion: number
  /** A replica that has these features, for a read. @param bound - the lane of reads in flight */
  readTarget(bound: Lane | undefined, features: ReadonlySet<number>): Target | undefined
  /** What ID may agree on now, and its version; undefined: no target knows ID. */
  agreement(): Promise<{ readonly version: number; readonly features: ReadonlySet<number> } | undefined>
  weightOf(user: string): number
  isSessionMode(user: string): boolean
  /** @returns false when too many clients have a connection of their own */
  mayPin(): boolean
  /** Called when a client's login is another one. @returns false: too many of this user */
  mayLogIn(user: string): boolean
  eachLane(visit: (lane: Lane) => void): void
  clientLeft(client: Client): void
}
