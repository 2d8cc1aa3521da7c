import { InvalidArgumentError } from '@orbweaver/iproto'
import { describe, expect, it } from 'vitest'
import { addressProblem, formatAddress, parseAddress, parseListenAddress, parseUri } from '../src/address.js'

describe('parseUri understands every form the server understands', () => {
  const forms: readonly [text: string, address: object, user?: string, password?: string][] = [
    ['3301', { host: 'localhost', port: 3301 }],
    ['localhost', { host: 'localhost', port: 3301 }],
    ['localhost:3302', { host: 'localhost', port: 3302 }],
    ['db-1.example_x:65535', { host: 'db-1.example_x', port: 65535 }],
    ['127.0.0.1:3301', { host: '127.0.0.1', port: 3301 }],
    ['[::1]:3301', { host: '::1', port: 3301 }],
    ['[::1]', { host: '::1', port: 3301 }],
    ['[fe80::1%eth0]:3301', { host: 'fe80::1%eth0', port: 3301 }],
    ['tcp://h:3301/', { host: 'h', port: 3301 }],
    ['tcp://h:3301', { host: 'h', port: 3301 }],
    ['tarantool://h', { host: 'h', port: 3301 }],
    ['h:3301?transport=plain', { host: 'h', port: 3301 }],
    ['unix/:/run/a.sock', { path: '/run/a.sock' }],
    ['unix/:./a.sock', { path: './a.sock' }],
    ['unix:///run/a.sock', { path: '/run/a.sock' }],
    ['/run/a.sock', { path: '/run/a.sock' }],
    ['./a.sock', { path: './a.sock' }],
    ['../run/a.sock', { path: '../run/a.sock' }],
    ['alice@h:3301', { host: 'h', port: 3301 }, 'alice'],
    ['alice:pass@h:3301', { host: 'h', port: 3301 }, 'alice', 'pass'],
    ['alice:@h:3301', { host: 'h', port: 3301 }, 'alice', ''],
    ['user:pass@[::1]:3301', { host: '::1', port: 3301 }, 'user', 'pass'],
    ['tcp://user:pass@h:3301/', { host: 'h', port: 3301 }, 'user', 'pass'],
    ['u%20s:p%40%3A%2F@h:3301', { host: 'h', port: 3301 }, 'u s', 'p@:/'],
    ['u:%3F@h', { host: 'h', port: 3301 }, 'u', '?'],
    ['u:}p{@h', { host: 'h', port: 3301 }, 'u', '}p{'],
    ['%D0%B8%D0%B2%D0%B0%D0%BD:%E2%9C%93@h', { host: 'h', port: 3301 }, 'иван', '✓'],
    ['иван:✓@h', { host: 'h', port: 3301 }, 'иван', '✓'],
    ['u:p@/run/a.sock', { path: '/run/a.sock' }, 'u', 'p'],
    ['u:p@unix/:/run/a.sock', { path: '/run/a.sock' }, 'u', 'p'],
    ['u:p%25%23@unix/:/run/a.sock', { path: '/run/a.sock' }, 'u', 'p%#'],
  ]
  it.each(forms)('%s', (text, address, user, password) => {
    expect(parseUri(text)).toEqual({ address, user, password })
  })
})

