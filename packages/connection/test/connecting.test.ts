import { type BoxError, ConfigError, RequestType } from '@orbweaver/iproto'
import { describe, expect, it } from 'vitest'
import { AuthError, connect, ConnectError, createConnection } from '../src/index.js'
import { ScriptedPeer, type SilentStep, VirtualClock } from '../src/testing/index.js'
import { connected, dialling, failure, outcome } from './rig.js'

describe('One deadline covers the whole handshake', () => {
  const stalls: readonly [step: SilentStep, stage: string][] = [
    ['greeting', 'greeting'],
    ['half-greeting', 'greeting'],
    ['id', 'id'],
    ['auth', 'auth'],
  ]
  it.each(stalls)(
    'ten callers share one attempt at a peer silent from %s, and all fail at it with the stage',
    async (step, stage) => {
      const { clock, peer, connection } = dialling(
        { users: { a: 'b' } },
        { user: 'a', password: 'b', connectTimeoutMs: 500, reconnect: false },
        (silent) => {
          silent.silentFrom = step
        },
      )
      const ends = await clock.run(Promise.all(Array.from({ length: 10 }, () => outcome(connection.connect()))))
      expect(clock.now()).toBe(500)
      for (const end of ends) expect(end).toMatchObject({ error: { code: 'ORB_CONNECT', stage, executed: 'no' } })
      expect(peer.sessions).toHaveLength(1)
      await clock.settle()
      expect(peer.session.open).toBe(false)
      expect(clock.pendingTimers).toBe(0)
      // The next attempt starts clean.
      peer.silentFrom = undefined
      await clock.run(Promise.all([connection.connect(), connection.connect()]))
      expect(peer.sessions).toHaveLength(2)
      connection.destroy()
    },
  )

  it('covers a dial that never ends, and a socket that opens too late is closed', async () => {
    const clock = new VirtualClock()
    const peer = new ScriptedPeer({ clock })
    const connection = createConnection({
      uri: 'h',
      connectTimeoutMs: 500,
      reconnect: false,
      environment: {
        clock,
        random: () => 0.5,
        dial: () =>
          new Promise((resolve) => {
            clock.schedule(700, () => {
              if ('connect' in peer.address) resolve(peer.address.connect())
            })
          }),
      },
    })
    expect(await clock.run(failure(connection.connect()))).toMatchObject({ code: 'ORB_CONNECT', stage: 'dial' })
    expect(clock.now()).toBe(500)
    await clock.advance(1_000)
    expect(peer.session.open).toBe(false)
  })

  it('is one deadline, not one per step', async () => {
    const clock = new VirtualClock()
    const peer = new ScriptedPeer({ clock })
    peer.silentFrom = 'id'
    const connection = createConnection({
      uri: 'h',
      connectTimeoutMs: 500,
      reconnect: false,
      environment: {
        clock,
        random: () => 0.5,
        dial: () =>
          new Promise((resolve) => {
            clock.schedule(450, () => {
              if ('connect' in peer.address) resolve(peer.address.connect())
            })
          }),
      },
    })
    expect(await clock.run(failure(connection.connect()))).toMatchObject({ stage: 'id' })
    expect(clock.now()).toBe(500)
  })

  it('aborts the dial it gave up on', async () => {
    const clock = new VirtualClock()
    let aborted = 0
    const connection = createConnection({
      uri: 'h',
      connectTimeoutMs: 500,
      reconnect: { retries: 0 },
      environment: {
        clock,
        random: () => 0.5,
        dial: (_address, signal) =>
          new Promise((_resolve, reject) => {
            signal.addEventListener('abort', () => {
              aborted += 1
              reject(signal.reason as Error)
            })
          }),
      },
    })
    await clock.run(failure(connection.connect()))
    expect(aborted).toBe(1)
  })
})

describe('connect', () => {
  it('resolves when the connection is usable', async () => {
    const clock = new VirtualClock()
    const peer = new ScriptedPeer({ clock })
    const connection = await clock.run(connect({ uri: peer.address, environment: { clock, random: () => 0.5 } }))
    expect(connection.state).toBe('active')
    await clock.run(connection.close())
  })

  it('rejects with what made the first attempt fail, and leaves nothing behind', async () => {
    const clock = new VirtualClock()
    const peer = new ScriptedPeer({ clock })
    peer.refusal = new Error('connect ECONNREFUSED')
    const error = await clock.run(failure(connect({ uri: peer.address, environment: { clock, random: () => 0.5 } })))
    expect(error).toBeInstanceOf(ConnectError)
    await clock.advance(10_000)
    expect(clock.pendingTimers).toBe(0)
    expect(peer.sessions).toEqual([])
  })

  it('refuses options that make no sense before it dials', async () => {
    await expect(connect('localhost:0')).rejects.toBeInstanceOf(ConfigError)
    await expect(connect('localhost', { requestTimeoutMs: -1 })).rejects.toBeInstanceOf(ConfigError)
  })
})

