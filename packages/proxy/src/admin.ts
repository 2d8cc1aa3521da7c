/*
 * The door for operators: HTTP with JSON, on an address of its own. It goes on working while the proxy is paused or ends. Who may
 * read may not change anything unless its token says so; without tokens it is for this machine only, and not for pages that a
 * browser on this machine happens to show.
 */
import { timingSafeEqual } from 'node:crypto'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { Address } from '@orbweaver/connection'
import { isObject, isOrbweaverError, type OptionRule, optionRule } from '@orbweaver/iproto'
import { FailoverError, type FailoverOptions, type FailoverReport } from './failover.js'
import type { MetricsPage } from './metrics.js'
import type { ReconfigurationReport } from './reconfiguration.js'
import type { ProxyStats } from './stats.js'
import type { ClientStatus, LaneStatus } from './status.js'

/** Where the door is, and for whom. */
export interface AdminOptions {
  /** Default `127.0.0.1`. Any other than a loopback address needs a `token`. */
  readonly host?: string
  /** 0: any free one. */
  readonly port: number
  /** Who shows it (`Authorization: Bearer …`) may do everything. */
  readonly token?: string
  /** Who shows it may look. Without it, looking needs `token` as well, if there is one. */
  readonly readToken?: string
  /** What `POST /reload` does: reads the configuration again. Absent: there is nothing to read. */
  readonly reload?: () => Promise<ReconfigurationReport>
}

/** What the door opens to. */
export interface AdminSubject {
  metrics(): Promise<MetricsPage>
  stats(): ProxyStats
  clients(limit?: number): readonly ClientStatus[]
  lanes(): readonly LaneStatus[]
  setRw(target: string): void
  setRo(targets: readonly string[]): void
  failOverTo(target: string, options?: FailoverOptions): Promise<FailoverReport>
  pause(): void
  resume(): void
  kill(client: number): boolean
}

export interface Admin {
  readonly address: Address
  close(): Promise<void>
}

/** A change of the master that was asked for here. */
interface Operation {
  readonly id: number
  readonly to: string
  state: 'running' | 'done' | 'failed'
  report?: FailoverReport
  error?: string
}

/** @throws the system's error when the address cannot be taken */
export function openAdmin(options: AdminOptions, subject: AdminSubject): Promise<Admin> {
  return new AdminDoor(options, subject).open()
}

/** An answer that is no success. */
class Refusal extends Error {
  readonly status: number

  constructor(status: number, message: string) {
    super(message)
    this.status = status
  }
}

type Query = URLSearchParams
type Body = Readonly<Record<string, unknown>>

class AdminDoor {
  readonly #options: AdminOptions
  readonly #subject: AdminSubject
  readonly #server: Server
  readonly #operations = new Map<number, Operation>()
  #lastOperation = 0
  readonly #reads: Readonly<Record<string, (query: Query) => unknown>>
  readonly #writes: Readonly<Record<string, (body: Body) => unknown>>

