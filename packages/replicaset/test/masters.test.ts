/** Who is the master as time goes by: every transition of the state of a replicaset, and the words from outside. */
import { callRequest } from '@orbweaver/iproto'
import { uuidOf, VirtualClock } from '@orbweaver/connection/testing'
import { describe, expect, it } from 'vitest'
import { createHoldBudget, createReplicaset } from '../src/index.js'
import { Scene, type SceneOptions, TestInstance } from './scene.js'

type State = 'UNKNOWN' | 'STABLE' | 'LOST'

const START: Readonly<Record<string, (scene: Scene) => void>> = {
  UNKNOWN: (scene) => {
    for (const instance of Object.values(scene.instances)) instance.ro(3)
  },
  STABLE: (scene) => {
    scene.at('a').rw(3)
    scene.at('b').ro(3)
    scene.at('c').ro(3)
  },
}

/** Begins in a state, with a as the master that is or was. */
async function begin(state: State, options: SceneOptions = {}): Promise<Scene> {
  const scene = new Scene({ pingIntervalMs: 200, silentAfterMs: 400, ...options })
  START[state === 'LOST' ? 'STABLE' : state]?.(scene)
  await scene.clock.advance(100)
  if (state === 'LOST') {
    scene.at('a').ro(3)
    await scene.clock.advance(10)
  }
  return scene
}

interface Row {
  readonly from: State
  readonly event: string
  readonly act: (scene: Scene) => void
  readonly afterMs?: number
  readonly to: State
  readonly master: string | undefined
  /** Adoptions it causes. */
  readonly adoptions: number
  readonly conflict?: boolean
  readonly options?: SceneOptions
}

const frozenThenAway = (scene: Scene, id: string): void => scene.at(id).freeze()

const TABLE: readonly Row[] = [
  { from: 'UNKNOWN', event: 'a claim', act: (s) => s.at('b').rw(3), to: 'STABLE', master: 'b', adoptions: 1 },
  { from: 'UNKNOWN', event: 'nothing', act: () => undefined, to: 'UNKNOWN', master: undefined, adoptions: 0 },
  {
    from: 'STABLE',
    event: 'the same claim again',
    act: (s) => s.at('a').say(),
    to: 'STABLE',
    master: 'a',
    adoptions: 0,
  },
  {
    from: 'STABLE',
    event: 'the same instance with a newer term',
    act: (s) => s.at('a').rw(4),
    to: 'STABLE',
    master: 'a',
    adoptions: 0,
  },
  {
    from: 'STABLE',
    event: 'another with a newer term',
    act: (s) => s.at('b').rw(4),
    to: 'STABLE',
    master: 'b',
    adoptions: 1,
  },
  {
    from: 'STABLE',
    event: 'another with the same term',
    act: (s) => s.at('b').rw(3),
    to: 'STABLE',
    master: 'a',
    adoptions: 0,
    conflict: true,
  },
  {
    from: 'STABLE',
    event: 'another with an older term',
    act: (s) => s.at('b').rw(2),
    to: 'STABLE',
    master: 'a',
    adoptions: 0,
  },
  ...(['ro', 'shutdown', 'kill'] as const).flatMap((how): Row[] => [
    {
      from: 'STABLE',
      event: `the master is gone (${how}) and another claims already`,
      act: (s) => {
        s.at('b').rw(3)
        s.at('a')[how]()
      },
      to: 'STABLE',
      master: 'b',
      adoptions: 1,
    },
    {
      from: 'STABLE',
      event: `the master is gone (${how})`,
      act: (s) => s.at('a')[how](),
      to: 'LOST',
      master: undefined,
      adoptions: 0,
    },
  ]),
  {
    from: 'STABLE',
    event: 'the master is silent',
    act: (s) => frozenThenAway(s, 'a'),
    afterMs: 1_000,
    to: 'LOST',
    master: undefined,
    adoptions: 0,
  },
  {
    from: 'STABLE',
    event: 'the master is silent and another claims already',
    act: (s) => {
      s.at('b').rw(3)
      frozenThenAway(s, 'a')
    },
    afterMs: 1_000,
    to: 'STABLE',
    master: 'b',
    adoptions: 1,
  },
  {
    from: 'STABLE',
    event: 'somebody reports a newer term',
    act: (s) => s.at('c').ro(4),
    to: 'LOST',
    master: undefined,
    adoptions: 0,
  },
  {
    from: 'STABLE',
    event: 'a conflict ends because the other gives up',
    act: (s) => {
      s.at('b').rw(3)
      s.clock.schedule(20, () => s.at('b').ro())
    },
    to: 'STABLE',
    master: 'a',
    adoptions: 0,
  },
  { from: 'LOST', event: 'another claims', act: (s) => s.at('b').rw(4), to: 'STABLE', master: 'b', adoptions: 1 },
  {
    from: 'LOST',
    event: 'another claims with the same term',
    act: (s) => s.at('b').rw(3),
    to: 'STABLE',
    master: 'b',
    adoptions: 1,
  },
  {
    from: 'LOST',
    event: 'the old one claims again',
    act: (s) => s.at('a').rw(3),
    to: 'STABLE',
    master: 'a',
    adoptions: 1,
  },
  {
    from: 'LOST',
    event: 'it was silent and answers again',
    options: {},
    act: (s) => {
      s.at('a').rw(3)
      s.at('a').freeze()
      s.clock.schedule(1_000, () => s.at('a').thaw())
    },
    afterMs: 1_500,
    to: 'STABLE',
    master: 'a',
    adoptions: 2,
  },
  {
    from: 'LOST',
    event: 'it stops and repeats its claim',
    act: (s) => {
      s.at('a').shutdown()
      s.at('a').rw(3)
    },
    to: 'LOST',
    master: undefined,
    adoptions: 0,
  },
  {
    from: 'LOST',
    event: 'it comes back in a new generation',
    act: (s) => {
      s.at('a').kill()
      s.clock.schedule(50, () => {
        s.at('a').revive()
        s.at('a').rw(3)
      })
    },
    afterMs: 1_500,
    to: 'STABLE',
    master: 'a',
    adoptions: 1,
  },
]

