/* What happens to a connection when its real server dies, freezes or comes back. */
import { type Connected, connect, createConnection } from '@orbweaver/connection'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { isAtLeast, missingTarantool, startTarantool, type TarantoolServer, tarantoolVersion } from '../tarantool.js'
import { SETUP } from './setup.js'

const title = missingTarantool === undefined ? `on Tarantool ${tarantoolVersion}` : `(${missingTarantool})`

describe.skipIf(missingTarantool !== undefined)(`Recovery ${title}`, () => {
  let server: TarantoolServer
  beforeEach(async () => {
    server = await startTarantool({ lua: SETUP })
  })
  afterEach(() => server.stop())

  it('goes on after kill -9 and a restart, as the same user, with everything negotiated anew', async () => {
    const connection = await connect({
      uri: server.uri,
      user: 'alice',
      password: 'secret',
      reconnect: { maxDelayMs: 200 },
    })
    const connects: Connected[] = []
    connection.on('connect', (up) => connects.push(up))
    const statement = await connection.prepare('SELECT 1')
    for (let restart = 1; restart <= 3; restart += 1) {
      const flight = Array.from({ length: 20 }, () =>
        connection.call('sleep', [5]).then(
          () => 'answered',
          (error: { code: string; executed: string }) => `${error.code} ${error.executed}`,
        ),
      )
      // Answered behind them on the same connection: they have arrived.
      await connection.ping()
      server.signal('SIGKILL')
      expect(new Set(await Promise.all(flight))).toEqual(new Set(['ORB_CONNECTION_LOST unknown']))
      await server.exited()
      const waiting = connection.call('whoami', [], { timeout: 20_000 })
      await server.start()
      expect(await waiting).toEqual(['alice'])
      expect(await connection.insert('users', [restart, 'back'])).toEqual([restart, 'back'])
      expect((await statement.execute()).rows).toEqual([[1]])
    }
    expect(connects.map(({ generation }) => generation)).toEqual([2, 3, 4])
    expect(connection.stats()).toMatchObject({ inFlight: 0, late: 0, queued: 0 })
    await connection.close()
  })

  it('does not repeat a call whose server died of it', async () => {
    const connection = await connect(server.uri)
    await expect(connection.call('increment_and_die')).rejects.toMatchObject({
      code: 'ORB_CONNECTION_LOST',
      executed: 'unknown',
    })
    await server.exited()
    await server.start()
    expect(await connection.call('counted', [], { timeout: 20_000 })).toEqual([0])
    await connection.close()
  })

  it('fails requests to a dead server within their deadline, with the system’s error', async () => {
    const connection = await connect(server.uri)
    server.signal('SIGKILL')
    await server.exited()
    await expect.poll(() => connection.state).toBe('error_reconnect')
    const started = performance.now()
    await expect(connection.ping({ timeout: 300 })).rejects.toMatchObject({
      executed: 'no',
      message: expect.stringContaining('ECONNREFUSED') as string,
    })
    expect(performance.now() - started).toBeLessThan(3_000)
    connection.destroy()
  })

  it('times out on a frozen server and takes its late answers for nobody’s when it thaws', async () => {
    const connection = await connect(server.uri)
    server.signal('SIGSTOP')
    await expect(connection.call('increment', [], { timeout: 100 })).rejects.toMatchObject({
      code: 'ORB_REQUEST_TIMEOUT',
      executed: 'unknown',
    })
    // A frozen process still completes the TCP handshake: the deadline has to cover the greeting.
    await expect(connect({ uri: server.uri, connectTimeoutMs: 200 })).rejects.toMatchObject({ stage: 'greeting' })
    server.signal('SIGCONT')
    expect(await connection.call('counted')).toEqual([1])
    expect(connection.generation).toBe(1)
    await expect.poll(() => connection.stats().late).toBe(0)
    await connection.close()
  })

  it('comes back from a server that was not there at first', async () => {
    server.signal('SIGKILL')
    await server.exited()
    const connection = createConnection({ uri: server.uri, reconnect: { maxDelayMs: 100 } })
    const early = connection.call('echo', ['early'], { timeout: 20_000 })
    await expect(connection.connect()).rejects.toMatchObject({ code: 'ORB_CONNECT' })
    await server.start()
    expect(await early).toEqual(['early'])
    await connection.close()
  })

  it('closes gracefully under load: what was taken is answered', async () => {
    const connection = await connect(server.uri)
    const calls = Array.from({ length: 200 }, (_, i) => connection.call('sleep', [0.05, i]))
    const closing = connection.close()
    await expect(connection.ping()).rejects.toMatchObject({ code: 'ORB_CONNECTION_CLOSED', executed: 'no' })
    expect(await Promise.all(calls)).toEqual(Array.from({ length: 200 }, (_, i) => [i]))
    await closing
    expect(connection.state).toBe('closed')
  })

  it.skipIf(!isAtLeast(2, 10))(
    'is told of a shutdown: the call under way is answered, and the next server is found',
    async () => {
      const connection = await connect({ uri: server.uri, reconnect: { maxDelayMs: 200 } })
      let announced = 0
      connection.on('shutdown', () => (announced += 1))
      const slow = connection.call('sleep', [0.5, 'finished'])
      await connection.ping()
      server.signal('SIGTERM')
      await expect.poll(() => announced, { timeout: 5_000 }).toBe(1)
      const later = connection.call('echo', ['later'], { timeout: 20_000 })
      expect(await slow).toEqual(['finished'])
      await server.exited()
      await server.start()
      expect(await later).toEqual(['later'])
      await connection.close()
    },
  )
})
