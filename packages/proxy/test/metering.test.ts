/* What the proxy tells about requests: metrics, and the tracing channel. */
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { callRequest, ErrorCode, insertRequest, RequestType } from '@orbweaver/iproto'
import { afterEach, describe, expect, it } from 'vitest'
import { CHANNELS, type RequestTrace } from '../src/index.js'
import { Scene, type SceneOptions } from './scene.js'

let scene: Scene
afterEach(() => scene.close())

function start(options: SceneOptions = {}): Scene {
  scene = new Scene(options)
  scene.peer().handle(RequestType.call, (request) => request.reply([1]))
  return scene
}

/** Values by name and labels, of this package's own metrics. */
async function metrics(): Promise<Map<string, number>> {
  const { text } = await scene.proxy.metrics()
  return new Map(
    text
      .split('\n')
      .filter((line) => line.startsWith('orbweaver_proxy_'))
      .map((line) => {
        const at = line.lastIndexOf(' ')
        return [line.slice('orbweaver_proxy_'.length, at), Number(line.slice(at + 1))]
      }),
  )
}

describe('metrics', () => {
  it('count requests, replies and their times by type, class and result', async () => {
    start({ isMetered: true })
    const client = await scene.login()
    for (let i = 0; i < 3; i++) await client.ask(callRequest('f'))
    scene.peer().handle(RequestType.insert, (request) => request.error(ErrorCode.tupleFound, 'Duplicate'))
    await client.ask(insertRequest(512, [1]))
    scene.peer().handle(RequestType.call, (request) => void scene.clock.schedule(20, () => request.reply([1])))
    await client.ask(callRequest('slow'))
    const found = await metrics()
    expect(found.get('requests_total{type="10",target="a",class="rw"}')).toBe(4)
    expect(found.get('replies_total{type="10",target="a",result="ok"}')).toBe(4)
    expect(found.get('replies_total{type="2",target="a",result="error"}')).toBe(1)
    expect(found.get('request_duration_seconds_count{target="a",class="rw"}')).toBe(5)
    expect(found.get('request_duration_seconds_bucket{target="a",class="rw",le="0.01"}')).toBe(4)
    expect(found.get('request_duration_seconds_bucket{target="a",class="rw",le="0.025"}')).toBe(5)
    expect(found.get('request_duration_seconds_bucket{target="a",class="rw",le="+Inf"}')).toBe(5)
    expect(found.get('request_duration_seconds_sum{target="a",class="rw"}')).toBeCloseTo(0.02)
    expect(found.get('queue_duration_seconds_count{target="a"}')).toBe(5)
  })

  it('say who is here, what was refused, and where the master is', async () => {
    start()
    const client = await scene.login()
    await client.ask(callRequest('f'))
    const stranger = await scene.client()
    await stranger.ask(stranger.auth('alice', 'wrong'))
    const found = await metrics()
    expect(found.get('clients{state="idle",user="alice"}')).toBe(1)
    expect(found.get('clients{state="idle",user="guest"}')).toBe(1)
    expect(found.get('lanes{target="a",user="alice",state="open"}')).toBe(1)
    expect(found.get('auth_total{result="ok",mode="static"}')).toBe(1)
    expect(found.get('auth_total{result="refused",mode="static"}')).toBe(1)
    expect(found.get('client_connections_total{result="ok"}')).toBe(2)
    expect(found.get('errors_total{code="47",reason="bad_login"}')).toBe(1)
    expect(found.get('rw_target_info{target="a"}')).toBe(1)
    expect(found.get('target_up{target="a"}')).toBe(1)
    // Without isMetered nothing is measured per request.
    expect([...found.keys()].some((name) => name.startsWith('requests_total'))).toBe(false)
  })

  it('count changes of the master by their outcome', async () => {
    start({ peers: { a: {}, b: {} } })
    await scene.clock.run(scene.proxy.failOverTo('b', { promote: async () => undefined }))
    expect((await metrics()).get('failover_total{outcome="ok"}')).toBe(1)
    expect((await metrics()).get('epoch')).toBe(2)
  })
})

describe('clients one by one', () => {
  it('have numbers by which they can be ended', async () => {
    start()
    const [one, two] = [await scene.login(), await scene.login('bob')]
    const statuses = scene.proxy.clients()
    expect(statuses.map(({ user, activity }) => [user, activity])).toEqual([
      ['alice', 'idle'],
      ['bob', 'idle'],
    ])
    expect(scene.proxy.clients(1)).toHaveLength(1)
    expect(scene.proxy.kill(statuses[0]!.id)).toBe(true)
    await scene.clock.settle()
    expect([one.isEnded, two.isEnded]).toEqual([true, false])
    expect(scene.proxy.kill(statuses[0]!.id)).toBe(false)
  })
})

describe('the tracing channel', () => {
  it('tells each request of a client with its end', async () => {
    start()
    const told: [string, RequestTrace][] = []
    const channels = ['start', 'asyncEnd', 'error'].map((step) => {
      const name = `tracing:${CHANNELS.request}:${step}`
      const listener = (message: unknown): void => void told.push([step, { ...(message as RequestTrace) }])
      subscribe(name, listener)
      return () => unsubscribe(name, listener)
    })
    try {
      const client = await scene.login()
      await client.ask(callRequest('f'))
      scene.peer().handle(RequestType.insert, (request) => request.error(ErrorCode.tupleFound, 'Duplicate'))
      await client.ask(insertRequest(512, [1]))
      scene.peer().handle(RequestType.call, () => scene.peer().cut())
      await client.ask(callRequest('g'))
    } finally {
      for (const stop of channels) stop()
    }
    const facts = told.map(([step, { user, target, type, code, isLost }]) => [step, user, target, type, code, isLost])
    expect(facts).toEqual([
      ['start', 'alice', 'a', 10, undefined, undefined],
      ['asyncEnd', 'alice', 'a', 10, 0, false],
      ['start', 'alice', 'a', 2, undefined, undefined],
      ['asyncEnd', 'alice', 'a', 2, ErrorCode.tupleFound, false],
      ['start', 'alice', 'a', 10, undefined, undefined],
      ['error', 'alice', 'a', 10, ErrorCode.noConnection, true],
      ['asyncEnd', 'alice', 'a', 10, ErrorCode.noConnection, true],
    ])
  })
})
