import { readFileSync } from 'node:fs'
import { BoxError } from '@orbweaver/iproto'
import { describe, expect, it } from 'vitest'
import type { CallMode, Dialect, ReplicasetCallOptions } from '../src/index.js'
import { Scene, type SceneOptions } from './scene.js'

interface SelectionCase {
  readonly name: string
  readonly about: string
  readonly priority: readonly string[]
  readonly master?: string
  readonly auto?: boolean
  readonly disconnected?: readonly string[]
  readonly unhealthy?: readonly string[]
  readonly behaviour?: Readonly<Record<string, string>>
  readonly opts?: { readonly timeout?: number; readonly request_timeout?: number }
  readonly results: readonly {
    readonly method: string
    readonly result?: readonly unknown[]
    readonly error?: object
    readonly visited: readonly string[]
  }[]
}

interface PriorityCase {
  readonly name: string
  readonly about: string
  readonly zone?: number | string
  readonly weights?: readonly (readonly [number | string, number | string, number])[]
  readonly auto?: boolean
  readonly replicas: Readonly<Record<string, { readonly master?: boolean; readonly zone?: number | string }>>
  readonly priority: readonly { readonly id: string; readonly weight: number | 'inf' }[]
}

function vectors<T>(name: string): T {
  return (JSON.parse(readFileSync(new URL(`./vectors/${name}.json`, import.meta.url), 'utf8')) as { cases: T }).cases
}

/** Where we differ on purpose. */
const DIFFERENT: Readonly<Record<string, string>> = {
  'ro-unhealthy-first':
    'health is what an instance says and does, not a colour: see the tests of silence, rest and lag',
  'ro-all-unhealthy': 'an instance that does not answer is not asked, master or not',
  'ro-timedout-type': 'a timeout that a server raises is the answer of its function; ours come from our own clock',
  'ro-no-connection': 'a read whose connection broke is asked again elsewhere',
  're-timeout-fallback': 'nobody is asked twice before everybody was asked once',
  'ro-all-disabled': 'the refusal itself comes back, not an error about it',
  'zero-timeout': 'a timeout of 0 is refused at the door',
}

const DISABLED: Dialect = {
  poll: {
    request: () => {
      throw new Error('events say it')
    },
    read: () => undefined,
  },
  judge: (outcome) =>
    outcome instanceof BoxError && outcome.message.includes('disabled')
      ? { says: 'unusable', reason: 'disabled' }
      : undefined,
  electionKeys: [],
}

const FUNCTION = 'vshard.storage.call'

async function readScene(
  options: SceneOptions & { readonly masterId?: string; readonly away?: readonly string[] },
): Promise<Scene> {
  const { masterId, away = [], ...rest } = options
  const scene = new Scene({ dialect: DISABLED, latencyMs: 0, ...rest })
  for (const instance of Object.values(scene.instances)) {
    if (away.includes(instance.id)) instance.kill()
    else if (instance.id === masterId) instance.rw(1)
    else instance.ro(1)
  }
  await scene.clock.advance(20)
  return scene
}

/** Calls by the name of the method, and says who was asked and what came of it. */
async function call(
  scene: Scene,
  method: string,
  options: ReplicasetCallOptions = {},
): Promise<{ visited: string[]; outcome: unknown }> {
  const visited: string[] = []
  for (const instance of Object.values(scene.instances)) {
    const own = instance.functions.get(FUNCTION)
    instance.functions.set(FUNCTION, (args, request, self) => {
      visited.push(self.id)
      if (own === undefined) request.reply([true, self.id])
      else own(args, request, self)
    })
  }
  const mode = method.slice('call'.length) as CallMode
  const outcome: unknown = await scene.clock
    .run(scene.replicaset[`call${mode}`](FUNCTION, [], options))
    .catch((error: unknown) => error)
  return { visited, outcome }
}

