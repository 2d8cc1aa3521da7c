import { ConfigError, InvalidArgumentError } from '@orbweaver/iproto'
import { describe, expect, it } from 'vitest'
import { type ConnectionOptions, createConnection } from '../src/index.js'
import { closeTimeoutOf, deadlineOf, refuseUnknownOptions, resolveOptions } from '../src/options.js'

function problemsOf(options: object): string[] {
  try {
    resolveOptions(options as ConnectionOptions)
  } catch (error) {
    expect(error).toBeInstanceOf(ConfigError)
    return (error as ConfigError).problems.map(({ path, message }) => `${path}: ${message}`)
  }
  return []
}

describe('resolveOptions', () => {
  it('fills in the documented defaults', () => {
    expect(resolveOptions({ uri: 'h' })).toMatchObject({
      address: { host: 'h', port: 3301 },
      credential: undefined,
      connectTimeoutMs: 5_000,
      requestTimeoutMs: 10_000,
      closeTimeoutMs: 5_000,
      reconnect: { minDelayMs: 50, maxDelayMs: 5_000, jitter: 0.2, retries: Number.POSITIVE_INFINITY },
      limits: { maxInFlight: 16_384, maxInFlightBytes: 67_108_864, maxQueued: 65_536, maxQueuedBytes: 67_108_864 },
      maxFrameBytes: 268_435_456,
      tupleFormats: false,
    })
  })

  it('takes Infinity as none and false as no reconnect', () => {
    expect(
      resolveOptions({
        uri: 'h',
        connectTimeoutMs: Number.POSITIVE_INFINITY,
        requestTimeoutMs: Number.POSITIVE_INFINITY,
        reconnect: false,
      }),
    ).toMatchObject({
      connectTimeoutMs: Number.POSITIVE_INFINITY,
      requestTimeoutMs: Number.POSITIVE_INFINITY,
      reconnect: { retries: 0 },
    })
  })

  const refused: readonly [options: object, problem: RegExp][] = [
    [{}, /^uri: is missing/],
    [{ uri: '' }, /^uri: .*empty/],
    [{ uri: 5 }, /^uri: expected an address, got 5/],
    [{ uri: { host: 'h', port: '3301' } }, /^uri: port must be an integer in 1\.\.65535, got the string/],
    [
      { uri: 'h', requestTimeoutMs: 0 },
      /^requestTimeoutMs: expected milliseconds of more than 0 \(Infinity for none\), got 0/,
    ],
    [{ uri: 'h', requestTimeoutMs: -1 }, /got -1/],
    [{ uri: 'h', requestTimeoutMs: Number.NaN }, /got NaN/],
    [{ uri: 'h', requestTimeoutMs: '5' }, /got the string "5"/],
    [{ uri: 'h', connectTimeoutMs: '5s' }, /^connectTimeoutMs: .*milliseconds/],
    [{ uri: 'h', closeTimeoutMs: -1 }, /^closeTimeoutMs: .*at least 0/],
    [
      { uri: 'h', reconnect: { retries: -1 } },
      /^reconnect\.retries: expected a whole number of at least 0, or Infinity, got -1/,
    ],
    [{ uri: 'h', reconnect: { retries: 1.5 } }, /^reconnect\.retries/],
    [{ uri: 'h', reconnect: { jitter: 2 } }, /^reconnect\.jitter: expected a number in 0\.\.1/],
    [{ uri: 'h', reconnect: { minDelayMs: 10, maxDelayMs: 5 } }, /^reconnect\.minDelayMs: is more than maxDelayMs/],
    [{ uri: 'h', reconnect: { maxDelay: 5 } }, /^reconnect\.maxDelay: is not known; did you mean "maxDelayMs"\?/],
    [{ uri: 'h', reconnect: true }, /^reconnect: expected false or an object/],
    [{ uri: 'h', maxInFlight: 0 }, /^maxInFlight: expected a whole number of at least 1/],
    [{ uri: 'h', maxQueued: 1.5 }, /^maxQueued/],
    [{ uri: 'h', reqestTimeoutMs: 5 }, /^reqestTimeoutMs: is not known; did you mean "requestTimeoutMs"\?/],
    [{ uri: 'h', colour: 1 }, /^colour: is not known$/],
    [{ uri: 'h', decode: { integers: 'all' } }, /^decode\.integers: expected one of auto, bigint, number/],
    [{ uri: 'h', decode: { integer: 'auto' } }, /^decode\.integer: is not known; did you mean "integers"/],
    [{ uri: 'h', tupleFormats: 1 }, /^tupleFormats: expected true or false/],
    [{ uri: 'h', user: 5 }, /^user: expected a string/],
    [{ uri: 'h', user: '' }, /^user: is empty/],
    [{ uri: 'h', password: 'p' }, /^password: needs a user/],
    [{ uri: 'h', hash1: new Uint8Array(20) }, /^hash1: needs a user/],
    [{ uri: 'h', user: 'u', hash1: new Uint8Array(19) }, /^hash1: expected 20 bytes/],
    [{ uri: 'h', user: 'u', password: 'p', hash1: new Uint8Array(20) }, /^hash1: stands in place/],
    [{ uri: 'a:b@h', user: 'c' }, /^user: differs from the one in the uri/],
  ]
  it.each(refused)('refuses %j', (options, problem) => {
    expect(problemsOf(options).join('\n')).toMatch(problem)
    expect(() => createConnection(options as ConnectionOptions)).toThrow(ConfigError)
  })

  it('lists all problems at once', () => {
    expect(problemsOf({ requestTimeoutMs: 0, maxQueued: -1, typo: 1 })).toHaveLength(4)
  })

  it('takes credentials from the uri or from the options, exactly as given', () => {
    expect(resolveOptions({ uri: 'a:b%40@h' }).credential).toEqual({ user: 'a', password: 'b@' })
    expect(resolveOptions({ uri: 'h', user: 'a%40', password: ':@/?#%' }).credential).toEqual({
      user: 'a%40',
      password: ':@/?#%',
    })
    expect(resolveOptions({ uri: 'a@h' }).credential).toEqual({ user: 'a', password: '' })
    expect(resolveOptions({ uri: 'a@h', password: 'p' }).credential).toEqual({ user: 'a', password: 'p' })
    expect(resolveOptions({ uri: 'a:b@h', user: 'a', password: 'b' }).credential).toEqual({ user: 'a', password: 'b' })
  })
})

