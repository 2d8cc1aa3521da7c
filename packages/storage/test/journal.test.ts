import { BoxError, Double, encodeValue } from '@orbweaver/iproto'
import { describe, expect, it } from 'vitest'
import { feedCrc32c, finishCrc32c, CRC_START } from '../src/journal/checksum.js'
import { blockHeader, scanBlocks } from '../src/journal/block.js'
import type { Block } from '../src/journal/block.js'
import { dataFileName, dataFiles } from '../src/journal/file-name.js'
import { readJournal } from '../src/journal/reader.js'
import { decodeRecords } from '../src/journal/record.js'
import { JournalError } from '../src/index.js'
import type { StorageOptions } from '../src/index.js'
import { startAlone } from './memory.js'
import type { Alone } from './memory.js'
import { DISK_FULL, MemoryFiles } from './memory-files.js'

const SPACE = {
  format: [
    { name: 'id', type: 'unsigned' },
    { name: 'text', type: 'string' },
  ],
  indexes: [
    { name: 'pk', parts: ['id'] },
    { name: 'text', parts: ['text', 'id'] },
  ],
  ifNotExists: true,
} as const

const UUID = 'aaaaaaaa-aaaa-4aaa-8aaa-000000000001'

async function startDurable(files: MemoryFiles, options: Partial<StorageOptions> = {}): Promise<Alone> {
  const alone = startAlone({ durability: 'full', dir: files, uuid: UUID, ...options }, { isStarted: false })
  await alone.wait(alone.storage.open())
  alone.storage.start()
  return alone
}

function idsOf({ storage }: Alone, space = 's'): number[] {
  return storage
    .space<[number, string]>(space)
    .select()
    .map(([id]) => id)
}

async function codeOf(work: Promise<unknown>): Promise<{ code: unknown; executed: unknown; message: string }> {
  try {
    await work
  } catch (error) {
    if (!(error instanceof BoxError)) throw error
    return { code: error.boxCode, executed: error.executed, message: error.message }
  }
  return { code: 0, executed: undefined, message: '' }
}

/** A journal of single writes, and its bytes: which ids are acknowledged once so many bytes are there. */
async function writtenOneByOne(count: number): Promise<{ files: MemoryFiles; name: string; ends: number[] }> {
  const files = new MemoryFiles()
  const alone = await startDurable(files)
  alone.storage.createSpace('s', SPACE)
  await alone.wait(alone.storage.committed())
  const client = alone.connect()
  for (let id = 1; id <= count; id++) await alone.wait(client.insert('s', [id, `row ${id}`.padEnd(id % 7, '!')]))
  const left = files.crashed()
  const [name] = left.namesOf('.journal')
  // The zeros behind the last block are cut, but for a few.
  const ends: number[] = []
  let end = 0
  for (const { payload } of scanBlocks(left.files.get(name!)!).blocks) ends.push((end += payload.length + 24))
  left.files.set(name!, left.files.get(name!)!.subarray(0, end + 64))
  return { files: left, name: name!, ends }
}

async function readIds(files: MemoryFiles): Promise<number[]> {
  const blocks: Block[] = []
  await readJournal(files, dataFiles(await files.list()), 0, undefined, (block) => blocks.push(block))
  const ids: number[] = []
  for (const block of blocks)
    for (const { frame } of decodeRecords(block.payload))
      if (frame.is === 'row' && frame.row.kind === 'replace' && frame.row.spaceId === 512) ids.push(frame.row.tuple[1]!)
  return ids
}