describe('who serves a read, as vshard’s router decides', () => {
  for (const vector of vectors<readonly SelectionCase[]>('replica-selection')) {
    if (DIFFERENT[vector.name] !== undefined) continue
    it(`${vector.name}: ${vector.about}`, async () => {
      const { priority, master, disconnected = [], behaviour = {}, opts, results } = vector
      const scene = await readScene({
        ids: priority,
        ...(master === undefined ? {} : { masterId: master }),
        away: disconnected,
      })
      for (const { method, result, visited } of results) {
        for (const [id, act] of Object.entries(behaviour)) {
          scene.at(id).functions.set(FUNCTION, (_args, request) => {
            if (act === 'lua_error') request.error(32, 'a Lua error')
            else if (act === 'access_denied') request.error(42, 'Execute access to function is denied')
            else if (act === 'disabled') request.error(32, 'Storage is disabled: storage is disabled explicitly')
            else if (act === 'wrong_bucket' || act === 'nil_error')
              request.reply([null, { code: 1, name: 'WRONG_BUCKET' }])
          })
        }
        const options = {
          ...(opts?.timeout === undefined ? {} : { timeout: opts.timeout * 1000 }),
          ...(opts?.request_timeout === undefined ? {} : { requestTimeout: opts.request_timeout * 1000 }),
        }
        const got = await call(scene, method, options)
        // A repeated call here does not rest an instance for a refused right: that may be about one function only.
        const want = vector.name === 'ro-access-denied' ? ['a', 'b'] : visited
        expect(got.visited).toEqual(want)
        if (result !== undefined) expect(got.outcome).toEqual(result)
        // Values with which a function refuses are values here.
        else if (behaviour['a'] === 'wrong_bucket' || behaviour['a'] === 'nil_error')
          expect(got.outcome).toMatchObject([null, {}])
        else expect(got.outcome).toBeInstanceOf(Error)
        for (const instance of Object.values(scene.instances)) instance.functions.delete(FUNCTION)
      }
    })
  }
})

it('every difference is one from a recorded case', () => {
  const names = vectors<readonly SelectionCase[]>('replica-selection').map(({ name }) => name)
  expect(names).toEqual(expect.arrayContaining(Object.keys(DIFFERENT)))
})

describe('the order of instances, as vshard’s router computes it', () => {
  for (const { name, about, zone, weights, replicas, priority, auto } of vectors<readonly PriorityCase[]>(
    'replica-priority',
  )) {
    it(`${name}: ${about}`, () => {
      const ids = Object.keys(replicas)
      const master = ids.find((id) => replicas[id]?.master)
      const scene = new Scene({
        ids,
        ...(master === undefined || auto === true ? {} : { master }),
        ...(zone === undefined ? {} : { zone }),
        zones: Object.fromEntries(
          Object.entries(replicas).flatMap(([id, replica]) => (replica.zone === undefined ? [] : [[id, replica.zone]])),
        ),
        ...(weights === undefined
          ? {}
          : { zoneWeights: (from, to) => (from === to ? 0 : weights.find(([a, b]) => a === from && b === to)?.[2]) }),
      })
      const order = scene.replicaset.instances().map(({ id }) => id)
      // Equals are in any order, except that the configured master is the first of them.
      const weightOf = new Map(priority.map(({ id, weight }) => [id, weight]))
      expect(order.map((id) => weightOf.get(id))).toEqual(priority.map(({ weight }) => weight))
      if (master !== undefined && auto !== true) {
        const equals = order.filter((id) => weightOf.get(id) === weightOf.get(master))
        expect(equals[0]).toBe(master)
      }
    })
  }
})