describe('The session user is the requested user or an error', () => {
  const users = { alice: 'secret', пользователь: '✓:@/?#%', odd: '?', odder: '}p{', empty: '' }
  const logins: readonly [name: string, options: object, user: string][] = [
    ['by options', { user: 'alice', password: 'secret' }, 'alice'],
    ['with a Cyrillic name and every special character', { user: 'пользователь', password: '✓:@/?#%' }, 'пользователь'],
    ['with the password "?"', { user: 'odd', password: '?' }, 'odd'],
    ['with the password "}p{"', { user: 'odder', password: '}p{' }, 'odder'],
    ['with an empty password', { user: 'empty', password: '' }, 'empty'],
    ['with no password where it is empty', { user: 'empty' }, 'empty'],
    ['as nobody: guest', {}, 'guest'],
    ['as guest without a password', { user: 'guest' }, 'guest'],
  ]
  it.each(logins)('logs in %s', async (_name, options, user) => {
    const { peer, clock, connection } = await connected({ users }, options)
    expect(peer.session.user).toBe(user)
    peer.cut()
    await clock.advance(100)
    expect([peer.sessions.length, peer.session.user, connection.state]).toEqual([2, user, 'active'])
  })

  const refusals: readonly [name: string, options: object][] = [
    ['a name with no password', { user: 'alice' }],
    ['a name with an empty password', { user: 'alice', password: '' }],
    ['a wrong password', { user: 'alice', password: 'Secret' }],
    ['an unknown name', { user: 'bob', password: 'secret' }],
    ['guest with a password it does not have', { user: 'guest', password: 'x' }],
  ]
  it.each(refusals)('fails for %s, with the server’s code, and closes the socket', async (_name, options) => {
    const { clock, peer, connection } = dialling({ users }, options)
    const error = await clock.run(failure(connection.connect()))
    expect(error).toBeInstanceOf(AuthError)
    expect((error.cause as BoxError).boxCode).toBe(47)
    expect(error.executed).toBe('no')
    await clock.settle()
    expect(peer.sessions.some((session) => session.open)).toBe(false)
    connection.destroy()
  })

  it('takes credentials from the address string, with escapes decoded', async () => {
    const clock = new VirtualClock()
    const peer = new ScriptedPeer({ clock, users: { 'u s': 'p@:/' } })
    const connection = createConnection({
      uri: 'u%20s:p%40%3A%2F@127.0.0.1:3301',
      environment: {
        clock,
        random: () => 0.5,
        dial: (address) => {
          expect(address).toEqual({ host: '127.0.0.1', port: 3301 })
          return 'connect' in peer.address
            ? Promise.resolve(peer.address.connect())
            : Promise.reject(new Error('unreachable'))
        },
      },
    })
    await clock.run(connection.connect())
    expect(peer.session.user).toBe('u s')
    connection.destroy()
  })

  it('never falls back to guest when a login is refused after a reconnect', async () => {
    const { clock, peer, connection } = await connected({ users }, { user: 'alice', password: 'secret' })
    peer.users = { alice: 'rotated' }
    peer.cut()
    await clock.advance(60)
    expect(await clock.run(failure(connection.ping()))).toBeInstanceOf(AuthError)
    expect(peer.requests).toEqual([])
    connection.destroy()
  })
})

describe('A refused login', () => {
  it('counts against back-off, is what callers see at once, and heals soon after the correction', async () => {
    const { clock, peer, connection } = dialling({ users: { alice: 'new' } }, { user: 'alice', password: 'old' })
    peer.handle(RequestType.ping, (request) => request.ok())
    let attempts = 0
    connection.on('connectFailed', () => (attempts += 1))
    const seen: (string | undefined)[] = []
    for (let i = 0; i < 100; i += 1) {
      const end = await clock.run(outcome(connection.ping()))
      seen.push('error' in end ? end.error.code : undefined)
      await clock.advance(100)
    }
    expect(new Set(seen)).toEqual(new Set(['ORB_AUTH']))
    expect(attempts).toBeLessThanOrEqual(9)
    expect(peer.requests).toEqual([])
    peer.users = { alice: 'old' }
    await clock.advance(6_000)
    await clock.run(connection.ping())
    connection.destroy()
  })

  it('by an instance that is not ready is no refusal of the user: requests wait', async () => {
    const { clock, peer, connection } = dialling({ users: { alice: 'p' } }, { user: 'alice', password: 'p' })
    peer.handle(RequestType.auth, (request) => request.error(116, 'Instance bootstrap has not finished yet'))
    const ping = connection.ping()
    await clock.advance(300)
    peer.handle(RequestType.auth, undefined)
    await clock.run(ping)
    connection.destroy()
  })
})