describe('a torn journal', () => {
  it('gives exactly the rows of the whole blocks, wherever the file is cut', async () => {
    const { files, name, ends } = await writtenOneByOne(20)
    const bytes = files.files.get(name)!
    const used = ends.at(-1)!
    let checked = 0
    for (let cut = ends[0]!; cut <= used; cut++) {
      const whole = ends.filter((end) => end <= cut).length - 2 // the head and the definition of the space
      const want = Array.from({ length: Math.max(0, whole) }, (_, i) => i + 1)
      // The file ends there, or what follows never reached the disk and is still zeros.
      const short = new MemoryFiles(new Map([[name, bytes.subarray(0, cut)]]))
      const zeros = Buffer.alloc(used + 64)
      bytes.copy(zeros, 0, 0, cut)
      const zeroed = new MemoryFiles(new Map([[name, zeros]]))
      expect(await readIds(short)).toEqual(want)
      expect(await readIds(zeroed)).toEqual(want)
      checked++
    }
    expect(checked).toBe(used - ends[0]! + 1)
  })

  it('gives a prefix of whole rows or refuses, whichever byte is wrong', async () => {
    const { files, name, ends } = await writtenOneByOne(6)
    const bytes = files.files.get(name)!
    const lastBlock = ends.at(-2)!
    for (let at = ends[0]!; at < ends.at(-1)!; at++) {
      const wrong = Buffer.from(bytes)
      wrong[at] = wrong[at]! ^ 0x41
      const read = readIds(new MemoryFiles(new Map([[name, wrong]])))
      if (at >= lastBlock) expect(await read).toEqual([1, 2, 3, 4, 5])
      else await expect(read).rejects.toMatchObject({ fault: 'damaged' })
    }
  })

  it('goes on behind the cut, and what was cut stays gone', async () => {
    const { files, name, ends } = await writtenOneByOne(5)
    files.files.set(name, files.files.get(name)!.subarray(0, ends.at(-1)! - 3))
    const again = await startDurable(files)
    expect(idsOf(again)).toEqual([1, 2, 3, 4])
    await again.wait(again.connect().insert('s', [9, 'nine']))
    const third = await startDurable(files.crashed())
    expect(idsOf(third)).toEqual([1, 2, 3, 4, 9])
  })

  it('is refused when a file is missing in the middle', async () => {
    const files = new MemoryFiles()
    for (let start = 0; start < 3; start++) {
      const alone = await startDurable(files)
      alone.storage.createSpace('s', SPACE)
      await alone.wait(alone.connect().replace('s', [start, 'x']))
      await alone.wait(alone.storage.close({ graceMs: 0 }))
    }
    const [, middle] = files.namesOf('.journal')
    files.files.delete(middle!)
    await expect(startDurable(files)).rejects.toThrow(/Records \d+ to \d+ are missing/)
  })
})

it('a journal of another release is refused by its name, not called damaged', async () => {
  const files = new MemoryFiles()
  const payload = encodeValue(['orbweaver/1', UUID, 1])
  files.files.set(dataFileName('journal', 1), Buffer.concat([blockHeader(1, 0, [payload]), payload]))
  const refused = startDurable(files)
  await expect(refused).rejects.toMatchObject({ code: 'ORB_JOURNAL', fault: 'version' })
  await expect(refused).rejects.toThrow(/was written in the format 'orbweaver\/1', this release reads 'orbweaver\/\d+'/)
})

