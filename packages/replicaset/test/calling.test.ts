/** The methods users call, and what a replicaset tells while it works. */
import { channel, tracingChannel } from 'node:diagnostics_channel'
import { type ReplySink, RequestTimeoutError } from '@orbweaver/connection'
import {
  callRequest,
  decodeData,
  insertRequest,
  type OrbweaverError,
  RawValue,
  type Reply,
  RequestType,
  selectRequest,
} from '@orbweaver/iproto'
import { describe, expect, it, onTestFinished } from 'vitest'
import {
  type CallTrace,
  CHANNELS,
  createReplicaset,
  instanceOf,
  type ReplicasetCallOptions,
  type WindowEvent,
} from '../src/index.js'
import { Scene, type SceneOptions } from './scene.js'

async function ready(options: SceneOptions = {}): Promise<Scene> {
  const scene = new Scene(options)
  scene.at('a').rw(3)
  for (const id of ['b', 'c']) scene.instances[id]?.ro(3)
  await scene.clock.advance(50)
  return scene
}

const failure = (promise: Promise<unknown>): Promise<OrbweaverError> =>
  promise.then(
    (value) => {
      throw new Error(`It resolved with ${JSON.stringify(value)}`)
    },
    (error: unknown) => error as OrbweaverError,
  )

describe('calls', () => {
  it('go where their mode says and give everything the function returned', async () => {
    const scene = await ready()
    const { replicaset, clock } = scene
    for (const instance of Object.values(scene.instances))
      instance.functions.set('f', (args, request, self) => request.reply([self.id, ...args]))
    expect(await clock.run(replicaset.callrw('f', [1]))).toEqual(['a', 1])
    expect(await clock.run(replicaset.callro('f', [2]))).toEqual(['a', 2])
    expect(await clock.run(replicaset.callre('f'))).toEqual(['b'])
    expect(await clock.run(replicaset.callbro('f'))).toEqual(['a'])
    expect(await clock.run(replicaset.callbre('f'))).toEqual(['b'])
  })

  it('can be any request, and can tell their story', async () => {
    const scene = await ready()
    expect(await scene.clock.run(scene.replicaset.request('re', selectRequest({ space: 512 })))).toEqual([['b']])
    expect(await scene.clock.run(scene.replicaset.requestDetailed('rw', insertRequest(512, [7])))).toEqual({
      value: [[7]],
      instance: 'a',
      tries: 1,
      ms: 2,
    })
    const raw = await scene.clock.run(scene.replicaset.callro<RawValue>('who', [], { raw: true }))
    expect(raw).toBeInstanceOf(RawValue)
  })

  it('name the instance in their errors', async () => {
    const scene = await ready()
    const error = await scene.clock.run(failure(scene.replicaset.callrw('missing')))
    expect([error.code, instanceOf(error)]).toEqual(['ORB_BOX', 'a'])
    expect(instanceOf(new Error('another'))).toBeUndefined()
    expect(instanceOf(undefined)).toBeUndefined()
  })

  it('end by their own timeout, told apart by whether they were sent', async () => {
    const scene = await ready()
    scene.at('a').functions.set('slow', () => undefined)
    const sent = await scene.clock.run(failure(scene.replicaset.callrw('slow', [], { timeout: 300 })))
    expect(sent).toBeInstanceOf(RequestTimeoutError)
    expect(sent.executed).toBe('unknown')
    scene.at('a').ro()
    await scene.clock.advance(10)
    const unsent = await scene.clock.run(failure(scene.replicaset.callrw('slow', [], { timeout: 300 })))
    expect([unsent.code, unsent.executed]).toEqual(['ORB_NO_MASTER', 'no'])
  })

  it('end by their signal, on the wire as well', async () => {
    const scene = await ready()
    scene.at('a').functions.set('slow', () => undefined)
    const abort = new AbortController()
    const calling = failure(scene.replicaset.callrw('slow', [], { signal: abort.signal }))
    await scene.clock.advance(100)
    abort.abort(new Error('enough'))
    expect(await scene.clock.run(calling)).toMatchObject({
      code: 'ORB_REQUEST_ABORTED',
      executed: 'unknown',
      cause: { message: 'enough' },
    })
  })

  it('with an answer that cannot be read say that they were executed', async () => {
    const scene = await ready()
    scene.at('a').functions.set('odd', (_args, request) => request.replyWith(new Map([[0x30, 'no list']])))
    const error = await scene.clock.run(failure(scene.replicaset.callrw('odd')))
    expect([error.executed, instanceOf(error)]).toEqual(['yes', 'a'])
  })

  it.each<[string, 'rw' | 'ro', ReplicasetCallOptions, string]>([
    ['an option that does not exist', 'ro', { timout: 1 } as ReplicasetCallOptions, '"timout"'],
    ['a timeout of 0', 'rw', { timeout: 0 }, 'timeout is 0'],
    ['a timeout that is no number', 'rw', { timeout: '5' as unknown as number }, 'timeout is 5'],
    ['maxLagMs of a write', 'rw', { maxLagMs: 5 }, 'maxLagMs is for reads'],
    ['a hedged write', 'rw', { hedge: { delayMs: 5 } }, 'hedge is for reads'],
  ])('refuse %s', async (_name, mode, options, words) => {
    const scene = await ready()
    const error = await failure(scene.replicaset.request(mode, callRequest('f'), options))
    expect([error.code, error.executed]).toEqual(['ORB_INVALID_ARGUMENT', 'no'])
    expect(error.message).toContain(words)
  })

  it('with arguments that cannot be encoded fail alone', async () => {
    const scene = await ready()
    const args = [() => undefined]
    expect((await scene.clock.run(failure(scene.replicaset.callrw('f', args)))).code).toBe('ORB_INVALID_ARGUMENT')
    scene.at('a').ro()
    await scene.clock.advance(10)
    const waiting = scene.write()
    expect((await scene.clock.run(failure(scene.replicaset.callrw('f', args)))).code).toBe('ORB_INVALID_ARGUMENT')
    scene.at('a').rw()
    await scene.clock.advance(10)
    expect(waiting.result).toBe('')
    expect(scene.replicaset.stats().buffered).toMatchObject({ now: 0, bytes: 0 })
  })
})