describe('transitions of a replicaset', () => {
  it.each(TABLE)(
    '$from, $event: $to',
    async ({ from, act, afterMs = 100, to, master, adoptions, conflict = false, options }) => {
      const scene = await begin(from, options)
      const { epoch } = scene.replicaset.info()
      act(scene)
      await scene.clock.advance(afterMs)
      const info = scene.replicaset.info()
      expect({ state: info.state, master: info.master, adoptions: info.epoch - epoch }).toEqual({
        state: to,
        master,
        adoptions,
      })
      expect(info.alerts.some(({ code }) => code === 'conflict')).toBe(conflict)
    },
  )

  it('closed: every waiting request is answered and nothing changes any more', async () => {
    const scene = await begin('LOST')
    const write = scene.write()
    scene.replicaset.destroy()
    expect([write.result, scene.replicaset.info().state]).toEqual(['ORB_CONNECTION_CLOSED', 'CLOSED'])
    scene.at('b').rw(4)
    await scene.clock.advance(1_000)
    expect(scene.replicaset.info().state).toBe('CLOSED')
    expect(scene.clock.pendingTimers).toBe(0)
  })
})

describe('an operator’s announcement', () => {
  it.each([
    ['by events', []],
    ['by polling', ['a', 'b', 'c']],
  ])('ends the window of its replicaset and of no other (%s)', async (_name, old) => {
    const clock = new VirtualClock()
    const holdBudget = createHoldBudget()
    const options: SceneOptions = { clock, holdBudget, old, pollSearchIntervalMs: 60_000 }
    const [A, B] = [new Scene({ ...options, name: 'A' }), new Scene({ ...options, name: 'B' })]
    for (const scene of [A, B]) for (const instance of Object.values(scene.instances)) instance.ro()
    await clock.advance(100)
    for (const scene of [A, B]) for (let count = 0; count < 5; count += 1) scene.write()
    await clock.advance(1_000)
    // Promoted from outside; no event tells.
    A.at('b').isRo = false
    A.replicaset.announceMaster('b')
    await clock.advance(10)
    expect(A.writes.map(({ result }) => result)).toEqual(['', '', '', '', ''])
    expect(B.writes.map(({ result }) => result)).toEqual(Array.from({ length: 5 }, () => undefined))
    B.at('c').isRo = false
    B.replicaset.announceMaster('c')
    await clock.advance(10)
    expect(B.writes.map(({ result }) => result)).toEqual(['', '', '', '', ''])
    expect([A, B].map((scene) => scene.replicaset.stats().windowEnds.operator)).toEqual([1, 1])
  })

  it('wins over an equal claim of the current master', async () => {
    const scene = await begin('STABLE')
    scene.at('b').rw(3)
    await scene.clock.advance(10)
    scene.replicaset.announceMaster('b')
    await scene.clock.advance(10)
    expect(scene.replicaset.master()?.id).toBe('b')
  })

  it('that is wrong is found out by the look behind it', async () => {
    const scene = await begin('LOST')
    const write = scene.write()
    scene.replicaset.announceMaster('b')
    await scene.clock.advance(50)
    expect(scene.replicaset.master()).toBeUndefined()
    expect(write.result).toBeUndefined()
    scene.at('c').rw(4)
    await scene.clock.advance(10)
    expect(write.result).toBe('')
  })

  it('of an instance that is away counts when it comes', async () => {
    const scene = await begin('LOST')
    scene.at('b').kill()
    await scene.clock.advance(10)
    scene.replicaset.announceMaster('b')
    scene.at('b').revive()
    scene.at('b').rw(3)
    scene.at('c').rw(3)
    scene.at('c').ro(3)
    await scene.clock.advance(1_500)
    expect(scene.replicaset.master()?.id).toBe('b')
  })

  it('of nobody we know is refused by name', async () => {
    const scene = await begin('LOST')
    expect(() => scene.replicaset.announceMaster('x')).toThrow('"x" is no instance of replicaset A (a, b, c)')
  })
})

