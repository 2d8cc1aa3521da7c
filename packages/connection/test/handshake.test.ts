import { readFileSync } from 'node:fs'
import {
  authRequest,
  BodyReader,
  BoxError,
  chapSha1,
  formatGreeting,
  FrameHeader,
  FrameReader,
  FrameWriter,
  hash1Of,
  Key,
  parseGreeting,
  patchReplySync,
  RequestType,
} from '@orbweaver/iproto'
import { describe, expect, it } from 'vitest'
import { AuthError, ConnectError } from '../src/errors.js'
import { type Credential, Handshake, isLoginRefusal, versionNumber } from '../src/handshake.js'

interface Vector {
  readonly name: string
  readonly case: string
  readonly direction: string
  readonly hex: string
  readonly inputs?: { readonly user: string; readonly password: string; readonly salt_hex: string }
}

/** Frames captured from Tarantool 2.6.0 and 3.2.1. */
const vectors = JSON.parse(readFileSync(new URL('./data/handshake.json', import.meta.url), 'utf8')) as Vector[]

function bytesOf(name: string): Buffer {
  const vector = vectors.find((candidate) => candidate.name === name)
  if (vector === undefined) throw new Error(`No vector ${name}`)
  return Buffer.from(vector.hex, 'hex')
}

function inputsOf(name: string): { user: string; password: string; salt: Buffer } {
  const inputs = vectors.find((candidate) => candidate.name === name)?.inputs
  if (inputs === undefined) throw new Error(`No inputs ${name}`)
  return { user: inputs.user, password: inputs.password, salt: Buffer.from(inputs.salt_hex, 'hex') }
}

const SALT = Buffer.alloc(32, 7)
const UUID = '01234567-89ab-4cde-8f01-23456789abcd'

function greeting(version: string, salt: Uint8Array = SALT): Buffer {
  return formatGreeting({ version, uuid: UUID, salt })
}

function handshake(credential?: Credential, encrypted = false): Handshake {
  return new Handshake({ credential, features: [0, 1, 2, 3, 4, 5, 6, 11], encrypted, peer: 'db:3301' })
}

interface Sent {
  readonly type: number
  readonly sync: number
  readonly body: BodyReader
}

function framesOf(chunks: Buffer[]): Sent[] {
  const reader = new FrameReader({ maxFrameBytes: 1 << 20 })
  for (const chunk of chunks) reader.push(chunk)
  const frames: Sent[] = []
  for (let frame = reader.next(); frame !== undefined; frame = reader.next()) {
    const header = new FrameHeader()
    header.read(frame)
    frames.push({
      type: header.type,
      sync: Number(header.sync),
      body: new BodyReader(frame.subarray(header.bodyStart, header.bodyEnd)),
    })
  }
  return frames
}

/** A captured reply with the sync of the request it shall answer. */
function answering(reply: Buffer, sync: number): Buffer {
  const copy = Buffer.from(reply)
  expect(patchReplySync(copy, Math.floor(sync / 2 ** 32), sync >>> 0)).toBe(true)
  return copy
}

function reply(type: number, sync: number): Buffer {
  const writer = new FrameWriter()
  writer.beginReply(type, Math.floor(sync / 2 ** 32), sync >>> 0, 80)
  writer.mapHeader(0)
  writer.end()
  return Buffer.concat(writer.take())
}