describe('operations by mode', () => {
  it('are those of a connection', async () => {
    const scene = await ready()
    expect(await scene.clock.run(scene.replicaset.using('re').select(512, [1]))).toEqual([['b']])
    expect(await scene.clock.run(scene.replicaset.using('rw').insert(512, [5]))).toEqual([5])
    expect(scene.replicaset.using('rw')).toBe(scene.replicaset.using('rw'))
  })

  it('wait for a master and for instances as calls do', async () => {
    const scene = await ready()
    scene.at('a').ro()
    await scene.clock.advance(10)
    const inserting = scene.replicaset.using('rw').insert(512, [5])
    await scene.clock.advance(100)
    scene.at('b').rw(4)
    expect(await scene.clock.run(inserting)).toEqual([5])
    expect(scene.at('b').executed).toEqual([5])
  })
})

describe('transactions', () => {
  const answerTransactions = (scene: Scene): string[] => {
    const seen: string[] = []
    for (const instance of Object.values(scene.instances)) {
      for (const [type, name] of [
        [RequestType.begin, 'begin'],
        [RequestType.commit, 'commit'],
        [RequestType.rollback, 'rollback'],
      ] as const) {
        instance.peer.handle(type, (request) => {
          seen.push(`${name} ${instance.id}`)
          request.ok()
        })
      }
    }
    return seen
  }

  it('run at the master, all of it on one stream', async () => {
    const scene = await ready()
    const seen = answerTransactions(scene)
    const result = await scene.clock.run(
      scene.replicaset.transaction(async (stream) => {
        await stream.insert(512, [1])
        return 'done'
      }),
    )
    expect([result, seen, scene.at('a').executed]).toEqual(['done', ['begin a', 'commit a'], [1]])
    expect(scene.at('a').peer.requestsOf(RequestType.insert)[0]?.streamId).toBeGreaterThan(0)
  })

  it('wait for a master to start, and stay with it: after a switch they fail and are not repeated', async () => {
    const scene = await ready()
    const seen = answerTransactions(scene)
    scene.at('a').ro()
    await scene.clock.advance(10)
    let runs = 0
    const running = failure(
      scene.replicaset.transaction(async (stream) => {
        runs += 1
        await stream.insert(512, [1])
        scene.at('b').kill()
        scene.at('b').revive()
        scene.at('c').rw(5)
        await scene.clock.advance(200)
        await stream.insert(512, [2])
      }),
    )
    await scene.clock.advance(100)
    scene.at('b').rw(4)
    const error = await scene.clock.run(running)
    expect([error.code, runs, seen]).toEqual(['ORB_CONNECTION_LOST', 1, ['begin b']])
    expect(scene.at('c').executed).toEqual([])
  })

  it('that find no master in time never begin', async () => {
    const scene = await ready()
    scene.at('a').ro()
    await scene.clock.advance(10)
    const error = await scene.clock.run(
      failure(
        scene.replicaset.transaction(
          async () => {
            throw new Error('it ran')
          },
          { timeout: 200 },
        ),
      ),
    )
    expect([error.code, error.executed]).toEqual(['ORB_NO_MASTER', 'no'])
  })
})