describe('a master named by the configuration', () => {
  const named = async (options: SceneOptions = {}): Promise<Scene> => {
    const scene = new Scene({ master: 'b', ...options })
    scene.at('a').rw(5)
    scene.at('b').ro(3)
    await scene.clock.advance(100)
    return scene
  }

  it('gets writes although it says that it is read-only, with an alert', async () => {
    const scene = await named()
    scene.at('b').functions.set('f', (_args, request) => request.reply(['read it']))
    const calling = scene.replicaset.callrw<[string]>('f')
    expect(await scene.clock.run(calling)).toEqual(['read it'])
    expect(scene.replicaset.info().alerts.map(({ code }) => code)).toEqual(['configured_master_read_only'])
  })

  it('answers "read-only" for itself: nobody else will come, so nothing waits', async () => {
    const scene = await named()
    const write = scene.write()
    await scene.clock.advance(10)
    expect([write.result, scene.windows]).toEqual(['ORB_BOX 7', 0])
  })

  it('is waited for while it is away or loading', async () => {
    const scene = await named()
    scene.at('b').kill()
    await scene.clock.advance(10)
    const write = scene.write()
    await scene.clock.advance(500)
    expect(write.result).toBeUndefined()
    scene.at('b').revive()
    scene.at('b').status = 'loading'
    scene.at('b').loading = { code: 116, message: 'loading' }
    scene.at('b').say()
    await scene.clock.advance(2_000)
    expect(write.result).toBeUndefined()
    scene.at('b').status = 'running'
    scene.at('b').loading = undefined
    scene.at('b').rw(5)
    await scene.clock.advance(20)
    expect(write.result).toBe('')
    expect(write.sentTo.length).toBeLessThanOrEqual(2)
  })

  it('is replaced by another configuration: what waits goes to the new one', async () => {
    const scene = await named()
    scene.at('b').kill()
    await scene.clock.advance(10)
    const write = scene.write()
    await scene.clock.advance(100)
    scene.replicaset.reconfigure({
      id: 'A',
      master: 'a',
      instances: ['a', 'b', 'c'].map((id) => ({ id, uri: scene.at(id).peer.address })),
    })
    await scene.clock.advance(10)
    expect([write.result, write.sentTo]).toEqual(['', ['a']])
  })

  it('nobody is announced or discovered beside it', async () => {
    const scene = await named()
    expect(scene.replicaset.master()?.id).toBe('b')
    scene.at('c').rw(9)
    await scene.clock.advance(100)
    expect(scene.replicaset.master()?.id).toBe('b')
  })
})

