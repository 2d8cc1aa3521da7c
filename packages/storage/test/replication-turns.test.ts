/* Copies and catching up go in slices: other requests have their turns between them, on both sides. */
import type { Transport, TransportSink } from '@orbweaver/connection'
import { VirtualClock } from '@orbweaver/connection/testing'
import { afterEach, describe, expect, it, vi } from 'vitest'
import { Engine } from '../src/engine/engine.js'
import { Restoration } from '../src/engine/restoration.js'
import { RowLog } from '../src/replication/row-log.js'
import { Slice, SLICE_BYTES } from '../src/replication/slice.js'
import { Upstreams } from '../src/replication/upstreams.js'
import { ReplicationWorld } from './replication-world.js'
import type { WorldOptions } from './replication-world.js'

const ROWS = 3_000
const TEXT = 'x'.repeat(500)
/** A row of the stream takes a little more than its text; a few definitions take less. */
const ROWS_OF_A_SLICE = Math.ceil(SLICE_BYTES / TEXT.length) + 10

const LONG = { timeout: 60_000 } as const

let world: ReplicationWorld

afterEach(async () => {
  vi.restoreAllMocks()
  await world.close()
})

/** Everything of a while comes at once, as it may from a kernel or a proxy. */
function gathering(inner: Transport, clock: VirtualClock): Transport {
  const pieces: Buffer[] = []
  const attach = (sink: TransportSink): void =>
    inner.attach({
      data: (chunk) => {
        if (pieces.push(chunk) > 1) return
        clock.schedule(20, () => sink.data(Buffer.concat(pieces.splice(0))))
      },
      drain: () => sink.drain(),
      end: () => sink.end(),
      closed: (cause) => sink.closed(cause),
    })
  return new Proxy(inner, {
    get: (target, name) => {
      if (name === 'attach') return attach
      const value: unknown = Reflect.get(target, name, target)
      return typeof value === 'function' ? (value.bind(target) as unknown) : value
    },
  })
}

async function begin(size: number, isDurable: boolean, options: Pick<WorldOptions, 'wrap'> = {}): Promise<void> {
  world = new ReplicationWorld({ size, quorum: 1, random: () => 0.5, isDurable, ...options })
  await world.startAll()
  await world.clock.advance(100)
  await world.wait(world.at(1).promote())
  world.at(1).createSpace('wide', {
    format: [
      { name: 'id', type: 'unsigned' },
      { name: 'text', type: 'string' },
    ],
  })
  await world.wait(world.at(1).committed())
}

async function fill(count: number, from = 0): Promise<void> {
  const wide = world.at(1).space<[number, string]>('wide')
  for (let id = from; id < from + count; id++) wide.insert([id, TEXT])
  await world.wait(world.at(1).committed())
}

/** Its log reaches back no further than its snapshot then. */
async function restart(number: number): Promise<void> {
  await world.wait(world.at(number).snapshot())
  await world.crash(number)
  await world.start(number)
  await world.clock.advance(2_000)
}

/** How much of something is done in one task of the loop. */
class Counter {
  most = 0
  tasks = 0
  #now = 0

