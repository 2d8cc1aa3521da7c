/* Durability with real processes and a real disk: what was acknowledged is there after kill -9, at whatever moment it comes. */
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect } from '@orbweaver/connection'
import type { Connection } from '@orbweaver/connection'
import { createStorage, JournalError } from '@orbweaver/storage'
import type { Storage } from '@orbweaver/storage'
import { afterEach, describe, expect, it } from 'vitest'
import { startCluster } from '../../src/index.js'
import type { Cluster } from '../../src/index.js'

let cluster: Cluster | undefined
let directory: string | undefined
const storages: Storage[] = []
const connections: Connection[] = []

afterEach(async () => {
  for (const connection of connections.splice(0)) connection.destroy()
  for (const storage of storages.splice(0)) await storage.close({ graceMs: 0 })
  await cluster?.close()
  cluster = undefined
  if (directory !== undefined) await rm(directory, { recursive: true })
  directory = undefined
})

async function clientOf(name: string): Promise<Connection> {
  const { user, password } = cluster!.config
  const connection = await connect({ uri: cluster!.instance(name).uri, user, password, reconnect: false })
  connections.push(connection)
  return connection
}

/** A space with a secondary index, defined as any client can: by its tuples. */
async function defineSpace(client: Connection): Promise<void> {
  const format = [
    { name: 'id', type: 'unsigned' },
    { name: 'text', type: 'string' },
  ]
  await client.insert('_space', [512, 1, 's', 'memtx', 0, {}, format])
  await client.insert('_index', [512, 0, 'pk', 'tree', { unique: true }, [[0, 'unsigned']]])
  await client.insert('_index', [512, 1, 'text', 'tree', { unique: false }, [[1, 'string']]])
}

/** Small, seeded: the same moments every time. */
function seeded(seed: number): () => number {
  let state = seed
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return state / 0x1_0000_0000
  }
}

/** Eight clients' worth of inserts until the connection breaks; ids in the order of their acknowledgement. */
async function writeUntilCut(client: Connection, nextId: () => number, acknowledged: Set<number>): Promise<void> {
  await Promise.all(
    Array.from({ length: 8 }, async () => {
      for (;;) {
        const id = nextId()
        try {
          await client.insert(512, [id, `row ${id % 100}`])
        } catch {
          return // cut: it may be there or not
        }
        acknowledged.add(id)
      }
    }),
  )
}

describe('an instance that is killed', () => {
  it('has every acknowledged write when it starts again, round after round', async () => {
    const seed = 20_261_130
    const random = seeded(seed)
    cluster = await startCluster({ replicasets: 1, instances: 1, vshard: false, durability: 'full' })
    await defineSpace(await clientOf('a1'))
    const acknowledged = new Set<number>()
    let last = 0
    for (let round = 0; round < 6; round++) {
      const writing = writeUntilCut(await clientOf('a1'), () => ++last, acknowledged)
      const enough = acknowledged.size + 1 + Math.floor(random() * 400)
      await expect.poll(() => acknowledged.size, { interval: 1, timeout: 20_000 }).toBeGreaterThan(enough)
      await cluster.instance('a1').kill()
      await writing
      await cluster.instance('a1').restart()
      const rows = await (await clientOf('a1')).select<[number, string]>(512, [])
      const found = new Set(rows.map(([id]) => id))
      const lost = [...acknowledged].filter((id) => !found.has(id))
      expect(lost, `seed ${seed}, round ${round}`).toEqual([])
      for (const id of found) expect(id).toBeLessThanOrEqual(last)
      const ofOneText = await (await clientOf('a1')).select(512, ['row 7'], { index: 1 })
      expect(ofOneText).toHaveLength([...found].filter((id) => id % 100 === 7).length)
    }
    expect(acknowledged.size).toBeGreaterThan(50)
  })

  it('together with all others of its replicaset loses nothing that a quorum had', async () => {
    cluster = await startCluster({ replicasets: 1, instances: 3, vshard: false, durability: 'full' })
    await defineSpace(await clientOf('a1'))
    const acknowledged = new Set<number>()
    let last = 0
    const writing = writeUntilCut(await clientOf('a1'), () => ++last, acknowledged)
    await expect.poll(() => acknowledged.size, { interval: 1, timeout: 20_000 }).toBeGreaterThan(200)
    await Promise.all(cluster.instances.map((instance) => instance.kill()))
    await writing
    await Promise.all(cluster.instances.map((instance) => instance.restart()))
    await cluster.instance('a3').promote()
    const rows = await (await clientOf('a3')).select<[number, string]>(512, [])
    const found = new Set(rows.map(([id]) => id))
    expect([...acknowledged].filter((id) => !found.has(id))).toEqual([])
    await (await clientOf('a3')).insert(512, [last + 1, 'behind'])
  })
})

