/**
 * Addresses as text. Pure: every form that Tarantool's own URI parser takes is understood the same way, and whatever could
 * be read in two ways is refused with advice instead of being guessed: a password must never become part of a host name.
 */
import { InvalidArgumentError } from '@orbweaver/iproto'
import type { Address } from './transport.js'

/** What an address string says. */
export interface ParsedUri {
  readonly address: Address
  /** Absent: no user is named, the session is guest's. */
  readonly user: string | undefined
  readonly password: string | undefined
}

/** 0 is a port to listen on: any that is free. Nobody can be dialled there. */
type LowestPort = 0 | 1

/** The port of an address that names none, as in Tarantool's examples and tools. */
export const DEFAULT_PORT = 3301

/**
 * Reads an address with or without credentials: `3301`, `localhost`, `host:3301`, `[::1]:3301`, `tcp://host:3301/`,
 * `unix/:/run/a.sock`, `/run/a.sock`, `./a.sock`, each optionally behind `user@` or `user:password@`.
 * Percent escapes in user and password are decoded (`%40` is `@`).
 * @throws InvalidArgumentError naming the part at fault; credentials never appear in its message
 * @example parseUri('alice:p%40ss@[::1]:3301') // { address: { host: '::1', port: 3301 }, user: 'alice', password: 'p@ss' }
 */
export function parseUri(text: string): ParsedUri {
  return readUri(text, 1)
}

function readUri(text: string, lowestPort: LowestPort): ParsedUri {
  if (typeof text !== 'string') throw refuse(`is ${describe(text)}, expected a text such as "localhost:3301"`)
  if (text.trim() !== text || text === '') throw refuse(text === '' ? 'is empty' : 'has white space around it')
  const { rest, isUnixScheme } = withoutScheme(text)
  const at = rest.lastIndexOf('@')
  const { user, password } = at < 0 ? { user: undefined, password: undefined } : parseCredentials(rest.slice(0, at))
  const target = rest.slice(at + 1)
  if (target === '') throw refuse('has no host behind the "@"')
  return { address: parseTarget(target, isUnixScheme, lowestPort), user, password }
}

/**
 * Reads an address that carries no credentials.
 * @throws InvalidArgumentError as `parseUri`, and when there are credentials
 */
export function parseAddress(text: string): Address {
  return withoutCredentials(readUri(text, 1))
}

/** Reads an address to listen on: as `parseAddress`, where the port 0 asks the system for a free one. @throws as it */
export function parseListenAddress(text: string): Address {
  return withoutCredentials(readUri(text, 0))
}

function withoutCredentials({ address, user }: ParsedUri): Address {
  if (user !== undefined) throw refuse('holds credentials where only an address belongs')
  return address
}

/** The address as people write it and as `parseAddress` reads it back, without credentials. A connect function is `in-process`. */
export function formatAddress(address: Address): string {
  if ('connect' in address) return 'in-process'
  if ('path' in address) return `unix/:${address.path}`
  return `${address.host.includes(':') ? `[${address.host}]` : address.host}:${String(address.port)}`
}

/**
 * What is wrong with an address given as an object, in words, or undefined.
 * @param lowestPort - 1 for dialling, 0 for listening
 */
export function addressProblem(address: unknown, lowestPort: LowestPort = 1): string | undefined {
  if (typeof address !== 'object' || address === null) return `expected an address, got ${describe(address)}`
  if ('connect' in address) {
    return typeof address.connect === 'function'
      ? undefined
      : `connect must be a function, got ${describe(address.connect)}`
  }
  if ('path' in address)
    return typeof address.path === 'string'
      ? pathProblem(address.path)
      : `path must be a string, got ${describe(address.path)}`
  if (!('host' in address)) return 'an address has host and port, or path, or connect'
  if (typeof address.host !== 'string' || address.host === '')
    return `host must be a non-empty string, got ${describe(address.host)}`
  const port = 'port' in address ? address.port : undefined
  if (typeof port !== 'number' || !Number.isInteger(port) || port < lowestPort || port > 65_535) {
    return `port must be an integer in ${String(lowestPort)}..65535, got ${describe(port)}`
  }
  return undefined
}

function withoutScheme(text: string): { rest: string; isUnixScheme: boolean } {
  const scheme = /^([a-z][a-z0-9+.-]*):\/\//i.exec(text)
  if (scheme === null) return { rest: text, isUnixScheme: false }
  const name = (scheme[1] ?? '').toLowerCase()
  const rest = text.slice(scheme[0].length)
  if (name === 'unix') return { rest, isUnixScheme: true }
  if (name === 'tcp' || name === 'tarantool') return { rest, isUnixScheme: false }
  if (TLS_SCHEMES.has(name)) throw refuse(`asks for an encrypted transport (${name}://), ${TLS_ADVICE}`)
  throw refuse(`has the scheme "${name}", expected tcp:// or unix:// or none`)
}