  count(): void {
    this.#now++
    this.most = Math.max(this.most, this.#now)
  }

  taskBegins(): void {
    if (this.#now > 0) this.tasks++
    this.#now = 0
  }
}

function countTasks(...counters: readonly Counter[]): void {
  const { soon } = VirtualClock.prototype
  vi.spyOn(VirtualClock.prototype, 'soon').mockImplementation(function (this: VirtualClock, task: () => void) {
    soon.call(this, () => {
      for (const counter of counters) counter.taskBegins()
      task()
    })
  })
}

describe('a copy of everything', () => {
  it('is sent and filed a slice at a time', LONG, async () => {
    await begin(2, true)
    await fill(ROWS)
    await restart(1)
    await world.wait(world.at(1).promote())
    await world.crash(2)
    world.empty(2)
    const [sent, filed] = [new Counter(), new Counter()]
    countTasks(sent, filed)
    const { snapshot } = Engine.prototype
    vi.spyOn(Engine.prototype, 'snapshot').mockImplementation(function* (this: Engine, options) {
      for (const row of snapshot.call(this, options)) {
        // With local rows it is for the instance's own disk.
        if (options?.withLocal !== true) sent.count()
        yield row
      }
    })
    const { add } = Restoration.prototype
    vi.spyOn(Restoration.prototype, 'add').mockImplementation(function (this: Restoration, row) {
      filed.count()
      add.call(this, row)
    })
    await world.start(2)
    await world.clock.advance(3_000)
    expect(world.at(2).space('wide').count()).toBe(ROWS)
    for (const turns of [sent, filed]) {
      expect(turns.most).toBeLessThanOrEqual(ROWS_OF_A_SLICE)
      expect(turns.tasks).toBeGreaterThanOrEqual(Math.floor(ROWS / ROWS_OF_A_SLICE))
    }
  })

  it('is taken from one peer at a time', LONG, async () => {
    await begin(3, true)
    await fill(ROWS)
    for (const number of [2, 1]) await restart(number)
    await world.crash(3)
    world.empty(3)
    const answers: boolean[] = []
    const { snapshotBegins } = Upstreams.prototype
    vi.spyOn(Upstreams.prototype, 'snapshotBegins').mockImplementation(function (this: Upstreams, ...parts) {
      const answer = snapshotBegins.apply(this, parts)
      answers.push(answer)
      return answer
    })
    await world.start(3)
    await world.clock.advance(3_000)
    expect(world.at(3).space('wide').count()).toBe(ROWS)
    expect(answers.filter(Boolean)).toHaveLength(1)
    expect([...world.at(3).info().links.values()].map(({ name }) => name)).toEqual(['follow', 'follow'])
  })
})

describe('a copy that does not go on', () => {
  it('is given up for that of another peer', LONG, async () => {
    await begin(3, true)
    await fill(100)
    for (const number of [2, 1]) await restart(number)
    await world.wait(world.at(1).promote())
    await world.clock.advance(100)
    await world.crash(3)
    world.empty(3)
    // What 1 has in memory never reaches its disk: its copy cannot be finished.
    world.disk(1).powerLeft = 0
    world.at(1).space<[number, string]>('wide').insert([ROWS, 'stuck'])
    world.cut(2, 3)
    await world.start(3)
    await world.clock.advance(1_500)
    expect(world.at(3).info()).toMatchObject({ status: 'loading' })
    world.heal(2, 3)
    await world.clock.advance(20_000)
    expect(world.at(3).space('wide').count()).toBe(100)
    expect(world.at(3).info().links.get(2)).toMatchObject({ name: 'follow' })
  })
})

describe('rows of the log', () => {
  it('are sent a slice at a time', LONG, async () => {
    await begin(2, false)
    world.cut(1, 2)
    await fill(ROWS)
    const sent = new Counter()
    countTasks(sent)
    const { at } = RowLog.prototype
    vi.spyOn(RowLog.prototype, 'at').mockImplementation(function (this: RowLog, seq) {
      const entry = at.call(this, seq)
      if (entry !== undefined) sent.count()
      return entry
    })
    world.heal(1, 2)
    await world.clock.advance(3_000)
    expect(world.at(2).space('wide').count()).toBe(ROWS)
    expect(sent.most).toBeLessThanOrEqual(ROWS_OF_A_SLICE)
  })

  it('are applied a slice at a time however they come, and requests are answered between them', LONG, async () => {
    await begin(2, false, { wrap: gathering })
    await fill(10)
    await world.clock.advance(100)
    world.cut(1, 2)
    await fill(ROWS, 10)
    const seen: number[] = []
    // A request in every turn of the replica, as a client would have it, from the first row on.
    const look = (): void => {
      seen.push(world.at(2).space('wide').count())
      if (seen.at(-1) !== ROWS + 10) world.clock.soon(look)
    }
    const applied = new Counter()
    countTasks(applied)
    const { applyRows } = Engine.prototype
    vi.spyOn(Engine.prototype, 'applyRows').mockImplementation(function (this: Engine, rows) {
      if (seen.length === 0) look()
      applied.count()
      applyRows.call(this, rows)
    })
    world.heal(1, 2)
    await world.clock.advance(3_000)
    expect(world.at(2).space('wide').count()).toBe(ROWS + 10)
    expect(applied.most).toBeLessThanOrEqual(ROWS_OF_A_SLICE)
    expect(new Set(seen).size).toBeGreaterThan(ROWS / ROWS_OF_A_SLICE / 2)
  })
})

describe('a slice', () => {
  it('is over by bytes, or by time where that comes first', async () => {
    await begin(1, false)
    let at = 0
    const clock = Object.assign(new VirtualClock(), { now: () => at })
    const slice = new Slice(clock)
    slice.begin()
    expect([slice.spend(SLICE_BYTES - 1), slice.spend(1)]).toEqual([false, true])
    slice.begin()
    expect(slice.spend(8 * 1024)).toBe(false)
    at += 4
    expect(slice.spend(8 * 1024)).toBe(true)
    slice.begin()
    expect(slice.spend(8 * 1024)).toBe(false)
  })
})
