/* The change of the master by hand: section 15 of the design, field case 8. */
import {
  beginRequest,
  callRequest,
  commitRequest,
  insertRequest,
  Key,
  pingRequest,
  RequestType,
} from '@orbweaver/iproto'
import { afterEach, describe, expect, it } from 'vitest'
import { FailoverError, TargetUnavailableError, UnknownTargetError } from '../src/index.js'
import { type RawClient, Scene, type SceneOptions } from './scene.js'

let scene: Scene
afterEach(() => scene.close())

/** Two servers, `a` the master; calls answer with the server's name, `slow` ones when the test says so. */
function start(options: SceneOptions = {}): Scene {
  scene = new Scene({ peers: { a: {}, b: {} }, ...options })
  for (const [name, peer] of Object.entries(scene.peers)) {
    peer.handle(RequestType.call, (request) => {
      if (request.body.requireText(Key.functionName) !== 'slow') request.reply([name])
    })
    for (const type of [RequestType.begin, RequestType.commit, RequestType.insert, RequestType.rollback]) {
      peer.handle(type, (request) => request.ok())
    }
    status(name, name !== 'a')
  }
  return scene
}

function status(name: string, isReadonly: boolean): void {
  scene.peer(name).broadcast('box.status', { is_ro: isReadonly, is_ro_cfg: false, status: 'running' })
}

/** Makes one read-only and the other writable, as a demotion and a promotion do. */
const switching = {
  demote: async (name: string): Promise<void> => status(name, true),
  promote: async (name: string): Promise<void> => status(name, false),
}

/** What a promise was rejected with. */
function failureOf(promise: Promise<unknown>): Promise<unknown> {
  return promise.then(
    () => undefined,
    (cause: unknown) => cause,
  )
}

async function whereOf(client: RawClient): Promise<unknown> {
  return ((await client.ask(callRequest('where'))).body.value(Key.data) as unknown[])[0]
}

