/*
 * Replication alone, in random histories of three to five instances under a majority: writes, cuts between pairs, crashes in the
 * middle of a write, promotions by hand, several at once. After every step nothing acknowledged is missing on the master, a term
 * has one writer, and nobody has taken what a promise forbids; healed, all are equal.
 *
 * ORBWEAVER_SEED=17 runs one history, ORBWEAVER_HISTORIES=5000 that many.
 */
import assert from 'node:assert/strict'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { Replication } from '../src/replication/replication.js'
import type { RowTransaction } from '../src/replication/transaction.js'
import { Upstreams } from '../src/replication/upstreams.js'
import type { Storage } from '../src/index.js'
import { DISK_FULL } from './memory-files.js'
import { ReplicationWorld } from './replication-world.js'

const STEPS = 40
const FIRST = Number(process.env['ORBWEAVER_SEED'] ?? 1)
const HISTORIES = Number(process.env['ORBWEAVER_HISTORIES'] ?? (process.env['ORBWEAVER_SEED'] === undefined ? 100 : 1))
const BATCH = 20
/** Histories that went wrong once. */
const KNOWN = [52_582]

function seeded(seed: number): (below: number) => number {
  let state = Math.imul(seed, 2_654_435_761) >>> 0
  return (below) => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 0x1_0000_0000) * below)
  }
}

/** What was taken though a promise forbade it. */
const broken: string[] = []

/** The rule of promises, said once more and independently, around everything that changes an instance from outside. */
function watchPromises(): () => void {
  const { transaction, takeOver } = Upstreams.prototype
  const { receive, replace } = Replication.prototype
  let bringer: { peer: number; term: number } | undefined
  const from = (peer: number, term: number, work: () => void): void => {
    bringer = { peer, term }
    try {
      work()
    } finally {
      bringer = undefined
    }
  }
  /** A row's term is judged by the instance that takes it; a promotion and a state bring theirs. */
  const check = (replication: Replication, termOf: (term: number) => number): void => {
    const { promised, promisedTo } = replication.role
    const { peer, term: brought } = bringer!
    const term = termOf(brought)
    if (term < promised && peer !== promisedTo && promisedTo !== replication.number)
      broken.push(`${replication.number} took term ${term} from ${peer}, having promised ${promised} to ${promisedTo}`)
  }
  Upstreams.prototype.transaction = function (this: Upstreams, rows: RowTransaction, peer: number): void {
    from(peer, 0, () => transaction.call(this, rows, peer))
  }
  Upstreams.prototype.takeOver = function (this: Upstreams, ...parts: Parameters<typeof takeOver>): void {
    from(parts[2], parts[1].promotions.at(-1)?.term ?? 1, () => takeOver.apply(this, parts))
  }
  Replication.prototype.receive = function (this: Replication, rows: RowTransaction): void {
    check(this, () => rows.promotion?.term ?? this.history.termOf(rows.origin))
    receive.call(this, rows)
  }
  Replication.prototype.replace = function (this: Replication, ...parts: Parameters<typeof replace>): void {
    check(this, (term) => term)
    replace.apply(this, parts)
  }
  return () => {
    Object.assign(Upstreams.prototype, { transaction, takeOver })
    Object.assign(Replication.prototype, { receive, replace })
  }
}

class Scene {
  readonly acknowledged: Set<number> = new Set<number>()
  readonly story: string[] = []
  readonly #next: (below: number) => number
  readonly #world: ReplicationWorld
  readonly #writers = new Map<number, number>()
  readonly #pending = new Set<Promise<void>>()
  /** In which something was acknowledged. */
  #highestTerm = 0
  #lastId = 0

  constructor(next: (below: number) => number) {
    this.#next = next
    const size = 3 + next(3)
    this.#world = new ReplicationWorld({ size, quorum: Math.floor(size / 2) + 1, random: () => next(1_000) / 1_000 })
    this.story.push(`${size} instances`)
  }