describe('Handshake', () => {
  it('writes ID and AUTH together behind the greeting of a server that has ID', () => {
    const shake = handshake({ user: 'alice', password: 'secret' })
    const sent = framesOf(shake.greeting(greeting('3.2.1')))
    expect(sent.map((frame) => frame.type)).toEqual([RequestType.id, RequestType.auth])
    expect(sent[0]?.body.value(Key.features)).toEqual([0, 1, 2, 3, 4, 5, 6, 11])
    expect(sent[1]?.body.text(Key.userName)).toBe('alice')
  })

  it('does not send ID to a server older than 2.10, and finds no features there', () => {
    const shake = handshake({ user: 'alice', password: 'secret' })
    const sent = framesOf(shake.greeting(bytesOf('greeting@2.6.0')))
    expect(sent.map((frame) => frame.type)).toEqual([RequestType.auth])
    shake.frame(answering(bytesOf('auth_ok@2.6.0.response'), sent[0]?.sync ?? 0))
    expect(shake.result?.features.size).toBe(0)
    expect(shake.result?.greeting.version).toMatch(/^2\.6\.0/)
  })

  it.each(['auth_ok@2.6.0', 'auth_ok@3.2.1', 'auth_ok_empty_password@2.6.0', 'auth_ok_empty_password@3.2.1'])(
    'proves the password of %s as the captured request did',
    (name) => {
      const { user, password, salt } = inputsOf(`${name}.request`)
      const [sent] = framesOf(handshake({ user, password }).greeting(greeting('2.6.0', salt)))
      const [captured] = framesOf([bytesOf(`${name}.request`)])
      expect(sent?.body.slice(Key.tuple)).toEqual(captured?.body.slice(Key.tuple))
      expect(sent?.body.text(Key.userName)).toBe(user)
    },
  )

  it('proves a password known only by its hash1', () => {
    const [sent] = framesOf(handshake({ user: 'alice', hash1: hash1Of('secret') }).greeting(greeting('2.6.0')))
    const writer = new FrameWriter()
    writer.request(authRequest('alice', 'chap-sha1', chapSha1(SALT, 'secret')), 1)
    expect(sent?.body.slice(Key.tuple)).toEqual(framesOf(writer.take())[0]?.body.slice(Key.tuple))
  })

  it('agrees on what both sides have, from a captured reply', () => {
    const shake = handshake()
    const [id] = framesOf(shake.greeting(bytesOf('greeting@3.2.1')))
    expect(shake.stage).toBe('id')
    shake.frame(answering(bytesOf('id_full.response'), id?.sync ?? 0))
    expect([...(shake.result?.features ?? [])]).toEqual([0, 1, 2, 3, 4, 5, 6, 11])
  })

  it('takes error 48 to ID for a server without features', () => {
    const shake = handshake()
    const [id] = framesOf(shake.greeting(greeting('2.10.0')))
    shake.frame(answering(bytesOf('id_on_2.6.0.response'), id?.sync ?? 0))
    expect(shake.result?.features.size).toBe(0)
  })

  it.each(['auth_wrong_password@2.6.0', 'auth_wrong_password@3.2.1', 'auth_pap_sha256@3.2.1'])(
    'reports the refusal %s as AuthError with the server’s answer',
    (name) => {
      const shake = handshake({ user: 'alice', password: 'wrong' })
      const auth = framesOf(shake.greeting(greeting('2.6.0'))).at(-1)
      let error: unknown
      try {
        shake.frame(answering(bytesOf(`${name}.response`), auth?.sync ?? 0))
      } catch (thrown) {
        error = thrown
      }
      expect(error).toBeInstanceOf(AuthError)
      expect((error as AuthError).cause).toBeInstanceOf(BoxError)
      expect((error as AuthError).user).toBe('alice')
      expect(isLoginRefusal(error)).toBe(true)
      expect(shake.result).toBeUndefined()
    },
  )

  it.each([116, 274, 279])(
    'takes error %i to AUTH for an instance that is not ready, not for a refused user',
    (code) => {
      const shake = handshake({ user: 'alice', password: 'p' })
      const auth = framesOf(shake.greeting(greeting('2.6.0'))).at(-1)
      const sync = auth?.sync ?? 0
      expect(() => shake.frame(errorReply(code, sync))).toThrow(ConnectError)
    },
  )

  it('fails when an on_connect trigger refuses the session, whatever sync the error carries', () => {
    const failure = bytesOf(
      vectors.find((vector) => vector.case.includes('on_connect') && vector.direction === 'response')?.name ?? '',
    )
    const shake = handshake({ user: 'alice', password: 'p' })
    shake.greeting(greeting('3.2.1'))
    expect(() => shake.frame(failure)).toThrow(/db:3301: it refuses the session/)
  })

  it('uses numbers for ID and AUTH that differ from connection to connection', () => {
    const first = framesOf(handshake({ user: 'a', password: 'p' }).greeting(greeting('3.2.1', Buffer.alloc(32, 1))))
    const second = framesOf(handshake({ user: 'a', password: 'p' }).greeting(greeting('3.2.1', Buffer.alloc(32, 2))))
    expect(first.map((frame) => frame.sync)).not.toEqual(second.map((frame) => frame.sync))
  })

  it('sends no AUTH for guest without a password, and one for guest with a password', () => {
    expect(framesOf(handshake({ user: 'guest', password: '' }).greeting(greeting('2.6.0')))).toEqual([])
    expect(
      framesOf(handshake({ user: 'guest', password: 'x' }).greeting(greeting('2.6.0'))).map((frame) => frame.type),
    ).toEqual([RequestType.auth])
  })

  it('sends an empty password for a user without one: never a silent guest', () => {
    const [sent] = framesOf(handshake({ user: 'alice', password: '' }).greeting(greeting('2.6.0')))
    expect(sent?.body.text(Key.userName)).toBe('alice')
    expect(sent?.body.slice(Key.tuple)?.length).toBeGreaterThan(20)
  })

  it('waits for the server’s choice of method where a password may travel in clear', () => {
    const shake = handshake({ user: 'alice', password: 'secret' }, true)
    const [id, ...rest] = framesOf(shake.greeting(greeting('3.2.1')))
    expect(rest).toEqual([])
    const writer = new FrameWriter()
    const sync = id?.sync ?? 0
    writer.beginReply(0, Math.floor(sync / 2 ** 32), sync >>> 0, 80)
    writer.mapHeader(3)
    writer.uint(Key.version)
    writer.uint(9)
    writer.uint(Key.features)
    writer.value([0])
    writer.uint(Key.authType)
    writer.text('pap-sha256')
    writer.end()
    const [auth] = framesOf(shake.frame(Buffer.concat(writer.take())))
    expect(auth?.body.array(Key.tuple)).toEqual(['pap-sha256', 'secret'])
  })

  it('never sends a password in clear over an unencrypted transport, whatever the server asks for', () => {
    const shake = handshake({ user: 'alice', password: 'secret' }, false)
    const chunks = shake.greeting(greeting('3.2.1'))
    expect(framesOf(chunks)[1]?.body.slice(Key.tuple)?.includes('secret')).toBe(false)
  })

  it('refuses frames nobody asked for', () => {
    const shake = handshake({ user: 'alice', password: 'p' })
    shake.greeting(greeting('3.2.1'))
    expect(() => shake.frame(reply(0, 99))).toThrow(/type 0 that nobody asked for/)
  })

  it.each([
    ['HTTP/1.1 400 Bad Request\r\n\r\n', /HTTP/],
    ['SSH-2.0-OpenSSH_9.2\r\n', /SSH/],
    ['\x15\x03\x03\x00\x02\x02\x28', /TLS/],
  ])('tells %j apart at its first bytes', (text, who) => {
    expect(() => handshake().checkBeginning(Buffer.from(text, 'latin1'))).toThrow(ConnectError)
    expect(() => handshake().checkBeginning(Buffer.from(text, 'latin1'))).toThrow(who)
  })

  it('refuses a text console by name', () => {
    const console = Buffer.from(
      `${'Tarantool 2.11.5 (Lua console)'.padEnd(63)}\n${"type 'help' for interactive help".padEnd(63)}\n`,
    )
    expect(() => handshake().greeting(console)).toThrow(/console/)
  })

  it('lets any beginning of a greeting pass', () => {
    const bytes = greeting('2.6.0')
    for (let length = 0; length <= 128; length += 1) handshake().checkBeginning(bytes.subarray(0, length))
    expect(parseGreeting(bytes).version).toBe('2.6.0')
  })
})

function errorReply(code: number, sync: number): Buffer {
  const writer = new FrameWriter()
  writer.beginReply(RequestType.errorFlag | code, Math.floor(sync / 2 ** 32), sync >>> 0, 80)
  writer.mapHeader(1)
  writer.uint(Key.error24)
  writer.text(`error ${String(code)}`)
  writer.end()
  return Buffer.concat(writer.take())
}

describe('versionNumber', () => {
  it.each([
    ['2.6.0', 2_006],
    ['2.10.0-beta1', 2_010],
    ['2.11.5-entrypoint-113-g803baaf', 2_011],
    ['3.2.1', 3_002],
    ['?', 0],
  ])('%s is %i', (version, number) => {
    expect(versionNumber(version)).toBe(number)
  })
})