describe('turns', () => {
  async function shares(
    scene: Scene,
    count: number,
    method: 'callbro' | 'callbre' = 'callbro',
  ): Promise<Record<string, number>> {
    const got: Record<string, number> = {}
    for (let at = 0; at < count; at += 1) {
      const [id] = await scene.clock.run(scene.replicaset[method]<[string]>('who'))
      got[id] = (got[id] ?? 0) + 1
    }
    return got
  }

  it('are taken by weight; 0 is asked only when nobody else can', async () => {
    const scene = await readScene({ masterId: 'a', weights: { a: 1, b: 3, c: 0 } })
    expect(await shares(scene, 40)).toEqual({ a: 10, b: 30 })
    scene.at('a').kill()
    scene.at('b').kill()
    await scene.clock.advance(10)
    expect(await shares(scene, 3)).toEqual({ c: 3 })
  })

  it('are given back after a restart, and the restarted one is not flooded', async () => {
    const scene = await readScene({ masterId: 'a' })
    await shares(scene, 30)
    scene.at('c').kill()
    await scene.clock.advance(10)
    expect(await shares(scene, 30)).toEqual({ a: 15, b: 15 })
    scene.at('c').revive()
    scene.at('c').ro(1)
    await scene.clock.advance(2_000)
    expect(await shares(scene, 30)).toEqual({ a: 10, b: 10, c: 10 })
  })

  it('of callbre leave the master out', async () => {
    const scene = await readScene({ masterId: 'a' })
    expect(await shares(scene, 10, 'callbre')).toEqual({ b: 5, c: 5 })
  })
})

describe('instances that cannot serve', () => {
  it.each([
    ['loading', 116],
    ['not configured', 274],
  ])('%s: hidden as long as anyone else can, asked again a second later', async (_name, code) => {
    const scene = await readScene({ masterId: 'b' })
    scene.at('a').loading = { code, message: 'not yet' }
    expect((await call(scene, 'callro')).outcome).toEqual([true, 'b'])
    const [restingFor] = scene.replicaset.info().instances.map(({ restMs }) => restMs)
    expect(restingFor).toBeGreaterThan(0)
    expect(restingFor).toBeLessThanOrEqual(1_000)
    scene.at('a').loading = undefined
    await scene.clock.advance(1_001)
    expect((await call(scene, 'callro')).outcome).toEqual([true, 'a'])
  })

  it('all are loading: the read waits and succeeds about a second after one is ready', async () => {
    const scene = await readScene({ masterId: 'b' })
    for (const instance of Object.values(scene.instances)) instance.loading = { code: 116, message: 'not yet' }
    const reading = scene.replicaset.callro<[string]>('who')
    await scene.clock.advance(5_000)
    scene.at('c').loading = undefined
    const since = scene.clock.now()
    expect(await scene.clock.run(reading)).toEqual(['c'])
    expect(scene.clock.now() - since).toBeLessThan(1_300)
  })

  it('nobody is up: reads wait for the first that comes, whatever their mode', async () => {
    const scene = await readScene({ masterId: 'b', away: ['a', 'b', 'c'] })
    const readings = (['callro', 'callbro', 'callre', 'callbre'] as const).map((method) =>
      scene.replicaset[method]<[string]>('who'),
    )
    await scene.clock.advance(3_000)
    scene.at('c').revive()
    scene.at('c').ro(1)
    expect(await scene.clock.run(Promise.all(readings))).toEqual([['c'], ['c'], ['c'], ['c']])
    expect(scene.replicaset.stats().waitingReads).toMatchObject({ now: 0, entered: 4, drained: 4 })
    expect(scene.windows).toBe(0)
  })

  it('nobody comes: the error says who was away and why', async () => {
    const scene = await readScene({ masterId: 'b', away: ['a', 'b', 'c'] })
    const error: unknown = await scene.clock
      .run(scene.replicaset.callro('who', [], { timeout: 500 }))
      .catch((thrown: unknown) => thrown)
    expect(error).toMatchObject({ code: 'ORB_NO_INSTANCE', executed: 'no', replicasetId: 'A', reason: 'no_master' })
    expect((error as { instances: readonly unknown[] }).instances).toHaveLength(3)
    expect((error as Error).message).toContain('ECONNREFUSED')
  })

  it('an abort ends a waiting read at once', async () => {
    const scene = await readScene({ away: ['a', 'b', 'c'] })
    const abort = new AbortController()
    const reading = scene.replicaset.callro('who', [], { signal: abort.signal }).catch((error: unknown) => error)
    await scene.clock.advance(100)
    abort.abort(new Error('enough'))
    expect(await reading).toMatchObject({ code: 'ORB_REQUEST_ABORTED', executed: 'no', cause: { message: 'enough' } })
    expect(scene.replicaset.stats().waitingReads.now).toBe(0)
  })

  it('a read whose connection breaks is asked again elsewhere, a write is not', async () => {
    const scene = await readScene({ masterId: 'a' })
    for (const name of ['slow']) scene.at('a').functions.set(name, () => undefined)
    scene.at('b').functions.set('slow', (_args, request) => request.reply(['b']))
    const reading = scene.replicaset.callro<[string]>('slow')
    const writing = scene.replicaset.callrw('slow').catch((error: unknown) => error)
    await scene.clock.advance(10)
    scene.at('a').kill()
    expect(await scene.clock.run(reading)).toEqual(['b'])
    expect(await scene.clock.run(writing)).toMatchObject({ code: 'ORB_CONNECTION_LOST', executed: 'unknown' })
  })

  it('a missing procedure everywhere is the answer, after each was asked once', async () => {
    const scene = await readScene({ masterId: 'a' })
    const error: unknown = await scene.clock.run(scene.replicaset.callro('typo')).catch((thrown: unknown) => thrown)
    expect(error).toMatchObject({ boxCode: 33 })
    expect(scene.replicaset.info().instances.every(({ restMs }) => restMs === 0)).toBe(true)
  })

  it('an instance of unknown role is the last resort, and only after a while', async () => {
    const scene = new Scene({ ids: ['a', 'b'], latencyMs: 0 })
    scene.at('a').functions.set('box.info', (_args, request) => request.error(42, 'denied'))
    scene.at('b').kill()
    const reading = scene.replicaset.callro<[string]>('who')
    await scene.clock.advance(900)
    expect(scene.replicaset.stats().waitingReads.now).toBe(1)
    expect(await scene.clock.run(reading)).toEqual(['a'])
    expect(scene.clock.now()).toBeLessThan(1_500)
  })

  it('a silent instance is not asked', async () => {
    const scene = await readScene({ masterId: 'b', pingIntervalMs: 200, silentAfterMs: 400 })
    scene.at('a').freeze()
    await scene.clock.advance(1_000)
    expect((await call(scene, 'callro')).visited).toEqual(['b'])
    scene.at('a').thaw()
    await scene.clock.advance(300)
    expect((await call(scene, 'callro')).visited).toEqual(['a'])
  })
})