describe('changing the members', () => {
  const definition = (
    scene: Scene,
    ids: readonly string[],
  ): { id: string; instances: { id: string; uri: (typeof scene.instances)[string]['peer']['address'] }[] } => ({
    id: 'A',
    instances: ids.map((id) => ({ id, uri: scene.at(id).peer.address })),
  })

  it('keeps the connections, views and requests of those that stay', async () => {
    const scene = await begin('STABLE')
    scene.at('a').workMs = 500
    const write = scene.write()
    await scene.clock.advance(10)
    const { dials } = scene
    for (let count = 0; count < 100; count += 1)
      scene.replicaset.reconfigure(definition(scene, count % 2 === 0 ? ['a', 'b'] : ['b', 'a']))
    await scene.clock.advance(1_000)
    expect(scene.dials).toBe(dials)
    expect(scene.replicaset.info()).toMatchObject({ epoch: 1, master: 'a' })
    expect(write.result).toBe('')
    expect(scene.at('c').peer.session.open).toBe(false)
  })

  it('takes a removed master out of use, lets what is in flight finish, and takes it back when it is added again', async () => {
    const scene = await begin('STABLE')
    scene.at('a').workMs = 300
    const inFlight = scene.write()
    await scene.clock.advance(10)
    scene.replicaset.reconfigure(definition(scene, ['b', 'c']))
    const waiting = scene.write()
    await scene.clock.advance(500)
    expect([inFlight.result, waiting.result, scene.replicaset.master()]).toEqual(['', undefined, undefined])
    expect(scene.replicaset.instances().map(({ id }) => id)).toEqual(['b', 'c'])
    scene.replicaset.reconfigure(definition(scene, ['a', 'b', 'c']))
    await scene.clock.advance(500)
    expect([waiting.result, scene.replicaset.master()?.id]).toEqual(['', 'a'])
  })

  it('connects to another address under the same id', async () => {
    const scene = await begin('STABLE')
    const elsewhere = new TestInstance('a2', scene.clock)
    elsewhere.rw(4)
    scene.replicaset.reconfigure({
      id: 'A',
      instances: [{ id: 'a', uri: elsewhere.peer.address }, ...definition(scene, ['b', 'c']).instances],
    })
    await scene.clock.advance(100)
    const write = scene.write()
    await scene.clock.advance(10)
    expect([write.result, elsewhere.executed]).toEqual(['', [1]])
  })

  it('refuses a wrong definition and changes nothing', async () => {
    const scene = await begin('STABLE')
    expect(() => scene.replicaset.reconfigure({ id: 'A', instances: [] })).toThrow('instances')
    expect(() => scene.replicaset.reconfigure({ ...definition(scene, ['a']), master: 'x' })).toThrow('"x"')
    expect(scene.replicaset.instances()).toHaveLength(3)
  })

  it('repeated with changing members leaves no timer or connection behind', async () => {
    const scene = await begin('STABLE')
    await scene.clock.advance(5_000)
    const before = scene.clock.pendingTimers
    for (let count = 0; count < 20; count += 1) {
      scene.replicaset.reconfigure(definition(scene, ['a', 'b']))
      await scene.clock.advance(50)
      scene.replicaset.reconfigure(definition(scene, ['a', 'b', 'c']))
      await scene.clock.advance(50)
    }
    await scene.clock.advance(10_000)
    expect(scene.clock.pendingTimers).toBeLessThanOrEqual(before + 2)
    expect(scene.at('c').peer.sessions.filter(({ open }) => open)).toHaveLength(1)
  })
})