describe('a durable storage', () => {
  it('has after a crash what it acknowledged, its position, and the contents of local spaces', async () => {
    const files = new MemoryFiles()
    const first = await startDurable(files)
    first.storage.createSpace('s', SPACE)
    first.storage.createSpace('mine', { ...SPACE, isLocal: true })
    const client = first.connect()
    for (let id = 1; id <= 50; id++) await first.wait(client.insert('s', [id, `t${id}`]))
    await first.wait(client.insert('mine', [7, 'local']))
    await first.wait(client.delete('s', [13]))
    await first.wait(client.upsert('s', [14, 'new'], [['=', 1, 'changed']]))
    const { vclock } = first.storage.info()

    const second = await startDurable(files.crashed())
    expect(second.storage.info().vclock).toEqual(vclock)
    expect(idsOf(second)).toHaveLength(49)
    expect(second.storage.space('s').get([14])).toEqual([14, 'changed'])
    expect(second.storage.space('s').select(['t50'], { index: 'text' })).toEqual([[50, 't50']])
    expect(second.storage.space('mine').select()).toEqual([[7, 'local']])
    expect(second.storage.isReadonly).toBe(false)
  })

  it('does not answer before the write is on disk', async () => {
    const files = new MemoryFiles()
    const alone = await startDurable(files)
    alone.storage.createSpace('s', SPACE)
    const client = alone.connect()
    await alone.wait(client.ping())
    files.powerLeft = 0
    const answered: string[] = []
    void client.insert('s', [1, 'x']).then(() => answered.push('insert'))
    // A read must not show it either: after a crash it was never there.
    void client.select('s', [1]).then(() => answered.push('select'))
    await alone.clock.advance(1_000)
    expect(answered).toEqual([])
    expect(idsOf(await startDurable(files.crashed()))).toEqual([])
  })

  it('writes what came together at once', async () => {
    const files = new MemoryFiles()
    const alone = await startDurable(files)
    alone.storage.createSpace('s', SPACE)
    const client = alone.connect()
    await alone.wait(client.ping())
    const before = files.writes.length
    await alone.wait(Promise.all(Array.from({ length: 100 }, (_, i) => client.insert('s', [i, `t${i}`]))))
    expect(files.writes.length - before).toBeLessThanOrEqual(2)
    expect(alone.storage.info().journal).toMatchObject({ sequence: 101, durable: 101 })
  })

  it('removes what was removed, whatever form its key has', async () => {
    const files = new MemoryFiles()
    const first = await startDurable(files)
    const keys = [new Double(5), new Double(1e300), 2.5]
    first.storage.createSpace('floats', { format: [{ name: 'id', type: 'double' }] })
    first.storage.createSpace('pairs', {
      format: [
        { name: 'a', type: 'number' },
        { name: 'b', type: 'string' },
      ],
      indexes: [{ name: 'pk', parts: ['a', 'b'] }],
    })
    for (const key of keys) {
      first.storage.space('floats').insert([key])
      first.storage.space('pairs').insert([key, 'x'])
    }
    for (const key of keys) {
      expect(first.storage.space('floats').delete([key])).toBeDefined()
      expect(first.storage.space('pairs').delete([key, 'x'])).toBeDefined()
    }
    await first.wait(first.storage.committed())
    const second = await startDurable(files.crashed())
    expect(second.storage.space('floats').count()).toBe(0)
    expect(second.storage.space('pairs').count()).toBe(0)
  })

  it('gives the uuid of its data to an instance that names none, and refuses one that names another', async () => {
    const files = new MemoryFiles()
    const first = await startDurable(files)
    await first.wait(first.storage.close({ graceMs: 0 }))
    const anonymous = startAlone({ durability: 'full', dir: files }, { isStarted: false })
    await anonymous.wait(anonymous.storage.open())
    expect(anonymous.storage.uuid).toBe(UUID)
    await anonymous.wait(anonymous.storage.close({ graceMs: 0 }))
    await expect(startDurable(files, { uuid: 'bbbbbbbb-aaaa-4aaa-8aaa-000000000001' })).rejects.toMatchObject({
      fault: 'foreign',
    })
  })

  it('refuses a directory that is in use', async () => {
    const files = new MemoryFiles()
    await startDurable(files)
    await expect(startDurable(files)).rejects.toBeInstanceOf(JournalError)
  })

  it('takes nothing before it is open', () => {
    const alone = startAlone({ durability: 'full', dir: new MemoryFiles() }, { isStarted: false })
    expect(() => alone.storage.createSpace('s', SPACE)).toThrow(expect.objectContaining({ boxCode: 116 }))
    expect(() => alone.storage.start()).toThrow(/open/)
  })

  it('names every option that cannot be right', () => {
    expect(() => startAlone({ durability: 'full', snapshotBytes: 0, snapshotRows: 1.5 })).toThrow(
      /^(?=[\s\S]*dir)(?=[\s\S]*snapshotBytes)(?=[\s\S]*snapshotRows)/,
    )
  })
})

describe('a full disk', () => {
  it('is told to whoever waits, lets nothing more in, and is forgotten when there is room', async () => {
    const files = new MemoryFiles()
    const alone = await startDurable(files)
    alone.storage.createSpace('s', SPACE)
    const client = alone.connect()
    await alone.wait(client.insert('s', [1, 'x']))
    files.failure = DISK_FULL
    expect(await alone.wait(codeOf(client.insert('s', [2, 'y'])))).toEqual({
      code: 216,
      executed: 'unknown',
      message: 'The write is not on disk: the disk is full (ENOSPC: no space left on device, write)',
    })
    expect(await alone.wait(codeOf(client.insert('s', [3, 'z'])))).toMatchObject({ code: 40 })
    expect(alone.storage.info().journal?.trouble).toMatch(/the disk is full/)
    files.failure = undefined
    await alone.clock.advance(2_000)
    expect(alone.storage.info().journal?.trouble).toBeUndefined()
    await alone.wait(client.insert('s', [4, 'w']))
    expect(idsOf(await startDurable(files.crashed()))).toEqual([1, 2, 4])
  })

  it('stops a storage from starting, in plain words', async () => {
    const files = new MemoryFiles()
    files.failure = Object.assign(new Error('EROFS: read-only file system, open'), { code: 'EROFS' })
    await expect(startDurable(files)).rejects.toThrow(/memory cannot be used: the disk is read-only/)
  })

  it('puts a snapshot off, without harm to the journal', async () => {
    const files = new MemoryFiles()
    const alone = await startDurable(files, { snapshotRows: 1_000_000 })
    alone.storage.createSpace('s', SPACE)
    await alone.wait(alone.connect().insert('s', [1, 'x']))
    files.failure = DISK_FULL
    await alone.wait(alone.storage.snapshot())
    expect(alone.storage.info().journal?.trouble).toMatch(/no snapshot can be taken: the disk is full/)
    files.failure = undefined
    await alone.clock.advance(2_000)
    expect(alone.storage.info().journal).toMatchObject({ trouble: undefined, snapshot: 2 })
  })
})

