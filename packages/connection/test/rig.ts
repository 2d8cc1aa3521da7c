import type { OrbweaverError, Reply } from '@orbweaver/iproto'
import { type Connection, type ConnectionOptions, createConnection, type ReplySink } from '../src/index.js'
import { ScriptedPeer, type ScriptedPeerOptions, VirtualClock } from '../src/testing/index.js'

/** A connection to a scripted peer, in virtual time. */
export interface Rig {
  readonly clock: VirtualClock
  readonly peer: ScriptedPeer
  readonly connection: Connection
}

/** A rig whose connection dials; it is not up yet. */
export function dialling(
  peerOptions: Omit<ScriptedPeerOptions, 'clock'> = {},
  options: Partial<ConnectionOptions> = {},
  change?: (peer: ScriptedPeer) => void,
): Rig {
  const clock = new VirtualClock()
  const peer = new ScriptedPeer({ clock, ...peerOptions })
  change?.(peer)
  const connection = createConnection({
    uri: peer.address,
    ...options,
    environment: { clock, random: () => 0.5, ...options.environment },
  })
  return { clock, peer, connection }
}

/** A rig whose connection is up. */
export async function connected(
  peerOptions: Omit<ScriptedPeerOptions, 'clock'> = {},
  options: Partial<ConnectionOptions> = {},
): Promise<Rig> {
  const rig = dialling(peerOptions, options)
  await rig.clock.run(rig.connection.connect())
  return rig
}

/** How a promise ended: its value, or what it rejected with. */
export type Outcome<T> = { readonly value: T } | { readonly error: OrbweaverError }

export function outcome<T>(promise: Promise<T>): Promise<Outcome<T>> {
  return promise.then(
    (value) => ({ value }),
    (error: unknown) => ({ error: error as OrbweaverError }),
  )
}

/** The error a promise rejects with. @throws Error when it resolves */
export async function failure(promise: Promise<unknown>): Promise<OrbweaverError> {
  const end = await outcome(promise)
  if ('value' in end) throw new Error(`It resolved with ${JSON.stringify(end.value)}`)
  return end.error
}

/** Counts how a request ended; a second end is an error of the connection. */
export class CountingSink implements ReplySink {
  replies: Reply[] = []
  errors: OrbweaverError[] = []
  pushes: Reply[] = []

  get ends(): number {
    return this.replies.length + this.errors.length
  }

  done(reply: Reply): void {
    this.replies.push(reply)
  }

  failed(error: OrbweaverError): void {
    this.errors.push(error)
  }

  push(reply: Reply): void {
    this.pushes.push(reply)
  }
}

/** A repeatable source of chance: mulberry32. */
export function seeded(seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let t = Math.imul(state ^ (state >>> 15), 1 | state)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296
  }
}
