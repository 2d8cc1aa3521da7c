/* Scenario 37 of the design: everything that is wrong in one error, and nothing left open. */
import { ConfigError } from '@orbweaver/iproto'
import { describe, expect, it } from 'vitest'
import { createProxy, type ProxyOptions } from '../src/index.js'
import { hashOf } from './scene.js'

function problemsOf(options: ProxyOptions): string[] {
  try {
    createProxy(options)
    return []
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error
    return error.problems.map(({ path }) => path).toSorted()
  }
}

describe('createProxy', () => {
  it('takes no options at all', () => {
    expect(problemsOf({})).toEqual([])
  })

  it.each([
    [5, ['']],
    [{ targets: 5 }, ['targets']],
    [{ targets: { a: 5 } }, ['targets.a']],
    [{ targets: { a: { uri: 5 } } }, ['targets.a.uri']],
    [{ targets: { a: {} } }, ['targets.a']],
    [{ targets: { a: { uri: 'h:1', urii: 'h:2' } } }, ['targets.a.urii']],
    [{ targets: { a: { embedded: 5 } } }, ['targets.a.embedded']],
    [{ version: 5 }, ['version']],
    [{ listen: 'localhost:3301', colour: 'red' }, ['colour', 'listen']],
  ])('refuses %j', (options, paths) => {
    expect(problemsOf(options as unknown as ProxyOptions)).toEqual(paths)
  })

  it('refuses names of targets that are none, and addresses that cannot be listened on', async () => {
    const proxy = createProxy({ targets: { a: { uri: 'localhost:1' } } })
    await expect(proxy.failOverTo(42 as unknown as string)).rejects.toMatchObject({ code: 'ORB_UNKNOWN_TARGET' })
    await expect(proxy.listen(5 as unknown as string)).rejects.toMatchObject({ code: 'ORB_INVALID_ARGUMENT' })
    await proxy.close()
  })

  it('names everything that is wrong at once', () => {
    expect(
      problemsOf({
        listen: [
          { host: '127.0.0.1', port: 3301 },
          { host: '127.0.0.1', port: 3301 },
          { host: '', port: 1 },
        ],
        targets: { a: { uri: 'alice:secret@localhost:3301' }, b: { uri: 'local host' }, c: { uri: 'h:1', weight: -1 } },
        rw: 'nobody',
        ro: ['a', 'a', 'x'],
        credentials: { mode: 'static', users: { alice: 'short', bob: hashOf('b') } },
        failover: { drainTimeoutMs: -5 },
        limits: {
          maxInflightPerLane: 1000,
          clientOutSoftBytes: 10,
          clientOutHardBytes: 5,
          connectWaitMs: Number.NaN,
          maxClients: 0,
        },
        uuid: 'mine',
        colour: 'red',
      } as unknown as ProxyOptions),
    ).toEqual([
      'colour',
      'credentials.users.alice',
      'failover.drainTimeoutMs',
      'limits.clientOutSoftBytes',
      'limits.connectWaitMs',
      'limits.maxClients',
      'limits.maxInflightPerLane',
      'listen[1]',
      'listen[2]',
      'ro',
      'ro[2]',
      'rw',
      'targets.a.uri',
      'targets.b.uri',
      'targets.c.weight',
      'uuid',
    ])
  })

  it('never shows a secret in a message', () => {
    expect(() => createProxy({ targets: { a: { uri: 'alice:s3cret@localhost:3301' } } })).toThrow(/holds credentials/)
    try {
      createProxy({ targets: { a: { uri: 'alice:s3cret@localhost:3301' } } })
    } catch (error) {
      expect(String(error)).not.toContain('s3cret')
    }
  })

  it('needs an address to listen on', async () => {
    await expect(createProxy().listen()).rejects.toBeInstanceOf(ConfigError)
  })

  it('want a token for a door that others reach', () => {
    expect(() => createProxy({ admin: { host: '0.0.0.0', port: 0 } })).toThrow(/admin\.token: is missing/)
    expect(() => createProxy({ admin: { host: '0.0.0.0', port: 0, token: 'x' } })).not.toThrow()
    expect(() => createProxy({ admin: { host: '127.0.0.1', port: 0 } })).not.toThrow()
  })

  it('name what is wrong with the newer parts', () => {
    const wrong = {
      listen: [{ host: '127.0.0.1', port: 0, proxyProtocol: { trusted: ['10.0.0.0/99'] } }],
      admin: { port: 'x' },
      balance: { policy: 'fastest' },
      pin: { functions: 'cart' },
      retry: { read: true },
      rejectWhenReadOnly: 'yes',
      credentials: { mode: 'magic' },
    }
    try {
      createProxy(wrong as unknown as Parameters<typeof createProxy>[0])
      expect.unreachable()
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error
      const paths = error.problems.map(({ path }) => path)
      expect(paths).toEqual(['rejectWhenReadOnly'])
    }
    const { rejectWhenReadOnly: _first, ...rest } = wrong
    try {
      createProxy(rest as unknown as Parameters<typeof createProxy>[0])
      expect.unreachable()
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error
      expect(error.problems.map(({ path }) => path).toSorted()).toEqual([
        'admin.port',
        'balance.policy',
        'credentials.mode',
        'listen[0].proxyProtocol.trusted',
        'pin.functions',
        'retry.read',
      ])
    }
  })
})