describe('snapshots', () => {
  it('bound the journal, while writing goes on', async () => {
    const files = new MemoryFiles()
    const alone = await startDurable(files, { snapshotRows: 100 })
    alone.storage.createSpace('s', SPACE)
    const client = alone.connect()
    for (let round = 0; round < 20; round++) {
      await alone.wait(Promise.all(Array.from({ length: 50 }, (_, i) => client.replace('s', [i, `round ${round}`]))))
    }
    await alone.clock.advance(10)
    expect(files.namesOf('.snapshot')).toHaveLength(1)
    expect(alone.storage.info().journal!.snapshot).toBeGreaterThan(800)
    const again = await startDurable(files.crashed())
    expect(idsOf(again)).toHaveLength(50)
    expect(again.storage.space('s').get([7])).toEqual([7, 'round 19'])
    expect(again.storage.info().vclock).toEqual(alone.storage.info().vclock)
    expect(files.crashed().namesOf('.journal').length).toBeLessThanOrEqual(2)
  })

  it('hold one moment, whatever is written while they are taken', { timeout: 60_000 }, async () => {
    const files = new MemoryFiles()
    const alone = await startDurable(files)
    alone.storage.createSpace('s', SPACE)
    const space = alone.storage.space<[number, string]>('s')
    for (let id = 0; id < 20_000; id++) space.insert([id, `before ${id}`])
    await alone.wait(alone.storage.committed())
    const done = alone.storage.snapshot()
    for (let id = 0; id < 20_000; id += 2) space.delete([id])
    for (let id = 1; id < 20_000; id += 2) space.replace([id, `behind ${id}`])
    await alone.wait(done)
    await alone.wait(alone.storage.committed())
    // Only the snapshot, as if the journal behind it had not been written.
    const only = files.crashed()
    for (const name of only.namesOf('.journal')) only.files.delete(name)
    const before = await startDurable(only)
    expect(before.storage.space('s').count()).toBe(20_000)
    expect(before.storage.space('s').get([4])).toEqual([4, 'before 4'])
    expect(before.storage.space('s').select(['before 5'], { index: 'text' })).toEqual([[5, 'before 5']])
    const whole = await startDurable(files.crashed())
    expect(whole.storage.space('s').count()).toBe(10_000)
    expect(whole.storage.space('s').get([5])).toEqual([5, 'behind 5'])
  })

  it('are refused when damaged', async () => {
    const files = new MemoryFiles()
    const alone = await startDurable(files)
    alone.storage.createSpace('s', SPACE)
    await alone.wait(alone.storage.snapshot())
    const [name] = files.namesOf('.snapshot')
    const left = files.crashed()
    const bytes = left.files.get(name!)!
    bytes[bytes.length >> 1]! ^= 1
    await expect(startDurable(left)).rejects.toMatchObject({ fault: 'damaged' })
  })

  it('leave nothing half-done behind: an unfinished one is removed at the next start', async () => {
    const files = new MemoryFiles()
    const alone = await startDurable(files)
    alone.storage.createSpace('s', SPACE)
    await alone.wait(alone.connect().insert('s', [1, 'x']))
    files.powerLeft = 40
    void alone.storage.snapshot()
    await alone.clock.advance(100)
    const left = files.crashed()
    expect(left.namesOf('.tmp')).toHaveLength(1)
    const again = await startDurable(left)
    expect(left.namesOf('.tmp')).toEqual([])
    expect(idsOf(again)).toEqual([1])
  })
})

