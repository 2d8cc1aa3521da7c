/*
 * A durable replicaset in which everything goes wrong at random: power cuts within writes, crashes, cut links, promotions, full
 * disks, snapshots. What a quorum has acknowledged is on every master from then on, and in the end on every instance.
 */
import { expect, it } from 'vitest'
import { MemoryReplicaset } from './memory.js'
import { DISK_FULL, MemoryFiles } from './memory-files.js'

const STEPS = 60

function seeded(seed: number): (below: number) => number {
  let state = seed
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return Math.floor((state / 0x1_0000_0000) * below)
  }
}

class Scene {
  readonly dirs: MemoryFiles[] = [new MemoryFiles(), new MemoryFiles(), new MemoryFiles()]
  readonly set: MemoryReplicaset = new MemoryReplicaset(3, {
    quorum: 2,
    quorumTimeoutMs: 500,
    snapshotRows: 40,
    dirs: this.dirs,
  })
  readonly acknowledged: Set<number> = new Set<number>()
  readonly #next: (below: number) => number
  #lastId = 0

  constructor(next: (below: number) => number) {
    this.#next = next
  }

  async start(): Promise<void> {
    await this.set.open()
    await this.set.clock.advance(100)
    await this.set.wait(this.set.at(1).promote())
    this.set.at(1).createSpace('s', { format: [{ name: 'id', type: 'unsigned' }] })
    await this.set.wait(this.set.at(1).committed())
    await this.set.clock.advance(100)
  }

  /** One more thing that happens; in words. */
  async step(): Promise<string> {
    const { set } = this
    const victim = 1 + this.#next(3)
    const dir = this.dirs[victim - 1]!
    switch (this.#next(9)) {
      case 0:
        await this.#crash(victim)
        return `${victim} crashed`
      case 1: {
        const bytes = this.#next(600)
        dir.powerLeft = bytes
        await this.#write(5)
        await this.#crash(victim)
        return `${victim} lost its power after ${bytes} bytes`
      }
      case 2:
        if (set.isolated.size > 0) {
          const [back] = [...set.isolated]
          await set.rejoin(back!)
          return `${back} came back`
        }
        set.isolated.add(victim)
        await set.clock.advance(this.#next(8_000))
        return `${victim} was cut off`
      case 3:
      case 4: {
        const { term } = set.at(victim)
        const outcome = await set.wait(
          set
            .at(victim)
            .promote({ timeout: 2_000 })
            .then(
              () => 'was promoted',
              (error: unknown) => `was not promoted: ${String(error)}`,
            ),
        )
        // One that was the master and does not know better stays as it is.
        if (set.at(victim).term > term) this.#expectAll(victim)
        return `${victim} ${outcome}`
      }
      case 5:
        dir.failure = DISK_FULL
        await this.#write(3)
        dir.failure = undefined
        return `the disk of ${victim} was full`
      case 6:
        await set.wait(set.at(victim).snapshot())
        return `${victim} took a snapshot`
      default:
        await this.#write(1 + this.#next(10))
        return 'writes'
    }
  }

  async end(): Promise<void> {
    const { set } = this
    for (const number of set.isolated) set.isolated.delete(number)
    await set.clock.advance(20_000)
    await set.wait(this.#promoteAtLast())
    await set.clock.advance(10_000)
    for (const number of [1, 2, 3]) {
      this.#expectAll(number)
      if (String(this.#idsOn(number)) !== String(this.#idsOn(1))) throw new Error(`${number} differs from 1`)
    }
  }

  async close(): Promise<void> {
    for (const dir of this.dirs) dir.gone()
    await this.set.close()
  }

  /** A term that was promised to somebody meanwhile is refused: the next one is higher. */
  async #promoteAtLast(): Promise<void> {
    for (let attempt = 1; ; attempt++) {
      try {
        await this.set.at(1).promote()
        return
      } catch (error) {
        if (attempt === 10) throw error
      }
    }
  }

  #idsOn(number: number): number[] {
    return this.set
      .at(number)
      .space<[number]>('s')
      .select()
      .map(([id]) => id)
  }

  #expectAll(number: number): void {
    const found = new Set(this.#idsOn(number))
    const lost = [...this.acknowledged].filter((id) => !found.has(id))
    if (lost.length > 0) throw new Error(`Instance ${number} does not have ${lost.join(', ')}`)
  }

  async #crash(number: number): Promise<void> {
    const left = this.dirs[number - 1]!.crashed()
    this.dirs[number - 1]!.gone()
    this.dirs[number - 1] = left
    await this.set.replace(number, left)
  }

  /** To everybody who believes to be the master: at times there are two. */
  async #write(count: number): Promise<void> {
    for (const number of [1, 2, 3]) {
      if (this.set.at(number).isReadonly) continue
      const client = this.set.connect(number)
      for (let i = 0; i < count; i++) {
        const id = ++this.#lastId
        client.insert('s', [id]).then(
          () => this.acknowledged.add(id),
          () => undefined, // refused, or unknown
        )
      }
    }
    await this.set.clock.advance(20 + this.#next(200))
  }
}

it.each([1, 2, 3, 4, 5, 6])('seed %i: no acknowledged write is lost', { timeout: 60_000 }, async (seed) => {
  const scene = new Scene(seeded(seed * 7_919))
  const story: string[] = []
  await scene.start()
  try {
    for (let step = 0; step < STEPS; step++) story.push(await scene.step())
    await scene.end()
    expect(scene.acknowledged.size).toBeGreaterThan(20)
  } catch (error) {
    throw new Error(`Seed ${seed}, after: ${story.join(', ')}`, { cause: error })
  } finally {
    await scene.close()
  }
})