describe('who an instance is', () => {
  it('another instance than configured is neither master nor read from, and the reason is shown', async () => {
    const clock = new VirtualClock()
    const [a, b] = [new TestInstance('a', clock), new TestInstance('b', clock)]
    a.rw(3)
    b.ro(3)
    await using replicaset = createReplicaset({
      definition: {
        id: 'A',
        instances: [
          { id: 'a', uuid: uuidOf('somebody else'), uri: a.peer.address },
          { id: 'b', uuid: b.uuid.toUpperCase(), uri: b.peer.address },
        ],
      },
      environment: { clock, random: () => 0.5 },
    })
    await clock.advance(100)
    expect(replicaset.master()).toBeUndefined()
    const info = replicaset.info()
    expect(info.instances[0]?.reason).toBe(`is the instance ${a.uuid}, configured is ${uuidOf('somebody else')}`)
    expect(info.alerts.map(({ code }) => code)).toEqual(['misidentified'])
    expect(await clock.run(replicaset.callro<[string]>('who'))).toEqual(['b'])
    replicaset.destroy()
  })

  it('an instance of another replicaset is not used', async () => {
    const clock = new VirtualClock()
    const [a, b] = [new TestInstance('a', clock), new TestInstance('b', clock, { replicasetUuid: uuidOf('another') })]
    a.ro(3)
    b.rw(3)
    const id = uuidOf('replicaset')
    await using replicaset = createReplicaset({
      definition: {
        id,
        instances: [
          { id: 'a', uri: a.peer.address },
          { id: 'b', uri: b.peer.address },
        ],
      },
      environment: { clock, random: () => 0.5 },
    })
    await clock.advance(100)
    expect(replicaset.master()).toBeUndefined()
    expect(replicaset.info().instances[1]?.reason).toBe(
      `belongs to the replicaset ${uuidOf('another')}, the others to ${id}`,
    )
    replicaset.destroy()
  })

  it('a name that is not the configured one is not used', async () => {
    const clock = new VirtualClock()
    const a = new TestInstance('a', clock)
    a.peer.values.set('box.id', {
      id: 1,
      instance_uuid: a.uuid,
      replicaset_uuid: uuidOf('replicaset'),
      instance_name: 'storage-9',
    })
    a.rw(3)
    await using replicaset = createReplicaset({
      definition: { id: 'A', instances: [{ id: 'a', name: 'storage-1', uri: a.peer.address }] },
      environment: { clock, random: () => 0.5 },
    })
    await clock.advance(100)
    expect(replicaset.info().instances[0]?.reason).toBe('is the instance "storage-9", configured is "storage-1"')
    replicaset.destroy()
  })

  it('a re-bootstrapped replicaset begins its terms anew', async () => {
    const scene = await begin('STABLE')
    for (const instance of Object.values(scene.instances)) {
      instance.peer.values.set('box.id', {
        id: 1,
        instance_uuid: instance.uuid,
        replicaset_uuid: uuidOf('bootstrapped again'),
      })
      instance.kill()
      instance.revive()
    }
    scene.at('b').rw(1)
    scene.at('a').ro(1)
    scene.at('c').ro(1)
    await scene.clock.advance(1_000)
    expect(scene.replicaset.info()).toMatchObject({ master: 'b', term: 1, alerts: [] })
  })
})