describe('a data directory', () => {
  async function open(options: { dir: string; uuid?: string; snapshotRows?: number }): Promise<Storage> {
    const storage = createStorage({ name: 'one', durability: 'full', ...options })
    storages.push(storage)
    await storage.open()
    storage.start()
    return storage
  }

  async function makeDirectory(): Promise<string> {
    directory = await mkdtemp(join(tmpdir(), 'orbweaver-durable-'))
    return join(directory, 'made', 'by', 'itself')
  }

  const SPACE = { format: [{ name: 'id', type: 'unsigned' }], ifNotExists: true } as const

  it('is one instance’s at a time, and free again without anybody’s help when that one is gone', async () => {
    const dir = await makeDirectory()
    const first = await open({ dir })
    await expect(open({ dir })).rejects.toThrow(
      new RegExp(`is in use by another instance \\(process ${process.pid}\\): stop that one`),
    )
    await first.close({ graceMs: 0 })
    const second = await open({ dir })
    await second.close({ graceMs: 0 })
    // What kill -9 leaves: the file of a process that is gone, or of another one that has its number now.
    for (const holder of [
      { pid: 2 ** 22 + 1, began: 'x', token: 'a' },
      { pid: process.pid, began: 'another boot/1', token: 'b' },
    ]) {
      await writeFile(join(dir, 'lock'), JSON.stringify(holder))
      const next = await open({ dir })
      await next.close({ graceMs: 0 })
    }
    await writeFile(join(dir, 'lock'), '{"pid"')
    await open({ dir })
  })

  it('is taken by one of several that start at once', async () => {
    const dir = await makeDirectory()
    const results = await Promise.allSettled(Array.from({ length: 5 }, () => open({ dir })))
    expect(results.filter((result) => result.status === 'fulfilled')).toHaveLength(1)
    for (const result of results)
      if (result.status === 'rejected') expect(result.reason).toMatchObject({ code: 'ORB_JOURNAL', fault: 'locked' })
  })

  it('that cannot be one is refused in plain words', async () => {
    const dir = await makeDirectory()
    const first = await open({ dir })
    await first.close({ graceMs: 0 })
    await expect(open({ dir: join(dir, 'notes', 'x') })).resolves.toBeDefined()
    await writeFile(join(dir, 'file'), '')
    const refused = await open({ dir: join(dir, 'file', 'x') }).then(
      () => undefined,
      (error: unknown) => error,
    )
    expect(refused).toBeInstanceOf(JournalError)
    expect(String(refused)).toMatch(/cannot be used: a part of the path is not a directory/)
  })

  it('survives emptying and refilling 30,000 rows, again and again, with snapshots on the way', async () => {
    const dir = await makeDirectory()
    for (let run = 0; run < 3; run++) {
      const storage = await open({ dir, snapshotRows: 20_000 })
      storage.createSpace('s', SPACE)
      expect(storage.space('s').count()).toBe(run === 0 ? 0 : 30_000)
      if (run === 1) storage.dropSpace('s')
      if (run === 2) storage.truncateSpace('s')
      storage.createSpace('s', SPACE)
      const space = storage.space<[number]>('s')
      expect(space.count()).toBe(0)
      for (let id = 0; id < 30_000; id++) space.insert([id])
      await storage.committed()
      await expect.poll(() => storage.info().journal!.snapshot, { timeout: 10_000 }).toBeGreaterThan(run * 30_000)
      await storage.close({ graceMs: 0 })
    }
    const names = await readdir(dir)
    expect(names.filter((name) => name.endsWith('.snapshot'))).toHaveLength(1)
    const last = await open({ dir })
    expect(last.space('s').count()).toBe(30_000)
  })

  it('keeps every whole write when its last file is cut short', async () => {
    const dir = await makeDirectory()
    const first = await open({ dir })
    first.createSpace('s', SPACE)
    for (let id = 0; id < 20; id++) {
      first.space<[number]>('s').insert([id])
      await first.committed()
    }
    await first.close({ graceMs: 0 })
    const name = (await readdir(dir)).find((file) => file.endsWith('.journal'))!
    const bytes = await readFile(join(dir, name))
    await writeFile(join(dir, name), bytes.subarray(0, bytes.length - 5))
    const again = await open({ dir })
    expect(again.space('s').count()).toBe(19)
  })
})
