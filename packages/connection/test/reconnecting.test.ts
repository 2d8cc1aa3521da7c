import { Key, RequestType } from '@orbweaver/iproto'
import { describe, expect, it } from 'vitest'
import { type Connected, ConnectError, createConnection } from '../src/index.js'
import { ScriptedPeer, uuidOf, VirtualClock } from '../src/testing/index.js'
import { connected, dialling, failure, outcome, seeded } from './rig.js'

describe('After a restart of the server', () => {
  it('a steady load goes on by itself, twenty times, whatever the outage and whoever comes back', async () => {
    const random = seeded(3)
    const rig = await connected({ version: '2.11.0' }, { requestTimeoutMs: 200 })
    const { clock, peer, connection } = rig
    const statuses: unknown[] = []
    connection.watch('box.status', (value) => statuses.push(value))
    peer.broadcast('box.status', 0)
    peer.handle(RequestType.call, (request) => request.reply(['pong']))
    const stop = new AbortController()
    const load = (async () => {
      while (!stop.signal.aborted) {
        await outcome(connection.call('f'))
        await new Promise<void>((resolve) => clock.schedule(10, resolve))
      }
    })()
    const timersBefore = 2
    for (let restart = 1; restart <= 20; restart += 1) {
      const outageMs = restart % 5 === 0 ? 0 : Math.floor(random() * 30_000)
      peer.refusal = new Error('connect ECONNREFUSED')
      peer.cut()
      await clock.advance(outageMs)
      if (restart === 10) {
        peer.uuid = uuidOf('another instance')
        peer.schemaVersion = 300
      }
      peer.values.set('box.status', restart)
      peer.refusal = undefined
      const downSince = clock.now()
      await clock.until(() => connection.state === 'active')
      // At most one pause: five seconds and its jitter.
      expect(clock.now() - downSince).toBeLessThanOrEqual(6_000)
      expect(await clock.run(connection.call('f'))).toEqual(['pong'])
      expect(statuses.at(-1)).toBe(restart)
      await clock.advance(1_500)
      expect(clock.pendingTimers).toBeLessThanOrEqual(timersBefore + 2)
      expect(peer.sessions.filter((session) => session.open)).toHaveLength(1)
    }
    expect(connection.peerUuid).toBe(uuidOf('another instance'))
    stop.abort()
    await clock.run(load)
    await clock.run(connection.close())
    expect(clock.pendingTimers).toBe(0)
  }, 30_000)

  it('everything is negotiated anew: features, login, subscriptions', async () => {
    const { clock, peer, connection } = await connected(
      { version: '2.11.0', users: { alice: 'secret' } },
      { user: 'alice', password: 'secret' },
    )
    const generations: Connected[] = []
    connection.on('connect', (up) => generations.push(up))
    const values: unknown[] = []
    connection.watch('key', (value) => values.push(value))
    await clock.settle()
    peer.version = '3.2.1'
    peer.features = [0, 1, 2, 3, 4, 5, 6, 11]
    peer.values.set('key', 'fresh')
    peer.cut()
    await clock.advance(100)
    expect(peer.session.user).toBe('alice')
    expect(generations.map(({ generation, version }) => [generation, version])).toEqual([[2, '3.2.1']])
    expect(connection.features.has(5)).toBe(true)
    expect(values).toEqual([undefined, 'fresh'])
    expect(connection.serverVersion).toBe('3.2.1')
  })

  it('a connection that breaks again at once is not dialled in a tight loop', async () => {
    const { clock, peer, connection } = await connected()
    let connects = 0
    connection.on('connect', () => {
      connects += 1
      peer.cut()
    })
    peer.cut()
    await clock.advance(10_000)
    expect(connects).toBeLessThanOrEqual(8)
    connection.destroy()
  })

  it('what belongs to the old session is refused, and says so', async () => {
    const { clock, peer, connection } = await connected()
    const { pingRequest } = await import('@orbweaver/iproto')
    const pin = { generation: connection.generation }
    peer.cut()
    await clock.advance(100)
    const error = await clock.run(
      failure(
        new Promise((resolve, reject) => {
          connection.send(pingRequest(), { deadline: clock.now() + 1_000, pin }, { done: resolve, failed: reject })
        }),
      ),
    )
    expect(error).toMatchObject({ code: 'ORB_CONNECTION_LOST', executed: 'no' })
    expect(peer.requests).toEqual([])
  })

  it('events of the old connection do not touch the new one', async () => {
    const { clock, peer, connection } = await connected({}, { reconnect: { minDelayMs: 1 } })
    const old = peer.session
    peer.handle(RequestType.call, (request) => request.reply([request.body.value(Key.functionName)]))
    old.destroy()
    await clock.advance(10)
    expect(connection.generation).toBe(2)
    old.raw(Buffer.from('c1'))
    await clock.advance(10)
    expect(await clock.run(connection.call('alive'))).toEqual(['alive'])
    expect(connection.generation).toBe(2)
  })
})

