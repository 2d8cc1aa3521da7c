import { InvalidArgumentError, MalformedFrameError } from './errors.js'

/* The first thing a server says, as text. Source: Tarantool src/box/xrow.c, greeting_encode
 *   0..63    "Tarantool <version> (Binary) <instance uuid>", padded with spaces, byte 63 is a line feed
 *   64..127  base64 of the salt (44 characters for 32 bytes), padded with spaces, byte 127 is a line feed */

/** Length of a greeting; frames may follow it in the same read. */
export const GREETING_BYTES = 128

/** What a server says of itself before anything else. */
export interface Greeting {
  /** `3.2.1`, or with a build suffix: `2.11.0-entrypoint-113-g803baaf`. */
  readonly version: string
  readonly protocol: 'Binary'
  /** Of the instance, 36 characters; empty when a long build suffix of the version left no room for it. */
  readonly uuid: string
  /** At least 20 bytes; chap-sha1 uses the first 20. */
  readonly salt: Uint8Array
}

/**
 * @param bytes - the first 128 bytes of a connection, or fewer when the peer closed before
 * @throws MalformedFrameError that says what the peer seems to be: a console, HTTP, TLS, …; `executed` is `no`
 */
export function parseGreeting(bytes: Uint8Array): Greeting {
  const head = Buffer.from(bytes.buffer, bytes.byteOffset, Math.min(bytes.length, GREETING_BYTES))
  const text = head.toString('latin1')
  const match = FIRST_LINE.exec(text.slice(0, LINE_BYTES))
  const [, version = '', protocol = '', rest = ''] = match ?? []
  const uuid = uuidOf(rest, version)
  if (protocol !== 'Binary' || uuid === undefined || head[GREETING_BYTES - 1] !== LINE_FEED) {
    throw notTarantool(describePeer(head, text))
  }
  const encoded = text.slice(LINE_BYTES, GREETING_BYTES - 1).trimEnd()
  if (!BASE64.test(encoded)) throw notTarantool('a Tarantool whose salt is not base64')
  const salt = Buffer.from(encoded, 'base64')
  if (salt.length < MIN_SALT_BYTES)
    throw notTarantool(`a Tarantool with a salt of ${salt.length} bytes instead of at least 20`)
  return { version, protocol, uuid, salt: Uint8Array.from(salt) }
}

/** The 128 bytes of a greeting. @param greeting.salt - 20 to 44 bytes; Tarantool uses 32 */
export function formatGreeting(greeting: {
  readonly version: string
  readonly uuid: string
  readonly salt: Uint8Array
}): Buffer {
  const first = `Tarantool ${greeting.version} (Binary) ${greeting.uuid}`
  const salt = Buffer.from(greeting.salt).toString('base64')
  if (first.length >= LINE_BYTES || salt.length >= LINE_BYTES || greeting.salt.length < MIN_SALT_BYTES) {
    throw new InvalidArgumentError(
      `A greeting has no room for version ${greeting.version} and a salt of ${greeting.salt.length} bytes`,
    )
  }
  return Buffer.from(`${first.padEnd(LINE_BYTES - 1)}\n${salt.padEnd(LINE_BYTES - 1)}\n`, 'latin1')
}

const LINE_BYTES = 64
const LINE_FEED = 0x0a
const MIN_SALT_BYTES = 20
const FIRST_LINE = /^Tarantool +(\d+\.\d+\.\d+\S*) +\(([^)]*)\)(?: +(\S*))? *\n$/
const UUID = /^[\da-f]{8}-[\da-f]{4}-[\da-f]{4}-[\da-f]{4}-[\da-f]{12}$/i
const BASE64 = /^[A-Za-z\d+/]+={0,2}$/

/** @returns undefined when there has to be a uuid and is none */
function uuidOf(text: string, version: string): string | undefined {
  if (UUID.test(text)) return text
  // 63 characters hold a version of 7 and a uuid. A longer one pushes it out, whole or in part.
  return version.length > 7 && /^[\da-f-]{0,35}$/i.test(text) ? '' : undefined
}

function notTarantool(what: string): MalformedFrameError {
  return new MalformedFrameError(`The peer does not speak IPROTO: it seems to be ${what}`, { executed: 'no' })
}

/** In order: the first that matches names the peer. */
const PEERS: readonly (readonly [pattern: RegExp, name: string])[] = [
  [
    /^Tarantool \S+ \(Lua console\)/,
    'a text console of Tarantool (its `console.listen` port; use that of `box.cfg.listen`)',
  ],
  [/^HTTP\/\d/, 'an HTTP server'],
  [/^<(!doctype|html|\?xml)/i, 'an HTTP server'],
  [/^\x15\x03|^\x16\x03/, 'a TLS server (encrypted connections need the transport option)'],
  [/^SSH-/, 'an SSH server'],
  [/^220[ -]/, 'a mail or FTP server'],
  [/^[-+]\w+ .*\r\n/, 'a Redis server'],
  [/^.{3}\0\x0a[\d.]/s, 'a MySQL server'],
]

function describePeer(head: Buffer, text: string): string {
  const known = PEERS.find(([pattern]) => pattern.test(text))
  if (known !== undefined) return known[1]
  const protocol = /^Tarantool \S+ \(([^)]*)\)/.exec(text)?.[1]
  if (protocol !== undefined && protocol !== 'Binary')
    return `a Tarantool that speaks ${JSON.stringify(protocol)} on this port`
  if (head.length === 0) return 'a server that waits for us to speak first, or closed at once'
  if (text.startsWith('Tarantool ')) {
    return head.length < GREETING_BYTES
      ? `a Tarantool whose greeting ended after ${head.length} of ${GREETING_BYTES} bytes`
      : 'a Tarantool with a greeting of an unknown form'
  }
  return `something that starts with ${JSON.stringify(text.slice(0, 24))}`
}