describe('failOverTo', () => {
  it('waits for what is in flight, holds what comes, and goes on at the new master', async () => {
    start()
    const client = await scene.login()
    client.send(callRequest('slow'), 1)
    await scene.clock.settle()
    const running = scene.proxy.failOverTo('b', switching)
    await scene.clock.advance(200)
    for (let i = 10; i < 20; i++) client.send(callRequest('where'), i)
    await scene.clock.advance(100)
    expect(client.received).toHaveLength(1)
    scene.peer('a').requestsOf(RequestType.call)[0]!.reply(['a'])
    const report = await scene.clock.run(running)
    expect(report).toMatchObject({
      from: 'a',
      to: 'b',
      outcome: 'ok',
      drained: true,
      bufferedMax: 10,
      failedUnknown: 0,
      brokenStreams: 0,
      epoch: 2,
    })
    expect(report.pauseMs).toBeGreaterThanOrEqual(300)
    expect((await client.reply(1)).body.value(Key.data)).toEqual(['a'])
    for (let i = 10; i < 20; i++) expect((await client.reply(i)).body.value(Key.data)).toEqual(['b'])
    // Logged in at the new master before the pause, so that nobody had to wait for it.
    expect(scene.proxy.stats()).toMatchObject({ rw: 'b', isPaused: false, epoch: 2 })
  })

  it('sends nothing to the old master afterwards', async () => {
    start()
    const clients = await Promise.all([scene.login(), scene.login(), scene.login()])
    for (const client of clients) await whereOf(client)
    await scene.clock.run(scene.proxy.failOverTo('b', switching))
    const before = scene.peer('a').requestsOf(RequestType.call).length
    for (const client of clients) expect(await whereOf(client)).toBe('b')
    expect(scene.peer('a').requestsOf(RequestType.call)).toHaveLength(before)
    await scene.clock.run(scene.proxy.failOverTo('a', switching))
    for (const client of clients) expect(await whereOf(client)).toBe('a')
  })

  it('to the master there is changes nothing', async () => {
    start()
    const client = await scene.login()
    const report = await scene.clock.run(scene.proxy.failOverTo('a'))
    expect(report).toMatchObject({ from: 'a', to: 'a', outcome: 'ok', epoch: 1, pauseMs: 0 })
    expect(await whereOf(client)).toBe('a')
  })

  it('to an unknown target, or one that cannot be reached, changes nothing and pauses nothing', async () => {
    start()
    const client = await scene.login()
    await expect(scene.proxy.failOverTo('nobody')).rejects.toBeInstanceOf(UnknownTargetError)
    scene.peer('b').refusal = new Error('connection refused')
    scene.peer('b').cut()
    const running = failureOf(scene.proxy.failOverTo('b'))
    await scene.clock.advance(2_000)
    expect(await whereOf(client)).toBe('a')
    expect(await scene.clock.run(running)).toBeInstanceOf(TargetUnavailableError)
    expect(scene.proxy.stats()).toMatchObject({ rw: 'a', isPaused: false, epoch: 1 })
  })

  it('to a read-only target goes back when it stays so', async () => {
    start()
    const client = await scene.login()
    const error = await scene.clock.run(failureOf(scene.proxy.failOverTo('b', { handoverTimeoutMs: 1_000 })))
    expect(error).toBeInstanceOf(FailoverError)
    expect((error as FailoverError).report).toMatchObject({ outcome: 'rolled_back', drained: true })
    expect((error as FailoverError).message).toMatch(/still read-only after 1000 ms/)
    expect(await whereOf(client)).toBe('a')
  })

  it('to a target without a feature that clients were promised names them, and with force closes them', async () => {
    start({ peers: { a: {}, b: { features: [0, 1, 2, 3, 4] } } })
    const [modern, plain] = [await scene.login(), await scene.login()]
    expect((await modern.ask(modern.identify([0, 1, 5, 6]))).type).toBe(0)
    const error = await scene.clock.run(failureOf(scene.proxy.failOverTo('b', switching)))
    expect(error).toBeInstanceOf(TargetUnavailableError)
    expect((error as TargetUnavailableError).clients).toEqual([1])
    expect(await whereOf(modern)).toBe('a')
    const report = await scene.clock.run(scene.proxy.failOverTo('b', { ...switching, force: true }))
    expect(report).toMatchObject({ outcome: 'forced', closedClients: 1 })
    await scene.clock.settle()
    expect(modern.isEnded).toBe(true)
    expect(await whereOf(plain)).toBe('b')
  })

  it('lets transactions begun before come to their end, behind which new ones wait', async () => {
    start()
    const [one, two] = [await scene.login(), await scene.login()]
    await one.ask(beginRequest(), 1)
    const running = scene.proxy.failOverTo('b', switching)
    await scene.clock.advance(100)
    // What is not of the transaction waits, and does not hold it up.
    one.send(callRequest('where'), 10)
    one.send(beginRequest(), 11, 2)
    one.send(insertRequest(512, [1]), 12, 1)
    two.send(beginRequest(), 20, 1)
    expect((await one.reply(12)).type).toBe(0)
    one.send(commitRequest(), 13, 1)
    expect((await one.reply(13)).type).toBe(0)
    const report = await scene.clock.run(running)
    expect(report).toMatchObject({ outcome: 'ok', drained: true, brokenStreams: 0 })
    expect(scene.peer('a').requestsOf(RequestType.commit)).toHaveLength(1)
    expect(scene.peer('b').requestsOf(RequestType.begin)).toHaveLength(2)
    expect((await one.reply(10)).body.value(Key.data)).toEqual(['b'])
  })

  it('goes back when a transaction stays open beyond the time for draining', async () => {
    start()
    const [one, two] = [await scene.login(), await scene.login()]
    await one.ask(beginRequest(), 1)
    const startedAt = scene.clock.now()
    const running = failureOf(scene.proxy.failOverTo('b', { ...switching, drainTimeoutMs: 500 }))
    two.send(callRequest('where'), 5)
    const error = await scene.clock.run(running)
    expect((error as FailoverError).report).toMatchObject({ outcome: 'rolled_back', drained: false, from: 'a' })
    expect(scene.clock.now() - startedAt).toBeLessThan(1_000)
    expect((await two.reply(5)).body.value(Key.data)).toEqual(['a'])
    expect((await one.ask(commitRequest(), 1)).type).toBe(0)
  })

  it('breaks it when told to force, and everybody else goes on at the new master', async () => {
    start()
    const [one, two] = [await scene.login(), await scene.login()]
    await one.ask(beginRequest(), 1)
    two.send(callRequest('slow'), 4)
    await scene.clock.settle()
    const report = await scene.clock.run(
      scene.proxy.failOverTo('b', { ...switching, drainTimeoutMs: 500, onDrainTimeout: 'force' }),
    )
    expect(report).toMatchObject({ outcome: 'forced', drained: false, brokenStreams: 1, failedUnknown: 1 })
    expect((await one.ask(commitRequest(), 1)).error.boxCode).toBe(97)
    expect((await two.reply(4)).error.fields.get('sent')).toBe(true)
    expect(await whereOf(two)).toBe('b')
    expect(await whereOf(one)).toBe('b')
  })

  it('does not wait for a dead master when forced', async () => {
    start()
    const client = await scene.login()
    client.send(callRequest('slow'), 1)
    await scene.clock.settle()
    const startedAt = scene.clock.now()
    status('b', false)
    await scene.clock.settle()
    const report = await scene.clock.run(scene.proxy.failOverTo('b', { force: true }))
    expect(report.outcome).toBe('forced')
    expect(scene.clock.now() - startedAt).toBeLessThan(200)
    expect(await whereOf(client)).toBe('b')
  })

  it('is cancelled by resume while it drains, and nobody is left waiting', async () => {
    start()
    const client = await scene.login()
    client.send(callRequest('slow'), 1)
    await scene.clock.settle()
    const running = failureOf(scene.proxy.failOverTo('b', switching))
    await scene.clock.advance(100)
    client.send(callRequest('where'), 2)
    await scene.clock.advance(100)
    scene.proxy.resume()
    const error = await scene.clock.run(running)
    expect((error as FailoverError).report.outcome).toBe('cancelled')
    expect((await client.reply(2)).body.value(Key.data)).toEqual(['a'])
    expect(scene.proxy.stats()).toMatchObject({ rw: 'a', isPaused: false })
  })

  it('joins a second call for the same target, and lets one for another wait', async () => {
    start({ peers: { a: {}, b: {}, c: {} } })
    status('c', false)
    const client = await scene.login()
    client.send(callRequest('slow'), 1)
    await scene.clock.settle()
    const first = scene.proxy.failOverTo('b', switching)
    await scene.clock.advance(50)
    const same = scene.proxy.failOverTo('b', switching)
    const other = scene.proxy.failOverTo('c', switching)
    await scene.clock.advance(50)
    scene.peer('a').requestsOf(RequestType.call)[0]!.reply(['a'])
    expect(await scene.clock.run(same)).toBe(await scene.clock.run(first))
    expect(await scene.clock.run(other)).toMatchObject({ from: 'b', to: 'c', outcome: 'ok' })
    expect(await whereOf(client)).toBe('c')
  })

  it('says what a failing callback said, and goes back while the old master can still write', async () => {
    start()
    const client = await scene.login()
    const promote = (): Promise<void> => Promise.reject(new Error('no quorum'))
    const error = await scene.clock.run(failureOf(scene.proxy.failOverTo('b', { promote })))
    expect((error as Error).message).toBe('The master stays a: promoting b failed: no quorum')
    expect(await whereOf(client)).toBe('a')
  })

  it('waits no longer than its time in all, whatever a callback does', async () => {
    start()
    const client = await scene.login()
    const startedAt = scene.clock.now()
    const never = (): Promise<void> => new Promise(() => undefined)
    const error = await scene.clock.run(failureOf(scene.proxy.failOverTo('b', { promote: never })))
    expect((error as FailoverError).report.outcome).toBe('rolled_back')
    expect(scene.clock.now() - startedAt).toBeLessThanOrEqual(20_000)
    expect(await whereOf(client)).toBe('a')
  })

  it('calls its steps in order: demote, wait for the rows, promote', async () => {
    start()
    const steps: string[] = []
    await scene.clock.run(
      scene.proxy.failOverTo('b', {
        promote: async (name) => {
          steps.push(`promote ${name}`)
          await switching.promote(name)
        },
        demote: async (name) => {
          steps.push(`demote ${name}`)
          await switching.demote(name)
        },
        waitReplicated: async (from, to) => void steps.push(`rows ${from} ${to}`),
      }),
    )
    expect(steps).toEqual(['demote a', 'rows a b', 'promote b'])
  })
})

