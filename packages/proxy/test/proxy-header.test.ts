import { describe, expect, it } from 'vitest'
import { readProxyHeader } from '../src/proxy-header.js'

const SIGNATURE = '0d0a0d0a000d0a515549540a'
const V2_IPV4 = Buffer.from(`${SIGNATURE}2111000cc0000201c6336401d4310ce5`, 'hex')
const V2_IPV6 = Buffer.from(
  `${SIGNATURE}21210027` +
    '20010db8000000000000000000000001' +
    '20010db8000000000000000000000002' +
    'd4310ce5' +
    // A TLV behind the addresses.
    '040000',
  'hex',
)

describe('readProxyHeader', () => {
  it.each([
    ['v1, IPv4', Buffer.from('PROXY TCP4 192.0.2.1 198.51.100.1 54321 3301\r\n'), { host: '192.0.2.1', port: 54_321 }],
    [
      'v1, IPv6',
      Buffer.from('PROXY TCP6 2001:db8::1 2001:db8::2 54321 3301\r\n'),
      { host: '2001:db8::1', port: 54_321 },
    ],
    ['v1, unknown', Buffer.from('PROXY UNKNOWN\r\n'), undefined],
    ['v2, IPv4', V2_IPV4, { host: '192.0.2.1', port: 54_321 }],
    ['v2, IPv6 with more behind', V2_IPV6, { host: '2001:db8:0:0:0:0:0:1', port: 54_321 }],
    ['v2, a health check', Buffer.from(`${SIGNATURE}20000000`, 'hex'), undefined],
    ['v2, a unix socket', Buffer.from(`${SIGNATURE}213100d8${'00'.repeat(216)}`, 'hex'), undefined],
  ])('reads %s, however it arrives, and takes nothing behind it', (_what, header, source) => {
    for (let bytes = 0; bytes < header.length; bytes++)
      expect(readProxyHeader(header.subarray(0, bytes))).toBe('incomplete')
    expect(readProxyHeader(Buffer.concat([header, Buffer.from('ce00')]))).toEqual({ bytes: header.length, source })
  })

  it.each([
    ['a frame', Buffer.from('ce00000005', 'hex')],
    ['another word', Buffer.from('PROXI TCP4')],
    ['a v1 line without an end', Buffer.from(`PROXY TCP4 ${'1'.repeat(100)}`)],
    ['a v1 address of the wrong family', Buffer.from('PROXY TCP4 ::1 ::2 1 2\r\n')],
    ['a v1 port that is none', Buffer.from('PROXY TCP4 192.0.2.1 198.51.100.1 70000 1\r\n')],
    ['a v2 of another version', Buffer.from(`${SIGNATURE}3111000c${'00'.repeat(12)}`, 'hex')],
    ['a v2 of an unknown command', Buffer.from(`${SIGNATURE}2211000c${'00'.repeat(12)}`, 'hex')],
    ['a v2 too short for its addresses', Buffer.from(`${SIGNATURE}21110008${'00'.repeat(8)}`, 'hex')],
    ['a v2 that is too long', Buffer.from(`${SIGNATURE}2111ffff`, 'hex')],
  ])('refuses %s', (_what, bytes) => {
    expect(readProxyHeader(bytes)).toBe('malformed')
  })
})