describe('pinned sessions', () => {
  const sink = (): ReplySink & { ends: (Reply | OrbweaverError)[] } => {
    const ends: (Reply | OrbweaverError)[] = []
    return { ends, done: (reply) => void ends.push(reply), failed: (error) => void ends.push(error) }
  }

  it('stay on one connection of one generation, and say when it is lost', async () => {
    const scene = await ready({ connections: 3 })
    const session = scene.replicaset.master()!.pin()
    const answers = sink()
    for (let count = 0; count < 3; count += 1) session.send(callRequest('who'), { deadline: Infinity }, answers)
    await scene.clock.advance(10)
    expect(answers.ends.map((reply) => decodeData(reply as Reply))).toEqual([['a'], ['a'], ['a']])
    const used = new Set(
      scene
        .at('a')
        .peer.requestsOf(RequestType.call)
        .map(({ session: at }) => at),
    )
    expect([used.size, session.lost]).toEqual([1, false])
    scene.at('a').kill()
    scene.at('a').revive()
    await scene.clock.advance(1_000)
    const late = sink()
    session.send(callRequest('who'), { deadline: Infinity }, late)
    expect(late.ends).toEqual([])
    await scene.clock.advance(10)
    expect([session.lost, late.ends[0]]).toMatchObject([true, { code: 'ORB_CONNECTION_LOST', executed: 'no' }])
  })

  it('of an instance that is away are lost from the start', async () => {
    const scene = new Scene()
    const session = scene.replicaset.instances()[0]!.pin()
    expect(session.lost).toBe(true)
  })

  it('other requests are spread over the connections', async () => {
    const scene = await ready({ connections: 3 })
    for (let count = 0; count < 9; count += 1) await scene.clock.run(scene.replicaset.callrw('who'))
    expect(
      new Set(
        scene
          .at('a')
          .peer.requestsOf(RequestType.call)
          .filter(({ body }) => body.has(0x22))
          .map(({ session }) => session),
      ).size,
    ).toBe(3)
  })
})

