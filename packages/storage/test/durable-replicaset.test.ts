/* A replicaset whose instances keep their data: what a restart at a bad moment must not change. */
import { afterEach, describe, expect, it } from 'vitest'
import { askPromise, MemoryReplicaset } from './memory.js'
import { DISK_FULL, MemoryFiles } from './memory-files.js'

const SPACE = { format: [{ name: 'id', type: 'unsigned' }] } as const

let set: MemoryReplicaset
let dirs: MemoryFiles[]

afterEach(async () => {
  for (const dir of dirs) dir.gone()
  await set.close()
})

async function durable(
  options: { quorum?: number; quorumTimeoutMs?: number; snapshotRows?: number } = {},
): Promise<void> {
  dirs = [new MemoryFiles(), new MemoryFiles(), new MemoryFiles()]
  set = new MemoryReplicaset(3, { quorum: 2, ...options, dirs })
  await set.open()
  await set.clock.advance(100)
  await set.wait(set.at(1).promote())
  set.at(1).createSpace('s', SPACE)
  await set.wait(set.at(1).committed())
}

function idsOn(number: number): number[] {
  return set
    .at(number)
    .space<[number]>('s')
    .select()
    .map(([id]) => id)
}

/** The instance ends where it is, and another process starts over what is on its disk. */
async function crash(number: number): Promise<void> {
  const left = dirs[number - 1]!.crashed()
  dirs[number - 1]!.gone()
  dirs[number - 1] = left
  await set.replace(number, left)
}

