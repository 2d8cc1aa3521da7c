/* Masters that meet again: who stays, what counts for a quorum, and which state may replace another. */
import { openChannel } from '@orbweaver/connection'
import type { FrameChannel } from '@orbweaver/connection'
import { FrameWriter } from '@orbweaver/iproto'
import { afterEach, describe, expect, it, test, vi } from 'vitest'
import { Relays } from '../src/replication/relays.js'
import {
  decodeAcknowledgement,
  encodeAcknowledgement,
  encodeSubscription,
  NO_UUID,
} from '../src/replication/stream-codec.js'
import { askPromise } from './memory.js'
import { ReplicationWorld, uuidOf } from './replication-world.js'

let world: ReplicationWorld

afterEach(async () => {
  vi.restoreAllMocks()
  await world.close()
})

async function begin(size: number, quorum: number, options: { isDurable?: boolean } = {}): Promise<ReplicationWorld> {
  world = new ReplicationWorld({ size, quorum, random: () => 0.5, ...options })
  await world.startAll()
  await world.clock.advance(100)
  await world.wait(world.at(1).promote())
  world.at(1).createSpace('s', { format: [{ name: 'id', type: 'unsigned' }] })
  await world.wait(world.at(1).committed())
  await world.clock.advance(50)
  return world
}

async function outcome(work: Promise<unknown>): Promise<string> {
  return world.wait(
    work.then(
      () => 'done',
      (error: unknown) => String(error),
    ),
  )
}

/** Nobody moves the clock meanwhile: `insert` does. */
function write(number: number, id: number): Promise<string> {
  const storage = world.at(number)
  const work = async (): Promise<string> => {
    storage.space<[number]>('s').insert([id])
    await storage.committed()
    return 'done'
  }
  return work().catch(String)
}

function insert(number: number, id: number): Promise<string> {
  return world.wait(write(number, id))
}

function promise(number: number, term: number, candidate: number): Promise<unknown> {
  const environment = { clock: world.clock, random: () => 0.5 }
  return world.wait(askPromise(world.at(number), environment, [term, candidate]))
}

function idsOn(number: number): number[] {
  return world
    .at(number)
    .space<[number]>('s')
    .select()
    .map(([id]) => id)
}

function masters(): number[] {
  return world.numbers.filter((number) => world.find(number)?.isReadonly === false)
}

type Event = 'cut' | 'elsewhere' | 'here' | 'heal'

function orders<T>(items: readonly T[]): T[][] {
  if (items.length < 2) return [[...items]]
  return items.flatMap((item, i) =>
    orders([...items.slice(0, i), ...items.slice(i + 1)]).map((rest) => [item, ...rest]),
  )
}

describe('the master of three, in every order of being cut off, deposed, promoted again and healed', () => {
  test.each(orders<Event>(['cut', 'elsewhere', 'here', 'heal']).map((events) => [events.join(', '), events] as const))(
    '%s',
    async (_, events) => {
      await begin(3, 2)
      expect(await insert(1, 1)).toBe('done')
      let isCut = false
      let isDeposed = false
      for (const event of events) {
        const { term } = world.at(1)
        switch (event) {
          case 'cut':
            world.isolate(1)
            isCut = true
            break
          case 'heal':
            world.healAll()
            isCut = false
            await world.clock.advance(3_000)
            break
          case 'elsewhere':
            expect(await outcome(world.at(2).promote())).toBe('done')
            isDeposed = true
            break
          case 'here': {
            const said = await outcome(world.at(1).promote())
            if (isCut) {
              // It cannot know, and says whom it could not ask.
              expect(said).toMatch(/1 of the 2 instances it needs agree \(instance 2: .+; instance 3: .+\)/)
              break
            }
            expect(said).toBe('done')
            expect(masters()).toEqual([1])
            if (isDeposed) expect(world.at(1).term).toBeGreaterThan(term)
            else expect(world.at(1).term).toBe(term)
            isDeposed = false
            break
          }
        }
      }
      world.healAll()
      await world.clock.advance(10_000)
      expect(masters()).toHaveLength(1)
      const [master] = masters()
      expect(await insert(master!, 2)).toBe('done')
      await world.clock.advance(100)
      for (const number of world.numbers) {
        expect(idsOn(number)).toEqual([1, 2])
        expect(world.at(number).term).toBe(world.at(master!).term)
      }
    },
  )
})