describe('instances that lie or say little', () => {
  it('a role that alternately can and cannot be told: no write while it is unknown, and the reason is shown', async () => {
    const scene = new Scene({ old: ['a', 'b', 'c'], pollIntervalMs: 500 })
    const a = scene.at('a')
    a.isRo = false
    await scene.clock.advance(100)
    expect(scene.replicaset.master()?.id).toBe('a')
    for (const [answer, reason] of [
      [(request) => request.error(42, 'access denied'), 'access denied'],
      [() => undefined, 'timed out'],
      [(request) => request.reply(['odd']), 'unexpected shape'],
    ] as [
      (request: { error(code: number, message: string): void; reply(data: readonly unknown[]): void }) => void,
      string,
    ][]) {
      a.functions.set('box.info', (_args, request) => answer(request))
      await scene.clock.advance(5_000)
      expect(scene.replicaset.master()).toBeUndefined()
      expect(scene.replicaset.info().instances[0]?.reason).toContain(reason)
      const write = scene.write({ timeout: 100 })
      await scene.clock.advance(200)
      expect([write.result, write.sentTo]).toEqual(['ORB_NO_MASTER', []])
      a.functions.delete('box.info')
      // A method that was refused is tried again after a growing pause.
      await scene.clock.advance(10_000)
      expect(scene.replicaset.master()?.id).toBe('a')
    }
  })

  it('a missing grant is asked about ever more rarely', async () => {
    const scene = new Scene({ ids: ['a'], old: ['a'] })
    let polls = 0
    scene.at('a').functions.set('box.info', (_args, request) => {
      polls += 1
      request.error(42, 'access denied')
    })
    await scene.clock.advance(10_000)
    const first = polls
    await scene.clock.advance(100_000)
    expect(first).toBeLessThanOrEqual(5)
    expect(polls - first).toBeLessThanOrEqual(5)
  })

  it('a server that polls by the dialect falls back to box.info where the service is missing', async () => {
    const scene = new Scene({
      ids: ['a'],
      old: ['a'],
      dialect: {
        poll: { request: () => callRequest('vshard.storage._call', ['info']), read: () => undefined },
        judge: () => undefined,
        electionKeys: [],
      },
    })
    scene.at('a').isRo = false
    await scene.clock.advance(100)
    expect(scene.replicaset.master()?.id).toBe('a')
  })

  it('a veto of the dialect’s own key outweighs a claim, and its word makes a read-only one the master', async () => {
    const scene = new Scene({
      dialect: {
        poll: { request: () => callRequest('box.info'), read: () => undefined },
        judge: () => undefined,
        electionKeys: ['vshard.storage.election'],
      },
    })
    scene.at('a').rw(3)
    scene.at('a').peer.broadcast('vshard.storage.election', { is_master_cfg: false })
    scene.at('b').ro(3)
    await scene.clock.advance(100)
    expect(scene.replicaset.master()).toBeUndefined()
    scene.at('b').peer.broadcast('vshard.storage.election', { is_master_cfg: true })
    await scene.clock.advance(10)
    expect(scene.replicaset.master()?.id).toBe('b')
  })

  it('servers of 2.11, which have no WATCH_ONCE, are fenced by subscribing anew', async () => {
    const scene = new Scene({ ids: ['a', 'b'] })
    for (const { peer } of Object.values(scene.instances)) {
      peer.version = '2.11.5'
      peer.features = [0, 1, 2, 3, 4]
    }
    scene.at('a').rw(3)
    scene.at('b').ro(3)
    await scene.clock.advance(50)
    scene.at('a').isRo = true
    const write = scene.write()
    await scene.clock.advance(2)
    scene.at('a').isRo = false
    await scene.clock.advance(20)
    expect([write.result, write.sentTo]).toEqual(['', ['a', 'a']])
    expect(scene.replicaset.stats().windowEnds.same_instance).toBe(1)
  })

  it('mode is events once everybody has spoken, a disconnect does not change that, an older version does', async () => {
    const scene = new Scene()
    expect(scene.replicaset.info().mode).toBe('polling')
    scene.at('a').rw(3)
    scene.at('b').ro(3)
    await scene.clock.advance(50)
    expect(scene.replicaset.info().mode).toBe('polling')
    scene.at('c').ro(3)
    await scene.clock.advance(50)
    expect(scene.replicaset.info().mode).toBe('events')
    scene.at('c').kill()
    await scene.clock.advance(50)
    expect(scene.replicaset.info().mode).toBe('events')
    scene.at('c').peer.version = '2.6.0'
    scene.at('c').peer.features = []
    scene.at('c').revive()
    await scene.clock.advance(2_000)
    expect(scene.replicaset.info().mode).toBe('polling')
  })
})