describe('a pause by hand', () => {
  it('holds requests for the master, clients may come and log in, and all go on in order', async () => {
    start()
    const client = await scene.login()
    scene.proxy.pause()
    for (let i = 0; i < 50; i++) client.send(callRequest('where'), i)
    const late = await scene.login('bob')
    late.send(callRequest('where'), 1)
    await scene.clock.advance(1_000)
    expect(scene.proxy.stats()).toMatchObject({ isPaused: true, buffered: 51, inFlight: 0 })
    scene.proxy.resume()
    await late.reply(1)
    for (let i = 0; i < 50; i++) await client.reply(i)
    expect(client.received.slice(1).map(({ sync }) => sync)).toEqual(Array.from({ length: 50 }, (_, i) => i))
  })

  it('answers 78 to what waits too long, each by its own arrival, and it was surely not executed', async () => {
    start({ limits: { pauseMaxWaitMs: 500 } })
    const client = await scene.login()
    scene.proxy.pause()
    client.send(callRequest('where'), 1)
    await scene.clock.advance(300)
    client.send(callRequest('where'), 2)
    await scene.clock.advance(250)
    expect(client.received.slice(1).map(({ sync, error }) => [sync, error.boxCode, error.fields.get('sent')])).toEqual([
      [1, 78, false],
    ])
    await scene.clock.advance(100)
    scene.proxy.resume()
    expect((await client.reply(2)).type).toBe(0)
    expect(scene.peer('a').requestsOf(RequestType.call)).toHaveLength(1)
  })

  it('reads no further from clients when too much waits, and loses nothing', async () => {
    start({ limits: { pauseMaxRequests: 100, maxInflightPerClient: 64 } })
    const clients = await Promise.all([scene.login(), scene.login(), scene.login(), scene.login()])
    scene.proxy.pause()
    await scene.clock.advance(100)
    for (const client of clients) for (let i = 0; i < 500; i++) client.send(callRequest('where'), i)
    await scene.clock.advance(1_000)
    const { buffered } = scene.proxy.stats()
    expect(buffered).toBeGreaterThan(50)
    expect(buffered).toBeLessThanOrEqual(64 * 4)
    scene.proxy.resume()
    for (const client of clients) await client.reply(499)
    expect(scene.peer('a').requestsOf(RequestType.call)).toHaveLength(2_000)
  })
})