describe('a promotion', () => {
  it('ends within its time when nobody answers', async () => {
    await begin(3, 2)
    world.isolate(2)
    const began = world.clock.now()
    expect(await outcome(world.at(2).promote({ timeout: 300 }))).toMatch(/cannot be promoted/)
    expect(world.clock.now() - began).toBeLessThan(400)
  })

  it('ends within its time when its disk hangs', async () => {
    await begin(3, 2)
    world.disk(2).powerLeft = 0
    const began = world.clock.now()
    expect(await outcome(world.at(2).promote({ timeout: 2_000 }))).toMatch(/not on disk: the disk takes longer/)
    expect(world.clock.now() - began).toBeLessThan(2_200)
    expect(world.at(2).isReadonly).toBe(true)
  })

  it('gets the promise of a master whose own writes wait for a quorum that will not come', async () => {
    await begin(3, 2)
    await world.crash(3)
    world.cut(1, 2)
    const said = write(1, 7)
    await world.clock.advance(10)
    world.heal(1, 2)
    expect(await outcome(world.at(2).promote())).toBe('done')
    // It had the write: so it is part of history.
    expect(idsOn(2)).toEqual([7])
    expect(await insert(2, 8)).toBe('done')
    await world.clock.advance(2_000)
    expect(idsOn(1)).toEqual([7, 8])
    // The new master and this instance are two that have it, under the promotion that holds it.
    expect(await said).toBe('done')
  })

  it('lets nobody wait for what the next master has, where the former one serves on as a replica', async () => {
    await begin(3, 2)
    expect(await insert(1, 7)).toBe('done')
    expect(await outcome(world.at(2).promote())).toBe('done')
    await world.clock.advance(2_000)
    let isCommitted = false
    void world
      .at(1)
      .committed()
      .then(() => (isCommitted = true))
    await world.clock.advance(1)
    expect(isCommitted).toBe(true)
  })

  it('takes a term above every promise it hears of, so that everybody can follow', async () => {
    await begin(3, 2)
    await promise(3, 40, 2)
    expect(await outcome(world.at(1).promote())).toBe('done')
    expect(world.at(1).term).toBe(41)
    expect(await insert(1, 1)).toBe('done')
    await world.clock.advance(100)
    expect(world.at(3).term).toBe(41)
  })

  test.each([
    ['no term', 0, 2],
    ['a term beyond all counting', 2 ** 52 + 1, 2],
    ['a stranger', 5, 9],
    ['the instance itself', 5, 3],
  ])('is promised nothing for %s', async (_, term, candidate) => {
    await begin(3, 2)
    expect(await outcome(promise(3, term, candidate))).toMatch(/Nothing can be promised/)
    expect(await outcome(world.at(2).promote())).toBe('done')
  })
})

describe('without a quorum', () => {
  it('a master that is cut off is promoted at its own word, and gives way to a later term', async () => {
    await begin(3, 1)
    world.isolate(1)
    expect(await outcome(world.at(1).promote())).toBe('done')
    expect(await outcome(world.at(2).promote())).toBe('done')
    await insert(1, 100)
    await insert(2, 200)
    expect(masters()).toEqual([1, 2])
    world.healAll()
    await world.clock.advance(10_000)
    expect(masters()).toEqual([2])
    expect(world.numbers.map(idsOn)).toEqual([[200], [200], [200]])
  })

  test.each([2, 3])('of %i instances two were promoted in one term: the higher number stays', async (size) => {
    await begin(size, 1)
    world.isolate(1)
    world.isolate(2)
    await world.at(1).demote()
    expect(await outcome(world.at(2).promote())).toBe('done')
    expect(await outcome(world.at(1).promote())).toBe('done')
    expect(world.at(1).term).toBe(world.at(2).term)
    await insert(1, 100)
    await insert(2, 200)
    world.healAll()
    await world.clock.advance(15_000)
    expect(masters()).toEqual([2])
    expect(world.numbers.map(idsOn)).toEqual(world.numbers.map(() => [200]))
    expect(world.numbers.map((number) => world.at(number).info().status)).toEqual(world.numbers.map(() => 'running'))
  })
})