  constructor(options: AdminOptions, subject: AdminSubject) {
    this.#options = options
    this.#subject = subject
    this.#reads = {
      '/status': () => withoutTargets(subject.stats()),
      '/clients': (query) => ({ clients: subject.clients(limitOf(query)) }),
      '/lanes': () => ({ lanes: subject.lanes() }),
      '/targets': () => ({ targets: subject.stats().targets }),
      '/ops': () => ({ operations: [...this.#operations.values()] }),
    }
    this.#writes = {
      '/failover': (body) => this.#failOver(body),
      '/rw': (body) => done(subject.setRw(textOf(body, 'target'))),
      '/ro': (body) => done(subject.setRo(textsOf(body, 'targets'))),
      '/pause': () => done(subject.pause()),
      '/resume': () => done(subject.resume()),
      '/kill': (body) => this.#kill(body),
      '/reload': () => this.#reload(),
    }
    this.#server = createServer((request, response) => {
      this.#answer(request, response).catch((error: unknown) => response.destroy(error as Error))
    })
    this.#server.headersTimeout = this.#server.requestTimeout = REQUEST_TIMEOUT_MS
  }

  open(): Promise<Admin> {
    const { host = DEFAULT_HOST, port } = this.#options
    return new Promise((resolve, reject) => {
      this.#server.once('error', reject)
      this.#server.listen({ host, port }, () => {
        this.#server.off('error', reject)
        const bound = this.#server.address()
        const actual = typeof bound === 'object' && bound !== null ? bound.port : port
        resolve({ address: { host, port: actual }, close: () => this.#close() })
      })
    })
  }

  #close(): Promise<void> {
    return new Promise((resolve) => {
      this.#server.close(() => resolve())
      this.#server.closeAllConnections()
    })
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url ?? '/', 'http://admin')
    try {
      if (url.pathname === '/healthz') {
        reply(response, 200, { isAlive: true })
        return
      }
      if (url.pathname === '/readyz') {
        this.#replyReady(response)
        return
      }
      const isWrite = request.method === 'POST'
      this.#admit(request, isWrite)
      if (!isWrite && url.pathname === '/metrics') {
        const { contentType, text } = await this.#subject.metrics()
        response.writeHead(200, { 'content-type': contentType }).end(text)
        return
      }
      reply(response, 200, isWrite ? await this.#write(request, url.pathname) : this.#read(request, url))
    } catch (error) {
      if (!(error instanceof Refusal) && !isOrbweaverError(error)) throw error
      reply(response, error instanceof Refusal ? error.status : 400, { error: error.message })
    }
  }

  #replyReady(response: ServerResponse): void {
    const { rw, targets } = this.#subject.stats()
    const isReady = targets.some(({ name, state }) => name === rw && state === 'up')
    reply(response, isReady ? 200 : 503, { isReady, rw })
  }

  /** @throws Refusal */
  #admit(request: IncomingMessage, isWrite: boolean): void {
    const { token, readToken } = this.#options
    if (token === undefined && readToken === undefined) {
      // Names that lead here can be made by anybody; a page that uses one says so in this header.
      const name = (request.headers.host ?? '').replace(/:\d+$/, '')
      if (!HERE.test(name)) throw new Refusal(403, `Host ${name} is not here`)
      return
    }
    const shown = /^Bearer (.+)$/.exec(request.headers.authorization ?? '')?.[1] ?? ''
    if (isSameText(shown, token)) return
    if (!isWrite && isSameText(shown, readToken)) return
    if (isSameText(shown, readToken)) throw new Refusal(403, 'This token may look, and change nothing')
    throw new Refusal(401, 'A token is needed: Authorization: Bearer …')
  }

  #read(request: IncomingMessage, { pathname, searchParams }: URL): unknown {
    if (request.method !== 'GET')
      throw new Refusal(405, `${request.method ?? 'This'} is not for this door: GET or POST`)
    const operation = /^\/ops\/(\d+)$/.exec(pathname)
    if (operation !== null) {
      const known = this.#operations.get(Number(operation[1]))
      if (known === undefined) throw new Refusal(404, `There is no operation ${operation[1]}`)
      return known
    }
    return own(this.#reads, pathname)(searchParams)
  }

  async #write(request: IncomingMessage, pathname: string): Promise<unknown> {
    const run = own(this.#writes, pathname)
    // A form on somebody's page cannot send this type without asking first.
    if (!/^application\/json\b/.test(request.headers['content-type'] ?? ''))
      throw new Refusal(415, 'Send JSON, and say so: content-type: application/json')
    return run(await bodyOf(request))
  }

  #failOver(body: Body): Operation {
    const to = textOf(body, 'to')
    const operation: Operation = { id: ++this.#lastOperation, to, state: 'running' }
    const options: Record<string, unknown> = {}
    for (const [name, value] of Object.entries(body)) {
      if (name === 'to') continue
      const rule = FAILOVER_FIELDS.get(name)
      if (rule === undefined)
        throw new Refusal(400, `${name} is not known; there are to, ${[...FAILOVER_FIELDS.keys()].join(', ')}`)
      if (!rule.fits(value)) throw new Refusal(400, `${name} is not right, expected ${rule.expected}`)
      options[name] = value
    }
    this.#operations.set(operation.id, operation)
    if (this.#operations.size > MAX_OPERATIONS) this.#operations.delete(this.#operations.keys().next().value!)
    this.#subject.failOverTo(to, options).then(
      (report) => {
        operation.state = 'done'
        operation.report = report
      },
      (error: unknown) => {
        operation.state = 'failed'
        operation.error = error instanceof Error ? error.message : String(error)
        if (error instanceof FailoverError) operation.report = error.report
      },
    )
    return operation
  }

  #kill(body: Body): unknown {
    const { client } = body
    if (typeof client !== 'number') throw new Refusal(400, 'client is missing, expected the id of one')
    if (!this.#subject.kill(client)) throw new Refusal(404, `There is no client ${client}`)
    return done()
  }

  #reload(): Promise<ReconfigurationReport> {
    if (this.#options.reload === undefined) throw new Refusal(404, 'There is no configuration file to read again')
    return this.#options.reload()
  }
}