describe('createConnection', () => {
  it('dials at once and tells each failed attempt, without any listener being needed', async () => {
    const clock = new VirtualClock()
    const peer = new ScriptedPeer({ clock })
    peer.refusal = new Error('nobody home')
    const connection = createConnection({ uri: peer.address, environment: { clock, random: () => 0.5 } })
    const failures: string[] = []
    connection.on('connectFailed', (cause) => failures.push(cause.message))
    await clock.advance(200)
    expect(failures).toEqual(Array.from({ length: 3 }, () => 'Cannot connect to in-process: nobody home'))
    peer.refusal = undefined
    await clock.run(connection.connect())
    connection.destroy()
    await clock.settle()
    expect(clock.pendingTimers).toBe(0)
  })

  it('names every address that was tried', async () => {
    const clock = new VirtualClock()
    const dial = (): Promise<never> =>
      Promise.reject(
        new AggregateError([
          new Error('connect ECONNREFUSED ::1:3301'),
          new Error('connect ECONNREFUSED 127.0.0.1:3301'),
        ]),
      )
    const connection = createConnection({ uri: 'localhost', environment: { clock, random: () => 0.5, dial } })
    const error = await clock.run(failure(connection.connect()))
    expect(error).toBeInstanceOf(ConnectError)
    expect(error.message).toBe(
      'Cannot connect to localhost:3301: connect ECONNREFUSED ::1:3301; connect ECONNREFUSED 127.0.0.1:3301',
    )
    connection.destroy()
  })

  it('goes through the states net.box has', async () => {
    const rig = dialling({ users: { a: 'b' } }, { user: 'a', password: 'b' })
    const states = [rig.connection.state]
    rig.connection.on('state', (state) => states.push(state.name))
    await rig.clock.run(rig.connection.connect())
    rig.peer.cut()
    await rig.clock.until(() => rig.connection.generation === 2)
    await rig.clock.run(rig.connection.close())
    expect(states).toEqual([
      'initial',
      'auth',
      'active',
      'error_reconnect',
      'initial',
      'auth',
      'active',
      'closing',
      'closed',
    ])
  })
})

describe('ref and unref', () => {
  it('decide whether timers and the transport keep the process alive, those that run included', async () => {
    const clock = new VirtualClock()
    const peer = new ScriptedPeer({ clock })
    peer.refusal = new Error('nobody home')
    const refs: (boolean | undefined)[] = []
    const held: string[] = []
    const recording = {
      now: () => clock.now(),
      wallNow: () => clock.wallNow(),
      soon: (task: () => void) => clock.soon(task),
      schedule: (delayMs: number, task: () => void, options?: { readonly ref?: boolean }) => {
        refs.push(options?.ref)
        return clock.schedule(delayMs, task)
      },
    }
    const connection = createConnection({
      uri: {
        connect: () => {
          if (!('connect' in peer.address)) throw new Error('unreachable')
          const transport = peer.address.connect()
          return Object.assign(transport, { ref: () => held.push('ref'), unref: () => held.push('unref') })
        },
      },
      environment: { clock: recording, random: () => 0.5 },
    })
    const waiting = outcome(connection.ping({ timeout: 60_000 }))
    await clock.settle()
    refs.length = 0
    expect(connection.unref()).toBe(connection)
    // The pause before the next attempt, and the deadline of the ping.
    expect(refs).toEqual([false, false])
    connection.unref()
    expect(refs).toHaveLength(2)
    peer.refusal = undefined
    await clock.run(waiting)
    expect(held).toEqual(['unref'])
    connection.ref()
    expect(held).toEqual(['unref', 'ref'])
    connection.destroy()
  })
})

describe('Events', () => {
  it('are heard once, or until they are taken off', async () => {
    const { clock, peer, connection } = await connected({}, { reconnect: { minDelayMs: 1 } })
    const heard: string[] = []
    const always = (): void => void heard.push('always')
    connection.on('connect', always).once('connect', () => heard.push('once'))
    for (let i = 0; i < 2; i += 1) {
      peer.cut()
      await clock.advance(2_000)
    }
    connection.off('connect', always)
    peer.cut()
    await clock.advance(2_000)
    expect(heard).toEqual(['always', 'once', 'always'])
    expect(connection.stateDetails).toMatchObject({ name: 'active' })
    connection.destroy()
  })
})