describe('answers that are final', () => {
  it.each<
    [
      string,
      (request: { reply(data: readonly unknown[]): void; error(code: number, message: string): void }) => void,
      unknown,
    ]
  >([
    ['nil', (request) => request.reply([null]), [null]],
    ['nothing', (request) => request.reply([]), []],
    ['nil and an error', (request) => request.reply([null, 'no']), [null, 'no']],
    ['an error it raised', (request) => request.error(32, 'oops'), { boxCode: 32 }],
    ['read-only, raised by the function', (request) => request.error(7, 'oops'), { boxCode: 7 }],
  ])('%s', async (_name, answer, want) => {
    const scene = await readScene({ masterId: 'b' })
    scene.at('a').functions.set(FUNCTION, (_args, request) => answer(request))
    const { visited, outcome } = await call(scene, 'callro')
    expect(visited).toEqual(['a'])
    if (Array.isArray(want)) expect(outcome).toEqual(want)
    else expect(outcome).toMatchObject(want as object)
  })
})

describe('freshness', () => {
  const behind = (scene: Scene, id: string, upstream: object | undefined): void => {
    const { uuid } = scene.at('a')
    scene
      .at(id)
      .functions.set('box.info', (_args, request, self) =>
        request.reply([{ ...self.boxInfo(), replication: [{ id: 1, uuid, upstream }] }]),
      )
  }

  it('only instances near enough behind the master serve; the master does while nobody’s lag is known', async () => {
    const scene = await readScene({ masterId: 'a', ids: ['b', 'c', 'a'] })
    behind(scene, 'b', { status: 'follow', lag: 3, idle: 0 })
    behind(scene, 'c', { status: 'follow', lag: 0.05, idle: 0 })
    expect((await call(scene, 'callro', { maxLagMs: 100 })).visited).toEqual(['a'])
    await scene.clock.advance(50)
    expect((await call(scene, 'callro', { maxLagMs: 100 })).visited).toEqual(['c'])
    expect((await call(scene, 'callro', { maxLagMs: 5_000 })).visited).toEqual(['b'])
    expect((await call(scene, 'callro')).visited).toEqual(['b'])
    expect(scene.replicaset.info().instances.map(({ id, lagMs }) => [id, lagMs])).toEqual([
      ['b', 3_000],
      ['c', 50],
      ['a', 0],
    ])
  })

  it('one whose replication is broken is never near enough', async () => {
    const scene = await readScene({ masterId: 'a', ids: ['b', 'a'], lagIntervalMs: 100 })
    behind(scene, 'b', { status: 'stopped', idle: 0 })
    await scene.clock.advance(200)
    expect(scene.replicaset.info().instances[0]?.lagMs).toBe(Infinity)
    expect((await call(scene, 'callro', { maxLagMs: 1e9 })).visited).toEqual(['a'])
  })

  it('one that may not be asked is not known to be near enough', async () => {
    const scene = await readScene({ masterId: 'a', ids: ['b', 'a'], lagIntervalMs: 100 })
    scene.at('b').functions.set('box.info', (_args, request) => request.error(42, 'denied'))
    await scene.clock.advance(200)
    expect((await call(scene, 'callro', { maxLagMs: 1e9 })).visited).toEqual(['a'])
  })
})