describe('deadlineOf', () => {
  it('adds the timeout of the call, or the default', () => {
    expect(deadlineOf(100, undefined, 10)).toBe(110)
    expect(deadlineOf(100, 5, 10)).toBe(105)
    expect(deadlineOf(100, 1e12, 10)).toBe(100 + 1e12)
    expect(deadlineOf(100, Number.POSITIVE_INFINITY, 10)).toBe(Number.POSITIVE_INFINITY)
  })

  it.each([0, -1, Number.NaN, '5', null])('refuses %j', (timeout) => {
    expect(() => deadlineOf(0, timeout as number, 10)).toThrow(InvalidArgumentError)
  })
})

describe('closeTimeoutOf', () => {
  it('takes 0 as at once', () => {
    expect(closeTimeoutOf(0, 10)).toBe(0)
    expect(closeTimeoutOf(undefined, 10)).toBe(10)
  })

  it.each([-1, Number.NaN, '5'])('refuses %j', (timeout) => {
    expect(() => closeTimeoutOf(timeout as number, 10)).toThrow(InvalidArgumentError)
  })
})

describe('refuseUnknownOptions', () => {
  it('names the option, the call and the likely meaning', () => {
    expect(() => refuseUnknownOptions({ timout: 5 }, new Set(['timeout']), 'select')).toThrow(
      'select has no option "timout"; did you mean "timeout"?',
    )
  })
})