function parseCredentials(text: string): { user: string; password: string | undefined } {
  const colon = text.indexOf(':')
  const user = colon < 0 ? text : text.slice(0, colon)
  const password = colon < 0 ? undefined : text.slice(colon + 1)
  for (const [part, name] of [
    [user, 'user name'],
    [password ?? '', 'password'],
  ] as const) {
    const ambiguous = /[@:/?#]/.exec(part)
    if (ambiguous !== null) {
      throw refuse(
        `has an unescaped "${ambiguous[0]}" in its ${name}: write it as ${escapeOf(ambiguous[0])}, or give user and password as options`,
      )
    }
  }
  if (user === '') {
    throw refuse(password === undefined ? 'has an empty user name before the "@"' : 'has a password but no user name')
  }
  return {
    user: decode(user, 'user name'),
    password: password === undefined ? undefined : decode(password, 'password'),
  }
}

function decode(text: string, part: string): string {
  const broken = /%(?![0-9a-f]{2})/i.test(text)
  try {
    if (!broken) return decodeURIComponent(text)
  } catch (error) {
    throw refuse(`has percent escapes in its ${part} that are not UTF-8: give user and password as options`, error)
  }
  throw refuse(`has a "%" in its ${part} that starts no escape: write it as %25, or give user and password as options`)
}

function parseTarget(target: string, isUnixScheme: boolean, lowestPort: LowestPort): Address {
  const spelled = target.startsWith('unix/:')
  if (spelled || isUnixScheme || target.startsWith('/') || target.startsWith('./') || target.startsWith('../')) {
    const path = withoutQuery(spelled ? target.slice('unix/:'.length) : target)
    const problem = pathProblem(path)
    if (problem !== undefined) throw refuse(problem)
    return { path }
  }
  const place = withoutQuery(target).replace(/\/$/, '')
  const slash = place.indexOf('/')
  if (slash >= 0) {
    throw refuse(
      `has "${place.slice(slash)}" behind its host; a socket path is written as unix/:path, an absolute path, or ./path`,
    )
  }
  if (place.includes('#')) throw refuse('has a "#"; a fragment means nothing here')
  return parseHostAndPort(place, lowestPort)
}

function parseHostAndPort(place: string, lowestPort: LowestPort): Address {
  const bracketed = /^\[([^\]]*)\](?::(.*))?$/.exec(place)
  if (bracketed !== null) {
    const host = bracketed[1] ?? ''
    if (!/^[0-9a-f:.]+(%[\w.-]+)?$/i.test(host) || !host.includes(':'))
      throw refuse(`has "${host}" in brackets, which is no IPv6 address`)
    return { host, port: bracketed[2] === undefined ? DEFAULT_PORT : parsePort(bracketed[2], lowestPort) }
  }
  if (/^\d+$/.test(place)) return { host: 'localhost', port: parsePort(place, lowestPort) }
  const colons = place.split(':').length - 1
  if (colons > 1) {
    throw refuse(
      `has several ":" ("${place}"); an IPv6 address stands in brackets, as in [::1]:${String(DEFAULT_PORT)}`,
    )
  }
  const [host = '', port] = place.split(':')
  if (host === '') throw refuse('has no host before the ":"')
  if (!/^[\p{L}\p{N}_.-]+$/u.test(host)) throw refuse(`has a character in its host "${host}" that no host name has`)
  return { host, port: port === undefined ? DEFAULT_PORT : parsePort(port, lowestPort) }
}

function parsePort(text: string, lowestPort: LowestPort): number {
  const port = /^\d{1,9}$/.test(text) ? Number(text) : Number.NaN
  if (!(port >= lowestPort && port <= 65_535))
    throw refuse(`has the port "${text}", expected a number in ${lowestPort}..65535`)
  return port
}

/** Tarantool takes parameters behind "?"; the only one that means something to a client is the transport. */
function withoutQuery(target: string): string {
  const mark = target.indexOf('?')
  if (mark < 0) return target
  for (const [name, value] of new URLSearchParams(target.slice(mark + 1))) {
    if (name !== 'transport') throw refuse(`has the parameter "${name}", which is not known`)
    if (value !== 'plain') throw refuse(`asks for the transport "${value}", ${TLS_ADVICE}`)
  }
  return target.slice(0, mark)
}

function pathProblem(path: string): string | undefined {
  if (path === '') return 'has an empty socket path'
  const bytes = Buffer.byteLength(path)
  if (bytes > MAX_PATH_BYTES)
    return `has a socket path of ${String(bytes)} bytes, at most ${String(MAX_PATH_BYTES)} fit into a socket address`
  if (path.includes('\0')) return 'has a NUL character in its socket path'
  return undefined
}

function refuse(problem: string, cause?: unknown): InvalidArgumentError {
  return new InvalidArgumentError(`The address ${problem}`, cause === undefined ? undefined : { cause })
}

function escapeOf(character: string): string {
  return `%${character.charCodeAt(0).toString(16).toUpperCase()}`
}

function describe(value: unknown): string {
  return typeof value === 'string'
    ? `the string '${value}'`
    : typeof value === 'number'
      ? String(value)
      : value === null
        ? 'null'
        : typeof value
}

const TLS_SCHEMES: ReadonlySet<string> = new Set(['ssl', 'tls', 'tarantools', 'tcps'])
const TLS_ADVICE =
  'which an address string cannot set up: give { connect: () => socketTransport(tls.connect(…)) } as the address'
/** `sun_path` of Linux less its final NUL; Tarantool refuses longer ones too. */
const MAX_PATH_BYTES = 107