/** @throws Refusal */
function own<T>(routes: Readonly<Record<string, T>>, pathname: string): T {
  const route = Object.hasOwn(routes, pathname) ? routes[pathname] : undefined
  if (route === undefined)
    throw new Refusal(404, `There is no ${pathname}; there are ${Object.keys(routes).join(', ')}`)
  return route
}

async function bodyOf(request: IncomingMessage): Promise<Body> {
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of request as AsyncIterable<Buffer>) {
    bytes += chunk.length
    if (bytes > MAX_BODY_BYTES) throw new Refusal(413, `The body is larger than ${MAX_BODY_BYTES} bytes`)
    chunks.push(chunk)
  }
  const text = Buffer.concat(chunks).toString()
  if (text === '') return {}
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch (error) {
    throw new Refusal(400, `The body is not JSON: ${(error as Error).message}`)
  }
  if (!isObject(value)) throw new Refusal(400, 'The body is no object')
  return value
}

function textOf(body: Body, name: string): string {
  const value = body[name]
  if (typeof value !== 'string') throw new Refusal(400, `${name} is missing, expected the name of a target`)
  return value
}

function textsOf(body: Body, name: string): string[] {
  const value = body[name]
  if (!Array.isArray(value) || !value.every((item) => typeof item === 'string'))
    throw new Refusal(400, `${name} is missing, expected a list of names of targets`)
  return value
}

function limitOf(query: Query): number {
  const limit = Number(query.get('limit') ?? DEFAULT_CLIENTS)
  if (!Number.isInteger(limit) || limit < 1) throw new Refusal(400, 'limit is no number from 1 on')
  return limit
}

function withoutTargets({ targets: _targets, ...rest }: ProxyStats): object {
  return rest
}

function done(_nothing?: void): object {
  return { isDone: true }
}

function reply(response: ServerResponse, status: number, value: unknown): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(value))
}

/** In the same time, whatever is shown. */
function isSameText(shown: string, expected: string | undefined): boolean {
  if (expected === undefined) return false
  const [a, b] = [Buffer.from(shown), Buffer.from(expected)]
  return a.length === b.length && timingSafeEqual(a, b)
}

/** Whether an address is of this machine alone. */
export function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || /^127\.\d+\.\d+\.\d+$/.test(host)
}

/** Names that nobody else can make lead here. */
const HERE = /^(localhost|[\d.]+|\[[\da-f:]+\])$/i
const DEFAULT_HOST = '127.0.0.1'
const REQUEST_TIMEOUT_MS = 10_000
const MAX_BODY_BYTES = 65_536
const MAX_OPERATIONS = 100
const DEFAULT_CLIENTS = 1_000
const duration: OptionRule = {
  expected: 'milliseconds, a number above 0',
  fits: (value) => typeof value === 'number' && value > 0,
}
const FAILOVER_FIELDS: ReadonlyMap<string, OptionRule> = new Map([
  ['prepareTimeoutMs', duration],
  ['drainTimeoutMs', duration],
  ['handoverTimeoutMs', duration],
  ['failoverTimeoutMs', duration],
  ['onDrainTimeout', optionRule.oneOf('rollback', 'force')],
  ['force', optionRule.flag],
])