/** Somebody who speaks for instance 3: its subscription, and what it says it has. */
async function speakFor3(vclock: ReadonlyMap<number, number>, term: number): Promise<FrameChannel> {
  const { clock } = world
  const channel = await world.wait(
    openChannel(
      world.at(1).connect({ user: 'root' }),
      { features: [], deadline: Infinity },
      { clock, random: () => 0.5, dial: () => Promise.reject(new Error('not here')) },
    ),
  )
  channel.attach({ frame: () => undefined, drain: () => undefined, closed: () => undefined })
  const writer = new FrameWriter()
  encodeSubscription(writer, { instanceUuid: uuidOf(3), replicasetUuid: NO_UUID, from: { vclock, term } })
  channel.write(writer.take())
  await world.clock.settle()
  return channel
}

function acknowledge(channel: FrameChannel, vclock: ReadonlyMap<number, number>, term: number): void {
  const writer = new FrameWriter()
  encodeAcknowledgement(writer, vclock, term)
  channel.write(writer.take())
}

describe('an acknowledgement', () => {
  test.each([
    ['of the present term counts', 0, 'done'],
    ['of an older term does not count: its numbers may be other rows', -1, 'timed out'],
    ['of a term the master does not know yet does not count', 1, 'timed out'],
  ])('%s', async (_, shift, want) => {
    await begin(3, 2)
    for (const number of [2, 3]) await world.crash(number)
    const { term } = world.at(1)
    const before = world.at(1).info().vclock
    const channel = await speakFor3(before, term + shift)
    const said = insert(1, 7)
    const after = new Map([[1, before.get(1)! + 1]])
    acknowledge(channel, after, term + shift)
    expect(await said).toContain(want)
  })

  it('tells the highest term that was promised: a master of an older one must not count on it', async () => {
    await begin(3, 2)
    const told: number[] = []
    const { acknowledge: original } = Relays.prototype
    vi.spyOn(Relays.prototype, 'acknowledge').mockImplementation(function (this: Relays, session, frame) {
      const isAcknowledged = original.call(this, session, frame)
      if (isAcknowledged) told.push(decodeAcknowledgement(frame.body).term)
      return isAcknowledged
    })
    await promise(3, 40, 2)
    await world.clock.advance(1_500)
    expect(new Set(told)).toEqual(new Set([2, 40]))
  })

  it('is not what somebody says when it subscribes: that need not be safe', async () => {
    await begin(3, 2)
    for (const number of [2, 3]) await world.crash(number)
    const { term } = world.at(1)
    const said = insert(1, 7)
    await world.clock.settle()
    await speakFor3(world.at(1).info().vclock, term)
    expect(await said).toContain('timed out')
  })
})

describe('a master that is deposed without knowing, and is promoted again', () => {
  it('gets nothing acknowledged by those who promised a term in between', async () => {
    await begin(5, 3)
    await world.crash(2)
    const { term } = world.at(1)
    world.isolate(1)
    world.isolate(4)
    // Links that were cut are dialled again after a while; a promise is asked for at once.
    for (const other of [3, 5]) world.heal(4, other)
    expect(await outcome(world.at(4).promote())).toBe('done')
    world.isolate(4)
    expect([3, 4, 5].map((number) => world.at(number).term)).toEqual([term, term + 1, term])
    const said = write(1, 666)
    world.healAll()
    const again = world.at(1).promote().catch(String)
    // It hears of the term in between, and cannot get what was done in it; but its own rows reach 3 and 5.
    await world.clock.advance(20)
    world.cut(1, 4)
    await world.clock.advance(700)
    expect(idsOn(3)).toEqual([666])
    world.healAll()
    await world.clock.advance(15_000)
    await again
    expect(await said).toContain('timed out')
    expect(masters()).toEqual([1])
    expect(await insert(1, 1)).toBe('done')
    await world.clock.advance(100)
    for (const number of [1, 3, 4, 5]) expect([number, idsOn(number)]).toEqual([number, [1]])
  })
})