describe('what is told', () => {
  it('changes of the master, for a slow reader the newest', async () => {
    const scene = await ready()
    const seen: unknown[] = []
    const reading = (async () => {
      for await (const change of scene.replicaset.changes()) seen.push(change)
    })()
    await scene.clock.settle()
    scene.at('b').rw(4)
    await scene.clock.advance(10)
    scene.at('b').kill()
    await scene.clock.advance(10)
    const iterator = scene.replicaset.changes()[Symbol.asyncIterator]()
    scene.at('c').rw(5)
    await scene.clock.advance(10)
    expect(await iterator.next()).toEqual({ done: false, value: { epoch: 3, master: 'c' } })
    scene.replicaset.destroy()
    await scene.clock.run(reading)
    expect(seen).toEqual([
      { epoch: 1, master: 'a' },
      { epoch: 2, master: 'b' },
      { epoch: 2, master: undefined },
      { epoch: 3, master: 'c' },
    ])
    expect(await iterator.next()).toEqual({ done: true, value: undefined })
    const late: unknown[] = []
    for await (const change of scene.replicaset.changes()) late.push(change)
    expect(late).toEqual([])
  })

  it('a loop over changes that is left early is forgotten', async () => {
    const scene = await ready()
    for await (const { master } of scene.replicaset.changes()) {
      expect(master).toBe('a')
      break
    }
    scene.at('b').rw(4)
    await scene.clock.advance(10)
    expect(scene.replicaset.master()?.id).toBe('b')
  })

  it('events when the change is complete; what a listener throws or calls changes nothing', async () => {
    const scene = await ready()
    const seen: unknown[] = []
    scene.replicaset.on('master', ({ master, previous, epoch, term }) => {
      seen.push([master, previous, epoch, term, scene.replicaset.master()?.id])
      if (master === 'b') {
        scene.replicaset.dispatch(scene.write(), 'rw')
        throw new Error('a faulty listener')
      }
    })
    const logged: unknown[] = []
    const onLog = (record: unknown): void => void logged.push(record)
    channel(CHANNELS.log).subscribe(onLog)
    onTestFinished(() => {
      channel(CHANNELS.log).unsubscribe(onLog)
    })
    scene.at('b').rw(4)
    await scene.clock.advance(10)
    scene.at('b').ro()
    await scene.clock.advance(10)
    expect(seen).toEqual([
      ['b', 'a', 2, 4, 'b'],
      [undefined, 'b', 2, undefined, undefined],
    ])
    expect(logged).toContainEqual(
      expect.objectContaining({ level: 'error', package: 'replicaset', event: 'listener failed' }),
    )
    expect(scene.writes[0]?.result).toBe('')
  })

  it('a window, at its opening and at its end', async () => {
    const scene = await ready()
    const events: WindowEvent[] = []
    const published: unknown[] = []
    const onWindow = (message: unknown): void => void published.push(message)
    channel(CHANNELS.window).subscribe(onWindow)
    onTestFinished(() => {
      channel(CHANNELS.window).unsubscribe(onWindow)
    })
    scene.replicaset.on('window', (event) => events.push(event))
    scene.at('a').ro()
    await scene.clock.advance(10)
    scene.write()
    scene.write()
    await scene.clock.advance(100)
    expect(scene.replicaset.info().window).toEqual({ reason: 'no_master', ms: 100, waiting: 2 })
    scene.at('b').rw(4)
    await scene.clock.advance(10)
    expect(events).toEqual([
      {
        set: 'A',
        reason: 'no_master',
        T0: 3,
        M0: { id: 'a', generation: 1 },
        end: undefined,
        why: undefined,
        entries: 0,
        ms: 0,
      },
      {
        set: 'A',
        reason: 'no_master',
        T0: 3,
        M0: { id: 'a', generation: 1 },
        end: 'b',
        why: 'newer_term',
        entries: 2,
        ms: 101,
      },
    ])
    expect(published).toEqual(events)
    expect(scene.replicaset.info().window).toBeUndefined()
  })

  it('each call to those who trace, and nothing is made for nobody', async () => {
    const scene = await ready()
    const traced: string[] = []
    const traces = tracingChannel<unknown, CallTrace>(CHANNELS.call)
    const subscribers = {
      start: (trace: CallTrace) => void traced.push(`start ${trace.mode}`),
      end: () => undefined,
      asyncStart: () => undefined,
      asyncEnd: (trace: CallTrace) => void traced.push(`end ${String(trace.instance)} ${trace.error?.code ?? ''}`),
      error: () => undefined,
    }
    traces.subscribe(subscribers)
    onTestFinished(() => {
      traces.unsubscribe(subscribers)
    })
    await scene.clock.run(scene.replicaset.callro('who'))
    await scene.clock.run(failure(scene.replicaset.callrw('missing')))
    scene.at('a').ro()
    await scene.clock.advance(10)
    await scene.clock.run(failure(scene.replicaset.callrw('who', [], { timeout: 10 })))
    expect(traced).toEqual([
      'start ro',
      'end a ',
      'start rw',
      'end a ORB_BOX',
      'start rw',
      'end undefined ORB_NO_MASTER',
    ])
  })

  it('a listener can be taken away again, or be asked once', async () => {
    const scene = await ready()
    let count = 0
    const listener = (): void => void (count += 1)
    scene.replicaset.on('master', listener).off('master', listener).once('master', listener)
    scene.at('b').rw(4)
    await scene.clock.advance(10)
    scene.at('c').rw(5)
    await scene.clock.advance(10)
    expect(count).toBe(1)
  })
})