  async start(): Promise<void> {
    const world = this.#world
    await world.startAll()
    await world.clock.advance(100)
    await world.wait(world.at(1).promote())
    world.at(1).createSpace('s', { format: [{ name: 'id', type: 'unsigned' }] })
    world.at(1).createSpace('last', {
      format: [
        { name: 'key', type: 'unsigned' },
        { name: 'id', type: 'unsigned' },
      ],
    })
    await world.wait(world.at(1).committed())
  }

  async step(): Promise<void> {
    this.story.push(await this.#act())
    this.#check()
  }

  async end(): Promise<void> {
    const world = this.#world
    world.healAll()
    for (const number of world.numbers) world.disk(number).failure = undefined
    await world.startAll()
    await world.clock.advance(10_000)
    this.#check()
    for (let attempt = 1; ; attempt++) {
      try {
        await world.wait(world.at(1 + this.#next(world.numbers.length)).promote())
        break
      } catch (error) {
        if (attempt === 20) throw error
        await world.clock.advance(1_000)
      }
    }
    this.#write(3)
    await world.clock.advance(10_000)
    this.#check()
    const states = world.numbers.map((number) => this.#stateOf(number))
    for (const [i, state] of states.entries()) assert.deepEqual(state, states[0], `${i + 1} differs from 1`)
    for (const id of this.acknowledged) if (!states[0]!.ids.includes(id)) throw new Error(`${id} is gone`)
  }

  async close(): Promise<void> {
    await this.#world.close()
    await Promise.all(this.#pending)
  }

  async #act(): Promise<string> {
    const world = this.#world
    const number = 1 + this.#next(world.numbers.length)
    const other = 1 + this.#next(world.numbers.length)
    const isUp = world.find(number) !== undefined
    switch (this.#next(14)) {
      case 0:
        if (!isUp) return this.#restart(number)
        await world.crash(number)
        return `${number} crashed`
      case 1: {
        if (!isUp) return this.#restart(number)
        const bytes = this.#next(800)
        world.disk(number).powerLeft = bytes
        this.#write(3)
        await world.clock.advance(1 + this.#next(30))
        await world.crash(number)
        return `${number} lost its power after ${bytes} bytes`
      }
      case 2:
        if (number === other) return 'nothing happened'
        if (this.#next(3) === 0) {
          world.refuse(number, other)
          return `${number} and ${other} connect no more`
        }
        world.cut(number, other)
        return `${number} and ${other} were cut`
      case 3:
        world.isolate(number)
        return `${number} was isolated`
      case 4:
        world.heal(number, other)
        return `${number} and ${other} were healed`
      case 5:
        world.healAll()
        return 'everything was healed'
      case 6:
      case 7: {
        if (!isUp) return this.#restart(number)
        this.#promote(number)
        if (this.#next(3) === 0 && world.find(other) !== undefined) this.#promote(other)
        await world.clock.advance(this.#next(2_500))
        return `${number} was to be promoted`
      }
      case 8: {
        const ms = this.#next(7_000)
        await world.clock.advance(ms)
        return `${ms} ms passed`
      }
      case 9:
        if (!isUp) return this.#restart(number)
        world.disk(number).failure = this.#next(2) === 0 ? DISK_FULL : undefined
        return `the disk of ${number} ${world.disk(number).failure === undefined ? 'has room' : 'is full'}`
      case 10: {
        await world.clock.advance(this.#next(500))
        for (const each of world.numbers)
          if (world.find(each) !== undefined) world.disk(each).powerLeft = this.#next(600)
        this.#write(4)
        await world.clock.advance(1 + this.#next(30))
        for (const each of world.numbers) if (world.find(each) !== undefined) await world.crash(each)
        for (const each of world.numbers) if (this.#next(4) > 0) await world.start(each)
        await world.clock.advance(this.#next(1_500))
        if (world.find(other) !== undefined) this.#promote(other)
        return 'the power of all of them went'
      }
      default: {
        const count = 1 + this.#next(8)
        this.#write(count)
        const ms = this.#next(150)
        await world.clock.advance(ms)
        return `${count} writes, ${ms} ms`
      }
    }
  }

  async #restart(number: number): Promise<string> {
    await this.#world.start(number)
    return `${number} came back`
  }

  #promote(number: number): void {
    const storage = this.#world.at(number)
    this.#follow(
      storage.promote({ timeout: 2_000 }).then(
        () => {
          this.story.push(`(${number} is the master of term ${storage.term})`)
        },
        (error: unknown) => {
          this.story.push(`(${number} is not promoted: ${String(error)})`)
        },
      ),
    )
  }

  /** To everybody who believes to be the master: at times there are two. Two rows in a transaction. */
  #write(count: number): void {
    for (const number of this.#world.numbers) {
      const storage = this.#world.find(number)
      if (storage === undefined || storage.isReadonly) continue
      for (let i = 0; i < count; i++) {
        const id = ++this.#lastId
        this.#follow(
          this.#insert(storage, id).then(
            () => void this.acknowledged.add(id),
            () => undefined, // refused, or unknown
          ),
        )
      }
    }
  }

  async #insert(storage: Storage, id: number): Promise<void> {
    const { term } = storage
    await storage.call('write', id)
    this.#highestTerm = Math.max(this.#highestTerm, term)
  }

  #follow(work: Promise<void>): void {
    this.#pending.add(work)
    void work.finally(() => this.#pending.delete(work))
  }

  #check(): void {
    if (broken.length > 0) throw new Error(broken.splice(0).join('; '))
    let master: { number: number; term: number } | undefined
    for (const number of this.#world.numbers) {
      const storage = this.#world.find(number)
      if (storage === undefined || storage.isReadonly) continue
      const { term } = storage
      const writer = this.#writers.get(term)
      if (writer !== undefined && writer !== number)
        throw new Error(`${writer} and ${number} both wrote in term ${term}`)
      this.#writers.set(term, number)
      if (master === undefined || term > master.term) master = { number, term }
    }
    // One of an older term does not know better, and gets nothing acknowledged.
    if (master === undefined || master.term < Math.max(this.#highestTerm, ...this.#writers.keys())) return
    const { ids, last } = this.#stateOf(master.number)
    const found = new Set(ids)
    const lost = [...this.acknowledged].filter((id) => !found.has(id))
    if (lost.length > 0) throw new Error(`The master ${master.number} of term ${master.term} lacks ${lost.join(', ')}`)
    for (const [key, id] of last) if (!found.has(id)) throw new Error(`${key} has ${id}: half of a transaction`)
  }

  #stateOf(number: number): { ids: number[]; last: [number, number][]; term: number; vclock: object } {
    const storage = this.#world.at(number)
    const { term, vclock } = storage.info()
    return {
      ids: storage
        .space<[number]>('s')
        .select()
        .map(([id]) => id),
      last: storage.space<[number, number]>('last').select(),
      term,
      vclock: Object.fromEntries(vclock),
    }
  }
}

async function play(seed: number): Promise<number> {
  const scene = new Scene(seeded(seed))
  try {
    await scene.start()
    for (let step = 0; step < STEPS; step++) await scene.step()
    await scene.end()
    return scene.acknowledged.size
  } catch (error) {
    throw new Error(`ORBWEAVER_SEED=${seed}: ${String(error)}\n${scene.story.join('\n')}`, { cause: error })
  } finally {
    await scene.close()
  }
}

describe('random histories', () => {
  let unwatch: () => void
  beforeAll(() => {
    unwatch = watchPromises()
  })
  afterAll(() => unwatch())

  it.each(KNOWN)('that went wrong once: seed %i', { timeout: 60_000 }, async (seed) => {
    expect(await play(seed)).toBeGreaterThan(0)
  })

  const batches = Array.from({ length: Math.ceil(HISTORIES / BATCH) }, (_, i) => FIRST + i * BATCH)
  it.each(batches)('from seed %i', { timeout: 600_000 }, async (first) => {
    let acknowledged = 0
    const end = Math.min(first + BATCH, FIRST + HISTORIES)
    for (let seed = first; seed < end; seed++) acknowledged += await play(seed)
    expect(acknowledged).toBeGreaterThan(end - first)
  })
})