describe('an instance whose rows are no part of history', () => {
  /**
   * Of five, 1 was the master. 3 was promoted by 3, 4 and 5; meanwhile 1 wrote a row that 2 alone has, and 2 has heard of the
   * promotion through 4. From then on it reaches nobody but 1.
   */
  async function diverged(): Promise<void> {
    await begin(5, 3)
    expect(await insert(1, 1)).toBe('done')
    await world.clock.advance(50)
    for (const [a, b] of [
      [3, 2],
      [3, 1],
      [4, 1],
      [5, 1],
      [5, 2],
    ] as const)
      world.cut(a, b)
    const { term } = world.at(1)
    for (const number of [4, 5]) await promise(number, term + 1, 3)
    world.at(1).space<[number]>('s').insert([666])
    await world.clock.advance(1)
    expect([idsOn(2), idsOn(4)]).toEqual([[1, 666], [1]])
    expect(await outcome(world.at(3).promote())).toBe('done')
    expect(world.at(3).term).toBe(term + 1)
    world.cut(2, 4)
  }

  it('is not read, and takes no state of the term that is over', async () => {
    await diverged()
    await world.clock.advance(5_000)
    expect(world.at(2).info()).toMatchObject({ status: 'loading', isReadonly: true })
    expect(world.at(2).info().links.get(1)).toMatchObject({ cause: expect.stringMatching(/too old/) as string })
    // What it has is still there: a candidate may need it.
    expect(idsOn(2)).toEqual([1, 666])
  })

  it('takes the state of the new term when it can, and is read again', async () => {
    await diverged()
    world.healAll()
    await world.clock.advance(10_000)
    expect(await insert(3, 2)).toBe('done')
    await world.clock.advance(100)
    for (const number of world.numbers) expect([number, idsOn(number)]).toEqual([number, [1, 2]])
    expect(world.at(2).info().status).toBe('running')
  })

  it('does not hold up a promotion by rows that never happened', async () => {
    await diverged()
    await world.clock.advance(2_000)
    await world.crash(3)
    world.heal(2, 4)
    expect(await outcome(world.at(4).promote({ timeout: 500 }))).toBe('done')
    expect(await insert(4, 2)).toBe('done')
    await world.clock.advance(3_000)
    for (const number of [2, 4, 5]) expect([number, idsOn(number)]).toEqual([number, [1, 2]])
  })

  it('promises with all it has: it may be the only one left that has what was acknowledged', async () => {
    await begin(5, 3)
    for (const lagging of [4, 5]) world.isolate(lagging)
    for (let id = 1; id <= 3; id++) expect(await insert(1, id)).toBe('done')
    // 3 takes nothing more of this term, so that 666 is on 1 and 2 alone.
    await promise(3, 9, 4)
    world.at(1).space<[number]>('s').insert([666])
    await world.clock.advance(1)
    expect([idsOn(2), idsOn(3)]).toEqual([
      [1, 2, 3, 666],
      [1, 2, 3],
    ])
    // Their promises are not asked for, but the promotion reaches 2.
    for (const other of [1, 2]) world.refuse(3, other)
    for (const lagging of [4, 5]) world.heal(3, lagging)
    expect(await outcome(world.at(3).promote())).toBe('done')
    await world.clock.advance(1)
    for (const lost of [3, 1]) await world.crash(lost)
    expect(world.at(2).info().status).toBe('loading')
    expect([idsOn(4), idsOn(5)]).toEqual([[], []])
    world.healAll()
    expect(await outcome(world.at(4).promote())).toBe('done')
    expect(idsOn(4).slice(0, 3)).toEqual([1, 2, 3])
    await world.start(3)
    await world.clock.advance(5_000)
    expect(await insert(4, 7)).toBe('done')
    await world.clock.advance(100)
    for (const number of [2, 3, 4, 5]) expect([number, idsOn(number)]).toEqual([number, idsOn(4)])
  })
})
