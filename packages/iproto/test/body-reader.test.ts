import { describe, expect, it, test } from 'vitest'
import { BodyReader, BoxError, ByteString, encodeValue, Key, MalformedFrameError } from '../src/index.js'

const bodyOf = (entries: readonly (readonly [unknown, unknown])[]): BodyReader =>
  new BodyReader(encodeValue(new Map(entries)))

/** What `act` throws, as a BoxError. */
function refusal(act: () => unknown): BoxError {
  try {
    act()
  } catch (error) {
    expect(error).toBeInstanceOf(BoxError)
    return error as BoxError
  }
  return expect.unreachable('nothing was thrown')
}

describe('BodyReader', () => {
  const body = bodyOf([
    [Key.spaceId, 512],
    [Key.functionName, 'функция'],
    [Key.tuple, [1, [2n ** 63n], 'x']],
    [Key.fetchPosition, true],
    [Key.timeout, 1.5],
    [Key.userName, new ByteString(Uint8Array.of(0xff, 0xfe))],
    [Key.limit, 2n ** 64n - 1n],
    [0x7f, null],
  ])

  it('gives each value by its kind', () => {
    expect(body.uint(Key.spaceId)).toBe(512)
    expect(body.text(Key.functionName)).toBe('функция')
    expect(body.array(Key.tuple)).toEqual([1, [2n ** 63n], 'x'])
    expect(body.array(Key.tuple, { strings: 'bytes' })).toEqual([1, [2n ** 63n], new ByteString(Buffer.from('x'))])
    expect(body.bool(Key.fetchPosition)).toBe(true)
    expect(body.double(Key.timeout)).toBe(1.5)
    expect(body.slice(Key.spaceId)!.toString('hex')).toBe('cd0200')
    expect(body.textBytes(Key.functionName)!.toString()).toBe('функция')
    expect(body.textBytes(Key.userName)!.toString('hex')).toBe('fffe')
    expect(body.value(Key.timeout)).toBe(1.5)
    expect(body.value(0x7f)).toBe(null)
    expect([
      body.requireUint(Key.spaceId),
      body.requireText(Key.functionName),
      body.requireArray(Key.tuple)[0],
    ]).toEqual([512, 'функция', 1])
    expect(body.requireSlice(Key.fetchPosition).toString('hex')).toBe('c3')
  })

  test.each([
    ['00', 0],
    ['7f', 127],
    ['cc80', 128],
    ['cd0100', 256],
    ['ceffffffff', 4_294_967_295],
    ['cf0000000000000005', 5],
    ['cf001fffffffffffff', Number.MAX_SAFE_INTEGER],
  ])('reads the uint %s as %d', (hex, expected) => {
    expect(new BodyReader(Buffer.from(`8110${hex}`, 'hex')).uint(0x10)).toBe(expected)
  })

  it('has nothing for keys that are absent', () => {
    for (const get of ['uint', 'text', 'bool', 'double', 'slice', 'textBytes', 'value', 'array'] as const) {
      expect(body[get](Key.offset)).toBeUndefined()
    }
    expect([body.has(Key.spaceId), body.has(Key.offset), body.has(0x7f)]).toEqual([true, false, true])
    expect(new BodyReader(Buffer.alloc(0)).has(Key.spaceId)).toBe(false)
  })

  test.each([
    ['uint', Key.functionName],
    ['uint', Key.timeout],
    ['uint', Key.limit],
    ['text', Key.spaceId],
    ['text', Key.userName],
    ['textBytes', Key.tuple],
    ['array', Key.functionName],
    ['bool', Key.spaceId],
    ['double', Key.spaceId],
  ] as const)('%s of a value of another kind is error 20, as a server answers it', (get, key) => {
    const error = refusal(() => body[get](key))
    expect([error.boxCode, error.executed]).toEqual([20, 'no'])
  })

  it('refuses a non-negative number in a signed form where a uint is due', () => {
    expect(refusal(() => new BodyReader(Buffer.from('8110d005', 'hex')).uint(Key.spaceId)).boxCode).toBe(20)
    expect(refusal(() => new BodyReader(Buffer.from('8110ff', 'hex')).requireUint(Key.spaceId)).boxCode).toBe(20)
  })

  it('refuses the absence of what is mandatory with error 69 and the name of the key', () => {
    for (const [act, name] of [
      [() => body.requireUint(Key.offset), 'OFFSET'],
      [() => body.requireText(Key.expr), 'EXPR'],
      [() => body.requireArray(Key.key), 'KEY'],
      [() => body.requireSlice(Key.eventKey), 'EVENT_KEY'],
      [() => body.requireText(Key.error24), 'ERROR_24'],
      [() => body.requireUint(0x7e), '0x7e'],
    ] as const) {
      const error = refusal(act)
      expect([error.boxCode, error.executed, error.message, error.fields.get('value')]).toEqual([
        69,
        'no',
        `Missing mandatory field '${name}' in request`,
        name,
      ])
    }
  })

  it('lets the last of duplicate keys win and skips keys no version has', () => {
    const body = new BodyReader(Buffer.from('8410011002cc90a161cd010003', 'hex'))
    expect(body.uint(0x10)).toBe(2)
    expect(body.has(0x90)).toBe(false)
  })

  it('reads maps of every width', () => {
    for (const header of ['81', 'de0001', 'df00000001'])
      expect(new BodyReader(Buffer.from(`${header}1007`, 'hex')).uint(0x10)).toBe(7)
  })

  test.each([
    '90',
    '01',
    'c0',
    'a0',
    '81',
    '8110',
    '82100120',
    '810001c0',
    '8080',
    '81a16101',
    '81ff01',
    '8110a561',
    'de',
    'de00',
    'df000000',
    'df7fffffff10',
    '81c101',
  ])('refuses %s, which is not exactly one map with uint keys', (hex) => {
    expect(() => new BodyReader(Buffer.from(hex, 'hex'))).toThrow(MalformedFrameError)
  })

  it('is walked once for a hostile number of entries, and keeps few', () => {
    const entries = 200_000
    const bytes = Buffer.alloc(5 + entries * 2)
    bytes[0] = 0xdf
    bytes.writeUInt32BE(entries, 1)
    for (let i = 0; i < entries; i++) {
      bytes[5 + i * 2] = i % 0x80
      bytes[6 + i * 2] = i % 3
    }
    const body = new BodyReader(bytes)
    expect(body.uint((entries - 1) % 0x80)).toBe((entries - 1) % 3)
  })
})
