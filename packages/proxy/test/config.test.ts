import { ConfigError } from '@orbweaver/iproto'
import { describe, expect, it } from 'vitest'
import { readConfig } from '../src/config.js'
import { createProxy } from '../src/index.js'
import { hashOf } from './scene.js'

const RIGHT = {
  listen: ['127.0.0.1:3301', { path: '/run/proxy.sock' }],
  targets: { a: { uri: '127.0.0.1:3311' }, b: { uri: '127.0.0.1:3312', weight: 2 } },
  rw: 'a',
  ro: ['b'],
  credentials: { mode: 'static', users: { alice: hashOf('secret') } },
  limits: { maxClients: 100 },
  split: { enabled: true, readFunctions: ['get_*'] },
}

function problemsOf(value: unknown): string[] {
  try {
    readConfig(typeof value === 'string' ? value : JSON.stringify(value))
    return []
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error
    return error.problems.map(({ path }) => path).toSorted()
  }
}

describe('a configuration file', () => {
  it('gives the options of a proxy', () => {
    const options = readConfig(JSON.stringify(RIGHT))
    expect(options).toEqual({ ...RIGHT, listen: [{ host: '127.0.0.1', port: 3301 }, { path: '/run/proxy.sock' }] })
    expect(() => createProxy(options)).not.toThrow()
  })

  it('is refused with the path of everything that is wrong', () => {
    expect(
      problemsOf({
        ...RIGHT,
        listen: 'here',
        targets: { a: { url: 'x' } },
        rw: 5,
        credentials: { mode: 'static', users: { alice: 5 } },
        limits: { maxClients: 'many' },
        split: { enabled: 'yes' },
      }),
    ).toEqual([
      'credentials.users.alice',
      'limits.maxClients',
      'listen',
      'rw',
      'split.enabled',
      'targets.a',
      'targets.a.uri',
    ])
    expect(problemsOf({ ...RIGHT, listen: ['not an address'] })).toEqual(['listen[0]'])
    expect(problemsOf({ ...RIGHT, colour: 'red' })).toEqual([''])
    expect(problemsOf('{')).toEqual([''])
  })
})
