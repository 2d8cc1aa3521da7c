/*
 * Logins without a list of users. A client is greeted with the salt of a connection that was opened to the master for it;
 * its AUTH goes there as it came, so the storage itself judges it. Logged in as the user, that connection may read the
 * user's own row in `_vuser`, and with the hash from there the secret for further connections follows from the proof.
 * Facts: Tarantool 2.6.0 and 3.2.1 (a user without any rights may read its own row there, hash included).
 */
import type { ChannelSink, Clock, FrameChannel } from '@orbweaver/connection'
import {
  type BoxError,
  decodeData,
  FrameHeader,
  FrameWriter,
  isOrbweaverError,
  readError,
  readReply,
  rawRequest,
  type Request,
  RequestType,
  selectRequest,
  verifyChapSha1,
} from '@orbweaver/iproto'
import type { CredentialSource, Proof } from './auth.js'
import { proxyErrors } from './errors.js'

export interface LearnParts {
  readonly clock: Clock
  readonly waitMs: number
  /** Opens a connection to the master, as guest. Rejects when it cannot be reached. */
  open(): Promise<FrameChannel>
}

export class LearnCredentials implements CredentialSource {
  readonly #parts: LearnParts
  /** By the salt that was handed out. */
  readonly #standbys = new Map<Uint8Array, Standby>()

  constructor(parts: LearnParts) {
    this.#parts = parts
  }

  /** Connections that clients were greeted with. */
  get standbys(): number {
    return this.#standbys.size
  }

  hash2(): undefined {
    return undefined
  }

  async salt(): Promise<Uint8Array> {
    const standby = new Standby(await this.#parts.open(), this.#parts.clock, this.#parts.waitMs)
    const { salt } = standby
    this.#standbys.set(salt, standby)
    // A client that went away while it was greeted never comes to claim it.
    standby.cancelUnclaimed = this.#parts.clock.schedule(UNCLAIMED_MS, () => this.release(salt))
    return salt
  }

  claim(salt: Uint8Array): void {
    this.#standbys.get(salt)?.cancelUnclaimed()
  }

  release(salt: Uint8Array): void {
    const standby = this.#standbys.get(salt)
    this.#standbys.delete(salt)
    standby?.close()
  }

  async prove({ user, proof, salt, body }: Proof): Promise<Uint8Array | BoxError> {
    const standby = this.#standbys.get(salt)
    if (standby === undefined) return proxyErrors.noTarget()
    const login = await standby.ask(rawRequest(RequestType.auth, 'session', body))
    if (login.error !== undefined) return login.error
    const row = await standby.ask(selectRequest({ space: VUSER, index: NAME_INDEX, key: [user] }))
    if (row.error !== undefined) return row.error
    const hash2 = hashIn(decodeData<unknown[][]>(readReply(row.frame, row.header))[0])
    const hash1 = hash2 === undefined ? undefined : verifyChapSha1(salt, hash2, proof)
    return hash1 ?? proxyErrors.badLogin()
  }

  close(): void {
    for (const salt of this.#standbys.keys()) this.release(salt)
  }
}

/** `{'chap-sha1': base64}` in the fifth field of a row of `_user` or `_vuser`; undefined without a password. */
export function hashIn(row: readonly unknown[] | undefined): Buffer | undefined {
  const auth = row?.[AUTH_FIELD]
  const text: unknown =
    auth instanceof Map ? auth.get('chap-sha1') : (auth as Record<string, unknown> | undefined)?.['chap-sha1']
  if (typeof text !== 'string') return undefined
  const hash = Buffer.from(text, 'base64')
  return hash.length === HASH_BYTES ? hash : undefined
}

type Answer =
  | { readonly error?: undefined; readonly frame: Buffer; readonly header: FrameHeader }
  | { readonly error: BoxError }

/** One connection to the master with a request at a time. */
class Standby implements ChannelSink {
  readonly salt: Uint8Array
  cancelUnclaimed: () => void = () => undefined
  readonly #channel: FrameChannel
  readonly #clock: Clock
  readonly #waitMs: number
  #lastSync = 0
  #waiting: { readonly sync: number; settle(answer: Answer): void } | undefined

  constructor(channel: FrameChannel, clock: Clock, waitMs: number) {
    this.#channel = channel
    this.#clock = clock
    this.#waitMs = waitMs
    this.salt = channel.salt
    channel.attach(this)
  }

  ask(request: Request): Promise<Answer> {
    const writer = new FrameWriter({ slabBytes: 1024 })
    const sync = ++this.#lastSync
    writer.request(request, sync)
    return new Promise((resolve) => {
      const cancel = this.#clock.schedule(this.#waitMs, () =>
        settle({ error: proxyErrors.notReached(this.#channel.peer, 'it does not answer a login') }),
      )
      const settle = (answer: Answer): void => {
        cancel()
        this.#waiting = undefined
        resolve(answer)
      }
      this.#waiting = { sync, settle }
      this.#channel.write(writer.take())
    })
  }

  frame(frame: Buffer): void {
    const header = new FrameHeader()
    try {
      header.read(frame)
      if (header.sync !== this.#waiting?.sync) return
      const isError = (header.type & RequestType.errorFlag) !== 0
      this.#waiting.settle(isError ? { error: readError(frame, header, 'session') } : { frame, header })
    } catch (error) {
      if (!isOrbweaverError(error)) throw error
      this.#channel.destroy(error)
    }
  }

  drain(): void {
    // A login is small: nothing is held back.
  }

  closed(): void {
    this.#waiting?.settle({ error: proxyErrors.notReached(this.#channel.peer, 'the connection was lost') })
  }

  close(): void {
    this.cancelUnclaimed()
    this.#channel.destroy(new Error('its client is gone'))
  }
}

const VUSER = 305
/** The index of `_user` and `_vuser` over the name. */
const NAME_INDEX = 2
const AUTH_FIELD = 4
const HASH_BYTES = 20
const UNCLAIMED_MS = 10_000