describe('membership', () => {
  it('starts with nobody up, and each joins when it appears', async () => {
    const scene = new Scene()
    for (const instance of Object.values(scene.instances)) instance.kill()
    const write = scene.write()
    await scene.clock.advance(3_000)
    expect(
      scene.replicaset
        .info()
        .instances.map(({ state, reason }) => [
          state === 'DOWN' || state === 'CONNECTING',
          reason?.includes('ECONNREFUSED'),
        ]),
    ).toEqual(Array.from({ length: 3 }, () => [true, true]))
    for (const [id, act] of [
      ['c', 'ro'],
      ['b', 'ro'],
      ['a', 'rw'],
    ] as const) {
      scene.at(id).revive()
      scene.at(id)[act](3)
      await scene.clock.advance(1_300)
    }
    expect(write.result).toBe('')
    expect(scene.replicaset.info().instances.map(({ state }) => state)).toEqual(['RW', 'RO', 'RO'])
  })

  it('one that was away for minutes is used within about a second of being back', async () => {
    const scene = await begin('STABLE')
    scene.at('b').kill()
    await scene.clock.advance(300_000)
    scene.at('b').revive()
    scene.at('b').rw(4)
    scene.at('a').ro(4)
    await scene.clock.advance(1_300)
    expect(scene.replicaset.master()?.id).toBe('b')
  })

  it('is quiet in steady state: no dial after the first, no line in the log, one small packet per interval and connection', async () => {
    const scene = new Scene()
    START['STABLE']?.(scene)
    await scene.clock.advance(1_000)
    const { dials } = scene
    const chunks = Object.values(scene.instances).map(({ peer }) => peer.session.chunksReceived)
    await scene.clock.advance(60_000)
    expect(scene.dials).toBe(dials)
    expect(scene.replicaset.stats()).toMatchObject({ polls: scene.replicaset.stats().polls, masterChanges: 1 })
    for (const [at, { peer }] of Object.values(scene.instances).entries())
      expect(peer.session.chunksReceived - chunks[at]!).toBeLessThanOrEqual(60)
  })

  it('a connection that stays silent is made anew', async () => {
    const scene = await begin('STABLE', { redialSilentAfterMs: 2_000 })
    scene.at('a').freeze()
    await scene.clock.advance(3_000)
    expect(scene.at('a').peer.sessions[0]?.open).toBe(false)
    scene.at('a').thaw()
    scene.at('a').say()
    await scene.clock.advance(7_000)
    expect(scene.replicaset.master()?.id).toBe('a')
  })

  it('a stopping instance is left after what is in flight, at the latest after its time', async () => {
    const scene = await begin('STABLE', { stopTimeoutMs: 1_000 })
    scene.at('a').workMs = 200
    const write = scene.write()
    await scene.clock.advance(10)
    scene.at('a').shutdown()
    await scene.clock.advance(150)
    expect(scene.at('a').peer.sessions[0]?.open).toBe(true)
    await scene.clock.advance(100)
    expect([write.result, scene.at('a').peer.sessions[0]?.open]).toEqual(['', false])
    // One that does not finish is left as well.
    scene.at('a').peer.values.delete('box.shutdown')
    await scene.clock.advance(2_000)
    scene.at('a').workMs = 60_000
    const endless = scene.write()
    await scene.clock.advance(10)
    scene.at('a').shutdown()
    await scene.clock.advance(1_100)
    expect(endless.result).toBe('ORB_CONNECTION_CLOSED')
    expect(endless.error.executed).toBe('unknown')
  })
})