describe('parseUri refuses what is wrong or could be read in two ways, and says which part', () => {
  const refused: readonly [text: string, part: RegExp][] = [
    ['', /empty/],
    [' localhost', /white space/],
    ['::1', /brackets.*\[::1\]/],
    ['::1:3301', /brackets/],
    ['h:0', /port "0"/],
    ['h:70000', /port "70000"/],
    ['70000', /port "70000"/],
    ['0', /port "0"/],
    ['h:33o1', /port "33o1"/],
    ['h:', /port ""/],
    [':3301', /no host/],
    ['[::1', /host|brackets/],
    ['[localhost]:3301', /no IPv6 address/],
    ['h:3301/db', /"\/db" behind its host/],
    ['dir/a.sock', /socket path is written as/],
    ['h?transport=ssl', /transport "ssl".*socketTransport/],
    ['u:p@h:3301?transport=ssl', /transport "ssl"/],
    ['h?timeout=5', /parameter "timeout"/],
    ['ssl://h:3301', /encrypted/],
    ['redis://h:3301', /scheme "redis"/],
    [`/${'x'.repeat(199)}`, /200 bytes, at most 107/],
    [`unix/:/${'é'.repeat(60)}`, /121 bytes/],
    ['unix/:', /empty socket path/],
    ['u:p@', /no host behind/],
    ['@h:3301', /empty user name/],
    [':p@h:3301', /password but no user/],
    ['u:p@ss@h', /unescaped "@" in its password.*%40/],
    ['u:p:q@h', /unescaped ":" in its password.*%3A/],
    ['u:p/q@h', /unescaped "\/" in its password.*%2F/],
    ['u:p?q@h', /unescaped "\?" in its password.*%3F/],
    ['u:p#q@h', /unescaped "#" in its password.*%23/],
    ['u/v@h', /unescaped "\/" in its user name/],
    ['u:50%@h', /"%" in its password that starts no escape.*%25/],
    ['u:%ff@h', /escapes in its password that are not UTF-8/],
    ['h o:3301', /host "h o"/],
    ['h#x', /fragment/],
  ]
  it.each(refused)('%j', (text, part) => {
    expect(() => parseUri(text)).toThrow(InvalidArgumentError)
    expect(() => parseUri(text)).toThrow(part)
  })

  it('never repeats a password in its message', () => {
    for (const text of [
      'alice:s3cret@x@h',
      'alice:s3cret/@h',
      'alice:s3cret%zz@h',
      'alice:s3cret@h:0',
      'alice:s3cret@',
    ]) {
      expect(() => parseUri(text)).toThrow(
        expect.not.objectContaining({ message: expect.stringContaining('s3cret') as string }) as Error,
      )
    }
  })
})

describe('formatAddress', () => {
  it.each(['127.0.0.1:3301', '[::1]:3301', 'unix/:/run/a.sock', 'localhost:1'])(
    'writes %s as parseAddress reads it',
    (text) => {
      expect(formatAddress(parseAddress(text))).toBe(text)
    },
  )

  it('calls a connect function in-process', () => {
    expect(
      formatAddress({
        connect: () => {
          throw new Error('not dialled')
        },
      }),
    ).toBe('in-process')
  })
})

describe('parseAddress', () => {
  it('refuses credentials where only an address belongs', () => {
    expect(() => parseAddress('u:p@h:1')).toThrow(/credentials/)
  })
})

describe('addressProblem', () => {
  const problems: readonly [address: unknown, problem: RegExp | undefined][] = [
    [{ host: 'h', port: 3301 }, undefined],
    [{ path: '/a' }, undefined],
    [{ connect: () => undefined }, undefined],
    [{ host: 'h', port: '3301' }, /port must be an integer in 1\.\.65535, got the string '3301'/],
    [{ host: 'h', port: 0 }, /got 0/],
    [{ host: 'h', port: 1.5 }, /got 1\.5/],
    [{ host: 'h' }, /port/],
    [{ host: '', port: 1 }, /host/],
    [{ path: '' }, /empty/],
    [{ path: 5 }, /path/],
    [{ connect: 'x' }, /function/],
    [{}, /host and port, or path, or connect/],
    [null, /null/],
    [3301, /3301/],
  ]
  it.each(problems)('%j', (address, problem) => {
    if (problem === undefined) expect(addressProblem(address)).toBeUndefined()
    else expect(addressProblem(address)).toMatch(problem)
  })

  it('allows port 0 for listening', () => {
    expect(addressProblem({ host: 'h', port: 0 }, 0)).toBeUndefined()
  })
})

describe('an address to listen on', () => {
  it('may have the port 0, which nobody can dial', () => {
    expect(parseListenAddress('127.0.0.1:0')).toEqual({ host: '127.0.0.1', port: 0 })
    expect(parseListenAddress('[::1]:0')).toEqual({ host: '::1', port: 0 })
    expect(parseListenAddress('unix/:/run/a.sock')).toEqual({ path: '/run/a.sock' })
    expect(() => parseAddress('127.0.0.1:0')).toThrow('port "0", expected a number in 1..65535')
    expect(() => parseListenAddress('h:65536')).toThrow('port "65536", expected a number in 0..65535')
    expect(() => parseListenAddress('u:p@h:1')).toThrow('holds credentials')
  })
})
