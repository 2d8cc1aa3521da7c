import { describe, expect, it, test } from 'vitest'
import { formatGreeting, GREETING_BYTES, MalformedFrameError, parseGreeting } from '../src/index.js'
import { loadVectors } from './vectors.js'

const UUID = 'f6423bdf-b49e-4913-b361-0740c9702e4b'

/** The 128 bytes of a greeting with these two lines. */
function lines(first: string, second: string): Buffer {
  return Buffer.from(`${first.padEnd(63)}\n${second.padEnd(63)}\n`, 'latin1')
}

const SALT = Buffer.alloc(32, 7).toString('base64')

describe('parseGreeting', () => {
  test.each([
    ['2.6.0', UUID],
    ['3.2.1', UUID],
    ['10.10.1', UUID],
    ['2.11.0-entrypoint', ''],
    ['2.11.0-rc1-113-g803baaf', ''],
    ['3.2.1-0-g816000e12', UUID.slice(0, 25)],
  ])('understands Tarantool %s with the uuid %j', (version, uuid) => {
    const greeting = parseGreeting(lines(`Tarantool ${version} (Binary) ${uuid}`, SALT))
    // A cut uuid is none.
    expect(greeting).toEqual({
      version,
      protocol: 'Binary',
      uuid: uuid === UUID ? uuid : '',
      salt: new Uint8Array(32).fill(7),
    })
  })

  it('looks at the first 128 bytes only, wherever they lie', () => {
    const { hex } = loadVectors('greeting.json')[0]!
    const bytes = Buffer.concat([Buffer.alloc(13, 0xff), Buffer.from(hex, 'hex'), Buffer.from('ce0000001c83', 'hex')])
    const greeting = parseGreeting(bytes.subarray(13))
    expect(greeting).toEqual(parseGreeting(Buffer.from(hex, 'hex')))
    expect(greeting.salt.length).toBe(32)
    expect(parseGreeting(new Uint8Array(bytes.subarray(13)))).toEqual(greeting)
  })

  it('accepts a salt of 20 bytes, and none that is shorter', () => {
    expect(
      parseGreeting(lines(`Tarantool 2.6.0 (Binary) ${UUID}`, Buffer.alloc(20).toString('base64'))).salt.length,
    ).toBe(20)
    expect(() => parseGreeting(lines(`Tarantool 2.6.0 (Binary) ${UUID}`, Buffer.alloc(19).toString('base64')))).toThrow(
      'a salt of 19 bytes',
    )
    expect(() => parseGreeting(lines(`Tarantool 2.6.0 (Binary) ${UUID}`, 'not base64!'))).toThrow('salt is not base64')
  })

  test.each([
    [
      'the text console',
      lines('Tarantool 3.2.1 (Lua console)', "type 'help' for interactive help"),
      'a text console of Tarantool',
    ],
    [
      'a short console greeting',
      Buffer.from("Tarantool 2.6.0 (Lua console)\ntype 'help' for interactive help\n"),
      'a text console of Tarantool',
    ],
    [
      'another protocol',
      lines(`Tarantool 3.2.1 (Replication) ${UUID}`, SALT),
      'a Tarantool that speaks "Replication" on this port',
    ],
    ['HTTP', Buffer.from(`HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n${'x'.repeat(200)}`), 'an HTTP server'],
    ['a page', Buffer.from('<!DOCTYPE html><html>'), 'an HTTP server'],
    ['TLS', Buffer.from('15030100020228', 'hex'), 'a TLS server'],
    ['SSH', Buffer.from('SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n'), 'an SSH server'],
    ['Redis', Buffer.from('-ERR unknown command\r\n'), 'a Redis server'],
    ['MySQL', Buffer.concat([Buffer.from('4a0000000a', 'hex'), Buffer.from('8.0.33\0')]), 'a MySQL server'],
    ['mail', Buffer.from('220 mail.example.com ESMTP\r\n'), 'a mail or FTP server'],
    ['nothing', Buffer.alloc(0), 'a server that waits for us to speak first'],
    [
      '127 bytes',
      lines(`Tarantool 3.2.1 (Binary) ${UUID}`, SALT).subarray(0, 127),
      'whose greeting ended after 127 of 128 bytes',
    ],
    ['no uuid', lines('Tarantool 3.2.1 (Binary)', SALT), 'a greeting of an unknown form'],
    ['a short uuid', lines(`Tarantool 3.2.1 (Binary) ${UUID.slice(1)}`, SALT), 'a greeting of an unknown form'],
    [
      'no line end',
      Buffer.from(lines(`Tarantool 3.2.1 (Binary) ${UUID}`, SALT).map((byte, i) => (i === 63 ? 0x20 : byte))),
      'a greeting of an unknown form',
    ],
    [
      'no last line end',
      Buffer.from(lines(`Tarantool 3.2.1 (Binary) ${UUID}`, SALT).map((byte, i) => (i === 127 ? 0x20 : byte))),
      'a greeting of an unknown form',
    ],
    ['no version', lines(`Tarantool (Binary) ${UUID}`, SALT), 'a greeting of an unknown form'],
    ['frames', Buffer.from('ce0000001c8300ce', 'hex'), 'something that starts with'],
    ['zeros', Buffer.alloc(128), 'something that starts with'],
  ])('says what a peer with %s seems to be', (_, bytes, what) => {
    const attempt = (): unknown => parseGreeting(bytes)
    expect(attempt).toThrow(MalformedFrameError)
    expect(attempt).toThrow(what)
    expect(attempt).toThrow('The peer does not speak IPROTO: it seems to be ')
    expect(attempt).toThrow(expect.objectContaining({ executed: 'no' }))
  })

  it('refuses every cut of a greeting with its own error', () => {
    const whole = lines(`Tarantool 3.2.1 (Binary) ${UUID}`, SALT)
    for (let size = 0; size < GREETING_BYTES; size++)
      expect(() => parseGreeting(whole.subarray(0, size))).toThrow(MalformedFrameError)
  })
})

describe('formatGreeting', () => {
  it('writes what parseGreeting reads, in 128 bytes', () => {
    for (const salt of [new Uint8Array(32).fill(9), new Uint8Array(20).fill(1)]) {
      const bytes = formatGreeting({ version: '2.11.3', uuid: UUID, salt })
      expect(bytes.length).toBe(GREETING_BYTES)
      expect(parseGreeting(bytes)).toEqual({ version: '2.11.3', protocol: 'Binary', uuid: UUID, salt })
    }
  })

  it('writes the very bytes of a server', () => {
    for (const { hex } of loadVectors('greeting.json')) {
      expect(formatGreeting(parseGreeting(Buffer.from(hex, 'hex'))).toString('hex')).toBe(hex)
    }
  })

  it('refuses what does not fit', () => {
    expect(() =>
      formatGreeting({ version: '2.11.3-with-a-long-suffix', uuid: UUID, salt: new Uint8Array(32) }),
    ).toThrow('no room')
    expect(() => formatGreeting({ version: '2.11.3', uuid: UUID, salt: new Uint8Array(19) })).toThrow('no room')
    expect(() => formatGreeting({ version: '2.11.3', uuid: UUID, salt: new Uint8Array(50) })).toThrow('no room')
  })
})