describe('setRw', () => {
  it('sends what comes next to the new master and lets the rest end where it is', async () => {
    start()
    const client = await scene.login()
    client.send(callRequest('slow'), 1)
    await client.ask(beginRequest(), 7)
    scene.proxy.setRw('b')
    expect(await whereOf(client)).toBe('b')
    await client.ask(insertRequest(512, [1]), 7)
    await client.ask(commitRequest(), 7)
    scene.peer('a').requestsOf(RequestType.call)[0]!.reply(['a'])
    expect((await client.reply(1)).body.value(Key.data)).toEqual(['a'])
    expect(scene.peer('a').requestsOf(RequestType.commit)).toHaveLength(1)
    expect(scene.peer('b').requestsOf(RequestType.commit)).toHaveLength(0)
  })

  it('refuses a name that is no target', () => {
    start()
    expect(() => scene.proxy.setRw('nobody')).toThrow(UnknownTargetError)
  })

  it('follows a source only when told to', async () => {
    start()
    const client = await scene.login()
    let tell: ((master: string) => void) | undefined
    const source = {
      async *changes(): AsyncGenerator<{ master: string | undefined }> {
        for (;;) {
          const master = await new Promise<string>((resolve) => {
            tell = resolve
          })
          yield { master }
        }
      },
    }
    const stop = scene.proxy.follow(source)
    await scene.clock.settle()
    tell!('b')
    await scene.clock.settle()
    expect(await whereOf(client)).toBe('b')
    stop()
    tell!('a')
    await scene.clock.settle()
    expect(await whereOf(client)).toBe('b')
    expect((await client.ask(pingRequest())).type).toBe(0)
  })
})