describe('hedged reads', () => {
  it('another instance is asked after the delay, and the first answer counts', async () => {
    const scene = await readScene({ masterId: 'c', ids: ['a', 'b', 'c'] })
    scene.at('a').functions.set(FUNCTION, (_args, request) => {
      scene.clock.schedule(5_000, () => request.reply([true, 'a']))
    })
    const { visited, outcome } = await call(scene, 'callro', { hedge: { delayMs: 50 } })
    expect(outcome).toEqual([true, 'b'])
    expect(visited).toEqual(['a', 'b'])
    expect(scene.clock.now()).toBeLessThan(100)
  })

  it('nobody else is asked when the answer comes in time', async () => {
    const scene = await readScene({ masterId: 'c' })
    const { visited } = await call(scene, 'callro', { hedge: { delayMs: 50 } })
    await scene.clock.advance(1_000)
    expect(visited).toEqual(['a'])
  })

  it('the failure of the second question leaves the first its time', async () => {
    const scene = await readScene({ masterId: 'c' })
    scene.at('a').functions.set(FUNCTION, (_args, request) => {
      scene.clock.schedule(500, () => request.reply([true, 'a']))
    })
    scene.at('b').functions.set(FUNCTION, () => scene.at('b').kill())
    const { visited, outcome } = await call(scene, 'callro', { hedge: { delayMs: 50 } })
    expect([visited, outcome]).toEqual([
      ['a', 'b'],
      [true, 'a'],
    ])
  })

  it('where nobody else can serve, the only one keeps its time', async () => {
    const scene = await readScene({ masterId: 'a', away: ['b', 'c'] })
    scene.at('a').functions.set(FUNCTION, (_args, request) => {
      scene.clock.schedule(500, () => request.reply([true, 'a']))
    })
    expect((await call(scene, 'callro', { hedge: { delayMs: 50 } })).visited).toEqual(['a'])
  })
})