describe('a durable replicaset', () => {
  it('has everything after all of its instances ended at once: data, term and who was the master', async () => {
    await durable()
    const client = set.connect(1)
    for (let id = 1; id <= 20; id++) await set.wait(client.insert('s', [id]))
    await set.wait(set.at(2).promote())
    await set.wait(set.connect(2).insert('s', [21]))
    await set.clock.advance(100)
    const { vclock, term } = set.at(2).info()
    for (const number of [1, 2, 3]) await crash(number)
    await set.clock.advance(3_000)
    for (const number of [1, 2, 3]) {
      expect(idsOn(number)).toHaveLength(21)
      expect(set.at(number).info()).toMatchObject({ term, vclock, leader: set.at(2).uuid, isReadonly: true })
    }
    await set.wait(set.at(3).promote())
    expect(set.at(3).term).toBe(term + 1)
    await set.wait(set.connect(3).insert('s', [22]))
  })

  it('catches up after a restart by the rows it lacks, not by a whole copy', async () => {
    await durable()
    const client = set.connect(1)
    for (let id = 1; id <= 10; id++) await set.wait(client.insert('s', [id]))
    await set.clock.advance(100)
    const before = dirs[2]!.namesOf('.snapshot')
    await crash(3)
    for (let id = 11; id <= 20; id++) await set.wait(client.insert('s', [id]))
    await set.clock.advance(3_000)
    expect(idsOn(3)).toHaveLength(20)
    // The copy of another instance would have been written as a snapshot.
    expect(dirs[2]!.namesOf('.snapshot')).toEqual(before)
  })

  it('never sends a row that the master itself could lose', async () => {
    await durable({ quorum: 1 })
    await set.clock.advance(100)
    dirs[0]!.powerLeft = 0
    const client = set.connect(1)
    await set.wait(client.ping())
    const answered: unknown[] = []
    void client.insert('s', [666]).then(
      () => answered.push('yes'),
      () => answered.push('no'),
    )
    await set.clock.advance(2_000)
    expect(answered).toEqual([])
    expect([idsOn(2), idsOn(3)]).toEqual([[], []])
    const before = set.at(1).info().vclock.get(1)!
    await crash(1)
    await set.clock.advance(3_000)
    await set.wait(set.at(1).promote())
    await set.wait(set.connect(1).insert('s', [7]))
    await set.clock.advance(100)
    // The number of the lost row was used again, for what everybody has now.
    expect(set.at(1).info().vclock.get(1)).toBeGreaterThanOrEqual(before)
    expect([idsOn(1), idsOn(2), idsOn(3)]).toEqual([[7], [7], [7]])
  })

  it('counts an instance for the quorum when the row is on its disk, not when it is in its memory', async () => {
    await durable({ quorum: 3, quorumTimeoutMs: 1_000 })
    const client = set.connect(1)
    await set.wait(client.insert('s', [1]))
    dirs[2]!.powerLeft = 0
    const failed = await set.wait(
      client.insert('s', [2]).then(
        () => undefined,
        (error: unknown) => error,
      ),
    )
    expect(failed).toMatchObject({ boxCode: 216, executed: 'unknown' })
    expect(idsOn(3)).toEqual([1, 2])
  })

  it('keeps a promise over a restart: no second candidate gets the same term', async () => {
    await durable()
    const { term } = set.at(1)
    const promised = term + 5
    await set.wait(askPromise(set.at(3), set.environment, [promised, 2]))
    await crash(3)
    await expect(set.wait(askPromise(set.at(3), set.environment, [promised, 1]))).rejects.toThrow(
      /was promised to instance 2/,
    )
    expect(set.at(3).term).toBe(term)
  })

  it('does not answer a promise that is not on disk', async () => {
    await durable()
    dirs[2]!.powerLeft = 0
    const { term } = set.at(1)
    const answers: unknown[] = []
    void askPromise(set.at(3), set.environment, [term + 1, 2]).then(
      () => answers.push('yes'),
      () => answers.push('no'),
    )
    await set.clock.advance(500)
    expect(answers).toEqual([])
  })

  it('gives up what a deposed master wrote alone, for good: also after its next restart', async () => {
    await durable({ quorumTimeoutMs: 500 })
    const client = set.connect(1)
    await set.wait(client.insert('s', [1]))
    await set.isolate(1)
    await set.wait(
      client.insert('s', [666]).then(
        () => undefined,
        () => undefined,
      ),
    )
    await set.wait(set.at(2).promote())
    await set.wait(set.connect(2).insert('s', [2]))
    await set.rejoin(1)
    await set.clock.advance(10_000)
    expect(idsOn(1)).toEqual([1, 2])
    await crash(1)
    await set.clock.advance(3_000)
    expect(idsOn(1)).toEqual([1, 2])
    expect(set.at(1).isReadonly).toBe(true)
    expect(set.at(1).term).toBe(set.at(2).term)
  })

  it('is consistent when an instance ends at any byte of taking over another one', async () => {
    await durable({ quorumTimeoutMs: 500 })
    const client = set.connect(1)
    for (let id = 1; id <= 30; id++) await set.wait(client.insert('s', [id]))
    await set.isolate(1)
    await set.wait(
      client.insert('s', [666]).then(
        () => undefined,
        () => undefined,
      ),
    )
    await set.wait(set.at(2).promote())
    await set.wait(set.connect(2).insert('s', [31]))
    const diverged = dirs[0]!.crashed()
    for (let power = 0; power < 2_400; power += 240) {
      const dir = diverged.crashed()
      dirs[0]!.gone()
      dirs[0] = dir
      await set.replace(1, dir)
      dir.powerLeft = power
      await set.rejoin(1)
      const answer = set.connect(2).insert('s', [1_000 + power])
      await set.wait(answer)
      await set.clock.advance(2_000)
      await crash(1)
      await set.clock.advance(4_000)
      expect(idsOn(1), `power for ${power} bytes`).toEqual(idsOn(2))
      await set.isolate(1)
    }
  })

  it('keeps what is its own when it takes over the rest from another instance', async () => {
    await durable({ quorumTimeoutMs: 500 })
    set.at(1).createSpace('mine', { ...SPACE, isLocal: true })
    await set.wait(set.at(1).committed())
    await set.clock.advance(100)
    set.at(1).space<[number]>('mine').insert([1])
    set.at(2).space<[number]>('mine').insert([2])
    const kept = set.at(1).space<[number]>('mine')
    await set.isolate(1)
    const alone = set
      .connect(1)
      .insert('s', [666])
      .catch(() => undefined)
    await set.wait(alone)
    await set.wait(set.at(2).promote())
    await set.wait(set.connect(2).insert('s', [2]))
    await set.rejoin(1)
    await set.clock.advance(10_000)
    expect(idsOn(1)).toEqual([2])
    expect([kept.select(), set.at(2).space('mine').select()]).toEqual([[[1]], [[2]]])
    await crash(1)
    expect(set.at(1).space('mine').select()).toEqual([[1]])
  })

  it('joins over the data of an earlier life that nobody shares', async () => {
    await durable()
    const client = set.connect(1)
    await set.wait(client.insert('s', [1]))
    await set.clock.advance(100)
    const fresh = new MemoryFiles()
    dirs[2] = fresh
    await set.replace(3, fresh)
    await set.clock.advance(3_000)
    expect(idsOn(3)).toEqual([1])
    await crash(3)
    expect(idsOn(3)).toEqual([1])
  })

  it('stays up when the disk of a replica is full, and the replica catches up when it is not', async () => {
    await durable()
    const client = set.connect(1)
    dirs[2]!.failure = DISK_FULL
    for (let id = 1; id <= 20; id++) await set.wait(client.insert('s', [id]))
    await set.clock.advance(5_000)
    expect(set.at(3).info().journal?.trouble).toMatch(/the disk is full/)
    dirs[2]!.failure = undefined
    await set.clock.advance(10_000)
    expect(idsOn(3)).toHaveLength(20)
    await crash(3)
    expect(idsOn(3)).toHaveLength(20)
  })
})
