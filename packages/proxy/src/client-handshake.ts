/* AUTH and ID of one client: answered by the proxy, and nothing of the client goes on before they are. */
import { BodyReader, type BoxError, ErrorCode, Key } from '@orbweaver/iproto'
import type { ClientSession } from '@orbweaver/server'
import { asBoxError } from './auth.js'
import type { ClientHost } from './client-host.js'
import { proxyErrors } from './errors.js'
import type { Login } from './login.js'
import { okReply, type SyncHalves } from './reply.js'
import type { QueuedRequest } from './request-queue.js'
import { ENCODING_FEATURES } from './target.js'

export interface HandshakeClient {
  readonly session: ClientSession
  readonly login: Login
  readonly hasLeft: boolean
  /** Takes over the login and the hold on it. */
  becomes(login: Login): void
  /** Features that change what a target sends are others now. */
  maskChanged(): void
  answer(chunks: readonly Uint8Array[]): void
  fail(request: SyncHalves, error: BoxError): void
}

export class ClientHandshake {
  readonly #client: HandshakeClient
  readonly #host: ClientHost
  /** Of the features agreed on, those that change what a target sends. */
  #mask: readonly number[] = NO_MASK
  #failedLogins = 0

  constructor(client: HandshakeClient, host: ClientHost) {
    this.#client = client
    this.#host = host
  }

  get mask(): readonly number[] {
    return this.#mask
  }

  async logIn(request: QueuedRequest): Promise<void> {
    const client = this.#client
    const host = this.#host
    const outcome = await host.authenticator.judge(request.body, client.session.salt, this.#mask)
    if (outcome.login === undefined) {
      await this.#refuse(request, outcome.error, outcome.isStale)
      return
    }
    const { login } = outcome
    const isTooMany = login.user !== client.login.user && !host.mayLogIn(login.user)
    if (client.hasLeft || isTooMany) {
      host.logins.release(login)
      const what = `${host.limits.maxClientsPerUser} clients of user '${login.user}'`
      client.fail(request, proxyErrors.tooManyClients(what))
      return
    }
    host.counters.logins++
    host.counters.tally.add('auth_total', { result: 'ok', mode: host.loginMode })
    this.#failedLogins = 0
    client.becomes(login)
    client.answer(okReply(request, host.schemaVersion))
  }

  /* ID (73): 0x54 VERSION uint, 0x55 FEATURES array of uint; the reply adds 0x5b AUTH_TYPE. An absent body is error 20. */
  async identify(request: QueuedRequest): Promise<void> {
    const client = this.#client
    const host = this.#host
    try {
      if (request.body.length === 0) throw proxyErrors.malformed('request body')
      const wanted = new BodyReader(request.body).array(Key.features) ?? []
      const agreement = await host.agreement()
      if (agreement === undefined) throw proxyErrors.unknownType(request.type)
      const agreed = new Set(wanted.filter((feature): feature is number => agreement.features.has(feature as number)))
      client.session.features = agreed
      this.#mask = ENCODING_FEATURES.filter((feature) => agreed.has(feature))
      client.maskChanged()
      client.answer(
        okReply(request, host.schemaVersion, (out) => {
          out.mapHeader(3)
          out.uint(Key.version)
          out.uint(agreement.version)
          out.uint(Key.features)
          out.value([...agreement.features].toSorted((a, b) => a - b))
          out.uint(Key.authType)
          out.text('chap-sha1')
        }),
      )
    } catch (error) {
      client.fail(request, asBoxError(error))
    }
  }

  async #refuse(request: QueuedRequest, error: BoxError, isStale: boolean): Promise<void> {
    const { counters, clock, limits } = this.#host
    counters.badLogins++
    if (isStale) counters.staleLogins++
    const result = isStale ? 'stale' : error.boxCode === ErrorCode.noConnection ? 'backend_down' : 'refused'
    counters.tally.add('auth_total', { result, mode: this.#host.loginMode })
    this.#failedLogins++
    // Guessing has to cost time, and a mistyped password little.
    const delayMs = Math.min(FIRST_DELAY_MS * 2 ** (this.#failedLogins - 1), MAX_DELAY_MS)
    await new Promise<void>((resolve) => void clock.schedule(delayMs, resolve))
    this.#client.fail(request, error)
    if (this.#failedLogins >= limits.authFailuresPerConnection) this.#client.session.close()
  }
}

const NO_MASK: readonly number[] = []
const FIRST_DELAY_MS = 50
const MAX_DELAY_MS = 1_000