describe('closing', () => {
  it('lets what is in flight finish, ends what waits, and leaves nothing behind', async () => {
    const scene = await ready()
    scene.at('a').workMs = 100
    const inFlight = scene.write()
    let closed = 0
    scene.replicaset.on('close', () => void (closed += 1))
    await scene.clock.advance(10)
    const closing = scene.replicaset.close()
    expect(scene.replicaset.close()).toBe(closing)
    await scene.clock.run(closing)
    await scene.clock.advance(10)
    expect([inFlight.result, closed, scene.clock.pendingTimers]).toEqual(['', 1, 0])
    expect((await failure(scene.replicaset.callrw('who'))).code).toBe('ORB_CONNECTION_CLOSED')
    expect((await failure(scene.replicaset.callro('who'))).code).toBe('ORB_CONNECTION_CLOSED')
  })

  it('ends what does not finish in time', async () => {
    const scene = await ready()
    scene.at('a').functions.set('endless', () => undefined)
    const calling = failure(scene.replicaset.callrw('endless'))
    await scene.clock.advance(10)
    await scene.clock.run(scene.replicaset.close({ timeout: 50 }))
    expect(await calling).toMatchObject({ code: 'ORB_CONNECTION_CLOSED', executed: 'unknown' })
  })
})

it('options are checked at the door, all problems at once', () => {
  const make = (): unknown =>
    createReplicaset({
      definition: {
        id: '',
        instances: [
          { id: 'a', uri: 'x:y:z' },
          { id: 'a', uri: 'localhost:1', weight: -1, uuid: 'no' },
        ],
        master: 'q',
      },
      buffer: { windowMs: 100, maxDurationMs: 50, mode: 'maybe' as 'on', drainConcurrency: 0 },
      pingIntervalMs: 10,
      silentAfterMs: 5,
      password: 'x',
      surprise: 1,
    } as never)
  expect(make).toThrow(/surprise/)
  try {
    make()
  } catch (error) {
    const paths = (error as { problems: readonly { path: string }[] }).problems.map(({ path }) => path)
    expect(paths).toEqual([
      'surprise',
      'definition.id',
      'definition.instances[0].uri',
      'definition.instances[1].id',
      'definition.instances[1].uuid',
      'definition.instances[1].weight',
      'definition.master',
      'buffer.mode',
      'buffer.drainConcurrency',
      'buffer.maxDurationMs',
      'silentAfterMs',
      'password',
    ])
  }
})
