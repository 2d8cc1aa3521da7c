import { ConfigError } from '@orbweaver/iproto'
import { describe, expect, it } from 'vitest'
import { readConfig } from '../src/config.js'
import { createProxy } from '../src/index.js'
import { hashOf } from './scene.js'

const RIGHT = {
  listen: ['127.0.0.1:3301', { path: '/run/proxy.sock' }],
  targets: { a: { uri: '127.0.0.1:3311' }, b: { uri: '127.0.0.1:3312', weight: 2, zone: 'z1' } },
  rw: 'a',
  ro: ['b'],
  credentials: { mode: 'static', users: { alice: hashOf('secret') } },
  limits: { maxClients: 100 },
  split: { enabled: true, readFunctions: ['get_*'] },
  balance: { policy: 'zone-first', zone: 'z1' },
  admin: { port: 9301 },
}

function noFiles(): string {
  throw new Error('there are no files here')
}

function problemsOf(value: unknown): Record<string, string> {
  try {
    readConfig(typeof value === 'string' ? value : JSON.stringify(value), noFiles)
    return {}
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error
    return Object.fromEntries(error.problems.map(({ path, message }) => [path, message]))
  }
}

describe('a configuration file', () => {
  it('in JSON gives the options of a proxy', () => {
    const { options, logLevel } = readConfig(JSON.stringify(RIGHT), noFiles)
    expect(options).toEqual({ ...RIGHT, listen: [{ host: '127.0.0.1', port: 3301 }, { path: '/run/proxy.sock' }] })
    expect(logLevel).toBe('info')
    expect(() => createProxy(options)).not.toThrow()
  })

  it('in YAML gives the same, with files in the place of their names', () => {
    const source = `
# Where clients come in
listen:
  - 127.0.0.1:3301
  - at: 127.0.0.1:3302
    proxyProtocol: { trusted: [10.0.0.0/8] }
targets:
  a:
    uri: 127.0.0.1:3311
    tls: { caFile: ca.pem, serverName: a.example }
rw: a
log: { level: debug }
`
    const { options, logLevel } = readConfig(source, (path) => `contents of ${path}`)
    expect(options).toEqual({
      listen: [
        { host: '127.0.0.1', port: 3301 },
        { host: '127.0.0.1', port: 3302, proxyProtocol: { trusted: ['10.0.0.0/8'] } },
      ],
      targets: { a: { uri: '127.0.0.1:3311', tls: { ca: 'contents of ca.pem', serverName: 'a.example' } } },
      rw: 'a',
    })
    expect(logLevel).toBe('debug')
    expect(() => createProxy(options)).not.toThrow()
  })

  it('is refused with everything that is wrong: its path, its line and what to write', () => {
    const source = [
      'listen: here is nothing', // 1
      'targets:',
      '  a: { url: 127.0.0.1:3311 }', // 3
      'rw: 5', // 4
      'credentials:',
      '  mode: static',
      '  users: { alice: 5 }', // 7
      'limits: { maxClients: many, maxClint: 5 }', // 8
      'splitt: { enabled: true }', // 9
      'balance: { policy: fastest }', // 10
      'failover: { drainTimeoutMs: 0 }', // 11
    ].join('\n')
    expect(problemsOf(source)).toEqual({
      listen: "is 'here is nothing', expected a list (line 1)",
      'targets.a.uri': 'is missing, expected a text (line 3)',
      'targets.a.url': 'is not known here; did you mean uri? (line 3)',
      rw: 'is 5, expected a text (line 4)',
      'credentials.users.alice': 'is 5, expected a text (line 7)',
      'limits.maxClients': "is 'many', expected a number (line 8)",
      'limits.maxClint': 'is not known here; did you mean maxClients? (line 8)',
      splitt: 'is not known here; did you mean split? (line 9)',
      'balance.policy': "is 'fastest', expected least-inflight, round-robin, random-2, zone-first (line 10)",
      'failover.drainTimeoutMs': 'is 0, expected a number above 0 (line 11)',
    })
  })

  it('says where the text itself breaks off', () => {
    expect(problemsOf('listen:\n  - {')['']).toMatch(/neither YAML nor JSON: .*\(line 2\)/)
    expect(problemsOf('rw: a\nrw: b')['']).toMatch(/neither YAML nor JSON: .*unique.*\(line 2\)/)
  })

  it.each([
    ['an address that is none', { ...RIGHT, listen: ['not an address'] }, 'listen[0]'],
    ['a listener that is none', { ...RIGHT, listen: [5] }, 'listen[0]'],
    [
      'a file that is not there',
      { ...RIGHT, listen: [{ at: '3301', tls: { certFile: 'c', keyFile: 'k' } }] },
      'listen[0].tls.certFile',
    ],
    ['a mode of credentials that is none', { ...RIGHT, credentials: { mode: 'magic' } }, 'credentials.mode'],
    ['no address at all', { ...RIGHT, listen: [] }, 'listen'],
    ['nothing', '', ''],
  ])('refuses %s at its path', (_what, config, path) => {
    expect(Object.keys(problemsOf(config))).toContain(path)
  })

  it('tells no secret', () => {
    const problems = problemsOf({
      ...RIGHT,
      credentials: { mode: 'query', user: 5, password: ['hunter2'] },
      admin: { port: 1, token: 7 },
    })
    expect(JSON.stringify(problems)).not.toContain('hunter2')
  })
})