describe('a power cut', () => {
  it('at any byte of any write keeps every acknowledged write', async () => {
    for (let power = 0; power < 3_000; power += 61) {
      const files = new MemoryFiles()
      const alone = await startDurable(files, { snapshotRows: 7 })
      alone.storage.createSpace('s', SPACE)
      await alone.wait(alone.storage.committed())
      files.powerLeft = power
      const client = alone.connect()
      const acknowledged: number[] = []
      for (let id = 1; id <= 30; id++) void client.insert('s', [id, 'x']).then(() => acknowledged.push(id))
      await alone.clock.advance(50)
      for (let id = 31; id <= 60; id++) void client.insert('s', [id, 'x']).then(() => acknowledged.push(id))
      await alone.clock.advance(50)
      const again = await startDurable(files.crashed())
      const found = idsOf(again)
      expect(found.slice(0, acknowledged.length), `power for ${power} bytes`).toEqual(acknowledged)
      expect(found).toEqual(Array.from({ length: found.length }, (_, i) => i + 1))
    }
  })
})

describe('data of an earlier run', () => {
  it('may be emptied, dropped and filled again, before and after another start', async () => {
    const files = new MemoryFiles()
    const rows = 3_000
    const fill = (alone: Alone): void => {
      const space = alone.storage.space<[number, string]>('s')
      for (let id = 0; id < rows; id++) space.replace([id, `t${id % 10}`])
    }
    const first = await startDurable(files, { snapshotRows: 5_000 })
    first.storage.createSpace('s', SPACE)
    fill(first)
    await first.wait(first.storage.close({ graceMs: 0 }))

    const second = await startDurable(files, { snapshotRows: 5_000 })
    const space = second.storage.space<[number, string]>('s')
    for (const [id] of space.select()) space.delete([id])
    expect(space.count()).toBe(0)
    fill(second)
    second.storage.dropSpace('s')
    second.storage.createSpace('s', SPACE)
    fill(second)
    await second.wait(second.storage.close({ graceMs: 0 }))

    const third = await startDurable(files)
    expect(third.storage.space('s').count()).toBe(rows)
    expect(third.storage.space('s').select(['t3'], { index: 'text' })).toHaveLength(rows / 10)
    third.storage.dropSpace('s')
    await third.wait(third.storage.committed())
    const fourth = await startDurable(files.crashed())
    expect(() => fourth.storage.space('s')).toThrow(expect.objectContaining({ boxCode: 36 }))
  })

  it('of a space with one row or none is healthy, and its files stay small', async () => {
    const files = new MemoryFiles()
    const first = await startDurable(files, { snapshotRows: 200 })
    first.storage.createSpace('s', SPACE)
    const client = first.connect()
    for (let i = 0; i < 300; i++) {
      await first.wait(client.insert('s', [1, 'x']))
      await first.wait(client.delete('s', [1]))
    }
    await first.wait(
      Promise.all(
        Array.from({ length: 1_000 }, (_, i) => (i % 2 === 0 ? client.insert('s', [1, 'x']) : client.delete('s', [1]))),
      ),
    )
    await first.clock.advance(10)
    expect(first.storage.space('s').count()).toBe(0)
    expect(files.bytesOf('.snapshot')).toBeLessThan(10_000)
    expect(files.namesOf('.journal').length).toBeLessThanOrEqual(2)
    const second = await startDurable(files.crashed())
    expect(second.storage.space('s').count()).toBe(0)
    await second.wait(second.connect().insert('s', [1, 'again']))
    expect(second.storage.space('s').select(['again'], { index: 'text' })).toEqual([[1, 'again']])
  })
})

describe('the checksum', () => {
  it('is CRC-32C', () => {
    const of = (text: string): number => finishCrc32c(feedCrc32c(CRC_START, Buffer.from(text)))
    // RFC 3720, B.4, and the check value of the algorithm.
    expect(of('123456789')).toBe(0xe3069283)
    expect(finishCrc32c(feedCrc32c(CRC_START, Buffer.alloc(32)))).toBe(0x8a9136aa)
    expect(finishCrc32c(feedCrc32c(CRC_START, Buffer.alloc(32, 0xff)))).toBe(0x62a8ab43)
    const all = Buffer.from(Array.from({ length: 255 }, (_, i) => i))
    for (let cut = 0; cut <= all.length; cut += 5)
      expect(feedCrc32c(feedCrc32c(CRC_START, all, 0, cut), all, cut)).toBe(feedCrc32c(CRC_START, all))
  })
})
