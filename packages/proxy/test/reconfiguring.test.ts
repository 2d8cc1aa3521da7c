/* Another configuration without dropping clients: section 18 of the design. */
import { beginRequest, callRequest, commitRequest, Key, RequestType } from '@orbweaver/iproto'
import { ConfigError } from '@orbweaver/iproto'
import { ScriptedPeer } from '@orbweaver/connection/testing'
import { afterEach, describe, expect, it } from 'vitest'
import type { ProxyOptions } from '../src/index.js'
import { hashOf, PASSWORDS, type RawClient, Scene } from './scene.js'

let scene: Scene
afterEach(() => scene.close())

function start(): Scene {
  scene = new Scene({ peers: { a: {}, b: {} } })
  for (const name of ['a', 'b']) answerAs(scene.peer(name), name)
  return scene
}

function answerAs(peer: ScriptedPeer, name: string): void {
  peer.handle(RequestType.call, (request) => {
    if (request.body.requireText(Key.functionName) !== 'slow') request.reply([name])
  })
  for (const type of [RequestType.begin, RequestType.commit]) peer.handle(type, (request) => request.ok())
}

/** The configuration the scene began with, changed. */
function config(changes: Partial<ProxyOptions> = {}): ProxyOptions {
  return {
    targets: { a: { uri: scene.peer('a').address }, b: { uri: scene.peer('b').address } },
    rw: 'a',
    credentials: {
      mode: 'static',
      users: Object.fromEntries(Object.entries(PASSWORDS).map(([user, password]) => [user, hashOf(password)])),
    },
    ...changes,
  }
}

async function whereOf(client: RawClient): Promise<unknown> {
  return ((await client.ask(callRequest('where'))).body.value(Key.data) as unknown[])[0]
}

describe('reconfigure', () => {
  it('does nothing when nothing is different', async () => {
    start()
    const client = await scene.login()
    await whereOf(client)
    expect(await scene.clock.run(scene.proxy.reconfigure(config()))).toEqual({ changes: [] })
    expect(scene.proxy.stats()).toMatchObject({ lanesOpened: 1, lanesClosed: 0 })
  })

  it('moves requests to a target at its new address, and lets those in flight end at the old one', async () => {
    start()
    const client = await scene.login()
    client.send(callRequest('slow'), 1)
    await scene.clock.settle()
    const moved = new ScriptedPeer({ clock: scene.clock, version: '3.2.1', users: PASSWORDS })
    answerAs(moved, 'moved')
    const targets = { a: { uri: moved.address }, b: { uri: scene.peer('b').address } }
    const report = await scene.clock.run(scene.proxy.reconfigure(config({ targets })))
    expect(report.changes).toEqual(['targets.a.uri'])
    expect(await whereOf(client)).toBe('moved')
    scene.peer('a').requestsOf(RequestType.call)[0]!.reply(['a'])
    expect((await client.reply(1)).body.value(Key.data)).toEqual(['a'])
    await scene.clock.settle()
    expect(scene.peer('a').sessions.some(({ open }) => open)).toBe(false)
  })

  it('adds targets and changes the master', async () => {
    start()
    const client = await scene.login()
    const report = await scene.clock.run(scene.proxy.reconfigure(config({ rw: 'b' })))
    expect(report.changes).toEqual(['rw'])
    expect(await whereOf(client)).toBe('b')
  })

  it('leaves a master that was set by hand where the configuration did not change it', async () => {
    start()
    const client = await scene.login()
    await scene.clock.run(scene.proxy.failOverTo('b'))
    await scene.clock.run(scene.proxy.reconfigure(config({ limits: { maxInflightPerClient: 7 } })))
    expect(await whereOf(client)).toBe('b')
  })

  it('refuses to remove the master, or a target with an open transaction unless forced', async () => {
    start()
    const client = await scene.login()
    await client.ask(beginRequest(), 1)
    const onlyB = { b: { uri: scene.peer('b').address } }
    const failure = async (options: ProxyOptions, how?: { force: boolean }): Promise<unknown> =>
      scene.clock.run(
        scene.proxy.reconfigure(options, how).then(
          () => undefined,
          (cause: unknown) => cause,
        ),
      )
    const { rw: _rw, ...withoutRw } = config({ targets: onlyB })
    expect(await failure(withoutRw)).toBeInstanceOf(ConfigError)
    expect(await failure(config({ targets: onlyB, rw: 'b' }))).toBeInstanceOf(ConfigError)
    expect(scene.proxy.stats().rw).toBe('a')
    expect(await failure(config({ targets: onlyB, rw: 'b' }), { force: true })).toBeUndefined()
    expect(await whereOf(client)).toBe('b')
    expect((await client.ask(commitRequest(), 1)).type).toBe(0)
  })

  it('lets new credentials count from the next login', async () => {
    start()
    const before = await scene.login()
    scene.peer('a').users = { alice: 'other' }
    const credentials = { mode: 'static', users: { alice: hashOf('other') } } as const
    const report = await scene.clock.run(scene.proxy.reconfigure(config({ credentials })))
    expect(report.changes).toEqual(['credentials'])
    expect(await whereOf(before)).toBe('a')
    const late = await scene.client()
    expect((await late.ask(late.auth('alice', 'secret'))).error.boxCode).toBe(47)
    expect((await late.ask(late.auth('alice', 'other'))).type).toBe(0)
  })

  it('ends clients of users whose password is another one, where that is wanted', async () => {
    const users = { alice: hashOf('secret'), bob: hashOf('b') }
    start()
    await scene.clock.run(scene.proxy.reconfigure(config({ credentials: { mode: 'static', users } })))
    const [alice, bob, guest] = [await scene.login('alice'), await scene.login('bob'), await scene.client()]
    const changed = { mode: 'static', users: { ...users, alice: hashOf('other') }, evictChangedUsers: true } as const
    await scene.clock.run(scene.proxy.reconfigure(config({ credentials: changed })))
    await scene.clock.settle()
    expect([alice.isEnded, bob.isEnded, guest.isEnded]).toEqual([true, false, false])
    const removed = { mode: 'static', users: { alice: hashOf('other') }, evictChangedUsers: true } as const
    await scene.clock.run(scene.proxy.reconfigure(config({ credentials: removed })))
    await scene.clock.settle()
    expect([bob.isEnded, guest.isEnded]).toEqual([true, false])
  })

  it('renews what a listener knows, and refuses what cannot be changed while it runs', async () => {
    start()
    const door = { host: '127.0.0.1', port: 3301 }
    await scene.clock.run(scene.proxy.reconfigure(config({ listen: [door] })))
    const trusting = { ...door, proxyProtocol: { trusted: ['10.0.0.0/8'] } }
    expect((await scene.clock.run(scene.proxy.reconfigure(config({ listen: [trusting] })))).changes).toEqual([
      'listen 127.0.0.1:3301',
    ])
    await expect(
      scene.clock.run(scene.proxy.reconfigure(config({ listen: [trusting], admin: { port: 0 } }))),
    ).rejects.toMatchObject({ problems: [{ path: 'admin' }] })
  })

  it('changes nothing when something is wrong, and names all of it', async () => {
    start()
    await expect(scene.proxy.reconfigure(config({ rw: 'x', limits: { maxClients: -1 } }))).rejects.toMatchObject({
      problems: [{ path: 'rw' }, { path: 'limits.maxClients' }],
    })
    expect(scene.proxy.stats().rw).toBe('a')
  })
})
