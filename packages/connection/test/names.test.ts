import { Key, RequestType } from '@orbweaver/iproto'
import { describe, expect, it } from 'vitest'
import { NoSuchIndexError, NoSuchSpaceError } from '../src/index.js'
import type { PeerRequest, ScriptedPeer } from '../src/testing/index.js'
import { connected, dialling, failure, outcome, type Rig, seeded } from './rig.js'

const VSPACE = 281
const VINDEX = 289

/** A server with a schema: it answers the system views, checks versions, and knows which ids exist. */
class SchemaServer {
  refreshes = 0
  readonly #peer: ScriptedPeer
  #spaces = new Map<string, number>()
  #indexes = new Map<string, ReadonlyMap<string, number>>()
  #lastId = 511
  /** Set: the system views answer with it. */
  viewError: number | undefined
  /** Run before each answer of a view. */
  beforeView: (() => void) | undefined

  constructor(peer: ScriptedPeer) {
    this.#peer = peer
    peer.handle(RequestType.select, (request) => this.#select(request))
    for (const type of [RequestType.insert, RequestType.delete, RequestType.replace])
      peer.handle(type, (request) => this.#touch(request))
    peer.handle(RequestType.call, (request) => {
      const [name] = request.body.array(Key.tuple) ?? []
      this.create(String(name))
      request.reply([])
    })
  }

  create(name: string, indexes: Readonly<Record<string, number>> = { pk: 0 }): number {
    this.#lastId += 1
    this.#spaces.set(name, this.#lastId)
    this.#indexes.set(name, new Map(Object.entries(indexes)))
    this.#peer.schemaVersion += 1
    return this.#lastId
  }

  addIndex(space: string, name: string, id: number): void {
    this.#indexes.set(space, new Map([...(this.#indexes.get(space) ?? []), [name, id]]))
    this.#peer.schemaVersion += 1
  }

  rename(from: string, to: string): void {
    this.#spaces.set(to, this.#spaces.get(from) ?? 0)
    this.#indexes.set(to, this.#indexes.get(from) ?? new Map())
    this.drop(from)
  }

  drop(name: string): void {
    this.#spaces.delete(name)
    this.#indexes.delete(name)
    this.#peer.schemaVersion += 1
  }

  #select(request: PeerRequest): void {
    const space = request.body.uint(Key.spaceId)
    if (space !== VSPACE && space !== VINDEX) return this.#touch(request)
    if (space === VSPACE) this.refreshes += 1
    this.beforeView?.()
    if (this.viewError !== undefined)
      return request.error(this.viewError, "Read access to space '_vspace' is denied for user 'guest'")
    if (space === VSPACE) return request.reply([...this.#spaces].map(([name, id]) => [id, 1, name, 'memtx', 0, {}, []]))
    request.reply(
      [...this.#indexes].flatMap(([name, indexes]) =>
        [...indexes].map(([index, id]) => [
          this.#spaces.get(name),
          id,
          index,
          'tree',
          { unique: true },
          [[0, 'unsigned']],
        ]),
      ),
    )
  }

  #touch(request: PeerRequest): void {
    if (request.schemaVersion !== undefined && request.schemaVersion !== this.#peer.schemaVersion) {
      return request.error(109, 'Wrong schema version')
    }
    const id = request.body.uint(Key.spaceId)
    const name = [...this.#spaces].find(([, spaceId]) => spaceId === id)?.[0]
    if (name === undefined) return request.error(36, `Space '${String(id)}' does not exist`)
    request.reply([[name, request.body.uint(Key.indexId) ?? 0, request.body.value(Key.tuple) ?? null]])
  }
}

async function served(options: Parameters<typeof connected>[1] = {}): Promise<Rig & { server: SchemaServer }> {
  const rig = await connected({ version: '2.6.0' }, options)
  return { ...rig, server: new SchemaServer(rig.peer) }
}

describe('Names on a server that resolves them itself', () => {
  it('are sent as names, without any schema', async () => {
    const { clock, peer, connection } = await connected({ version: '3.2.1' })
    peer.handle(RequestType.select, (request) =>
      request.reply([[request.body.text(Key.spaceName), request.body.text(Key.indexName)]]),
    )
    expect(await clock.run(connection.select('users', [1], { index: 'by_name' }))).toEqual([['users', 'by_name']])
    expect(peer.requests).toHaveLength(1)
    expect(peer.lastRequest.body.has(Key.spaceId)).toBe(false)
  })

  it.each([
    [36, NoSuchSpaceError],
    [35, NoSuchIndexError],
    [148, NoSuchIndexError],
  ])('that it does not have (error %i) fail once, by name', async (code, type) => {
    const { clock, peer, connection } = await connected({ version: '3.2.1' })
    peer.handle(RequestType.select, (request) => request.error(code, 'no such thing'))
    const error = await clock.run(failure(connection.select('ghost', [], { index: 'nope' })))
    expect(error).toBeInstanceOf(type)
    expect(error).toMatchObject({ executed: 'no', cause: { boxCode: code } })
    expect(peer.requests).toHaveLength(1)
  })
})

describe('Names on a server that does not', () => {
  it('are looked up once and then sent as ids', async () => {
    const { clock, peer, connection, server } = await served()
    const id = server.create('users', { pk: 0, by_name: 1 })
    expect(await clock.run(connection.select('users', [], { index: 'by_name' }))).toEqual([['users', 1, null]])
    expect(await clock.run(connection.insert('users', [1]))).toEqual(['users', 0, [1]])
    expect(await clock.run(connection.delete('users', [1]))).toEqual(['users', 0, null])
    expect(server.refreshes).toBe(1)
    expect(peer.lastRequest.body.uint(Key.spaceId)).toBe(id)
  })

  it('follow a space that the call before has made, with one refresh', async () => {
    const { clock, connection, server } = await served()
    server.create('old')
    await clock.run(connection.select('old'))
    await clock.run(connection.call('create_space', ['fresh']))
    expect(await clock.run(connection.insert('fresh', [1]))).toEqual(['fresh', 0, [1]])
    expect(server.refreshes).toBe(2)
  })

  it('follow renames, drops and new indexes while twenty requests run at once', async () => {
    const { clock, connection, server } = await served()
    server.create('a')
    await clock.run(connection.select('a'))
    const twenty = (space: string, index: string | number): Promise<unknown[]> =>
      clock.run(
        Promise.all(
          Array.from({ length: 20 }, async () => {
            const end = await outcome(connection.select(space, [], { index }))
            return 'value' in end ? end.value[0] : end.error.code
          }),
        ),
      )
    server.addIndex('a', 'second', 1)
    expect(new Set((await twenty('a', 'second')).map(String))).toEqual(new Set(['a,1,']))
    server.rename('a', 'b')
    expect(new Set((await twenty('a', 0)).map(String))).toEqual(new Set(['ORB_NO_SUCH_SPACE']))
    expect(new Set((await twenty('b', 'second')).map(String))).toEqual(new Set(['b,1,']))
    server.drop('b')
    expect(new Set((await twenty('b', 'second')).map(String))).toEqual(new Set(['ORB_NO_SUCH_SPACE']))
    server.create('b', { pk: 0 })
    expect(new Set((await twenty('b', 0)).map(String))).toEqual(new Set(['b,0,']))
    expect(new Set((await twenty('b', 'second')).map(String))).toEqual(new Set(['ORB_NO_SUCH_INDEX']))
    expect(server.refreshes).toBeLessThanOrEqual(9)
  })

  it('that do not exist cost one refresh for a thousand requests, and fail promptly', async () => {
    const { clock, connection, server } = await served()
    const errors = await clock.run(
      Promise.all(Array.from({ length: 1_000 }, () => failure(connection.select('ghost')))),
    )
    expect(errors.every((error) => error instanceof NoSuchSpaceError && error.executed === 'no')).toBe(true)
    expect(server.refreshes).toBe(1)
    expect(clock.now()).toBe(0)
    await clock.run(Promise.all(Array.from({ length: 1_000 }, () => failure(connection.select('ghost')))))
    expect(server.refreshes).toBe(2)
  })

  it('never reach another space that took the id of a dropped one', async () => {
    const { clock, connection, peer, server } = await served()
    server.create('a')
    await clock.run(connection.select('a'))
    // A migration by somebody else: the table here is stale and no answer has said so.
    server.drop('a')
    server.create('other')
    const error = await clock.run(failure(connection.insert('a', [1])))
    expect(error).toBeInstanceOf(NoSuchSpaceError)
    expect(peer.requestsOf(RequestType.insert)).toHaveLength(1)
  })

  it('are not needed by numeric ids: no schema is fetched for them', async () => {
    const { clock, connection, server } = await served()
    server.viewError = 42
    const id = server.create('users')
    await clock.run(connection.select(id, [], { index: 0 }))
    expect(server.refreshes).toBe(0)
  })

  it('give a clear permission error when the system views are closed to the user', async () => {
    const { clock, connection, server } = await served()
    server.create('users')
    server.viewError = 42
    const error = await clock.run(failure(connection.insert('users', [1])))
    expect(error).toMatchObject({ code: 'ORB_BOX', boxCode: 42, executed: 'no' })
    server.viewError = undefined
    expect(await clock.run(connection.insert('users', [1]))).toEqual(['users', 0, [1]])
  })

  it('are resolved consistently while the schema changes all the time, and never in a loop', async () => {
    const { clock, connection, server } = await served()
    const random = seeded(9)
    server.create('users')
    let changes = 0
    server.beforeView = () => {
      if (random() < 0.7) {
        changes += 1
        server.create(`noise${String(changes)}`)
      }
    }
    const results = await clock.run(
      Promise.all(Array.from({ length: 100 }, (_, i) => outcome(connection.insert('users', [i])))),
    )
    for (const [i, end] of results.entries()) expect(end).toEqual({ value: ['users', 0, [i]] })
    for (let i = 0; i < 50; i += 1) {
      server.create(`more${String(i)}`)
      expect(await clock.run(connection.insert('users', [i]))).toEqual(['users', 0, [i]])
    }
    expect(server.refreshes).toBeLessThanOrEqual(150)
  })

  it('are looked up anew after a restart, also when the version number happens to be the same', async () => {
    const { clock, peer, connection, server } = await served()
    server.create('users')
    await clock.run(connection.insert('users', [1]))
    const version = peer.schemaVersion
    peer.cut()
    const restarted = new SchemaServer(peer)
    restarted.create('filler')
    const id = restarted.create('users')
    peer.schemaVersion = version
    await clock.advance(100)
    expect(await clock.run(connection.insert('users', [1]))).toEqual(['users', 0, [1]])
    expect(peer.lastRequest.body.uint(Key.spaceId)).toBe(id)
  })

  it('are kept with copies of their arguments until the schema is there', async () => {
    const { clock, connection, server } = await served()
    server.create('users')
    const tuple = [1]
    const inserted = connection.insert('users', tuple)
    tuple[0] = 2
    expect(await clock.run(inserted)).toEqual(['users', 0, [1]])
  })

  it.each([
    ['plain values', () => [1, ['x']], (tuple: unknown[]) => (tuple[1] as unknown[]).push('changed')],
    ['a map', () => [1, { a: 1 }], (tuple: unknown[]) => Object.assign(tuple[1] as object, { a: 'changed' })],
    ['bytes', () => [1, Buffer.from('x')], (tuple: unknown[]) => (tuple[1] as Buffer).fill(0)],
  ])('that are refused and sent again go with the arguments they had: %s', async (_name, make, change) => {
    const { clock, peer, connection, server } = await served()
    server.create('users')
    await clock.run(connection.insert('users', [0]))
    // Somebody else's migration: the next request is refused for its schema version.
    server.create('noise')
    const tuple = make()
    const inserted = connection.insert('users', tuple)
    tuple[0] = 2
    change(tuple)
    expect(await clock.run(inserted)).toEqual(['users', 0, make()])
    expect(peer.requestsOf(RequestType.insert)).toHaveLength(3)
  })

  it('wait for the schema within the timeout of their request', async () => {
    const { clock, peer, connection } = await connected({ version: '2.6.0' })
    peer.handle(RequestType.select, () => undefined)
    const error = await clock.run(failure(connection.insert('users', [1], { timeout: 200 })))
    expect(error).toMatchObject({ code: 'ORB_REQUEST_TIMEOUT', executed: 'no' })
    expect(clock.now()).toBe(200)
    const aborted = new AbortController()
    const insert = failure(connection.insert('users', [1], { signal: aborted.signal }))
    await clock.settle()
    aborted.abort()
    expect(await clock.run(insert)).toMatchObject({ code: 'ORB_REQUEST_ABORTED', executed: 'no' })
  })

  it('survive a connection that breaks while the schema is fetched: nothing was sent', async () => {
    const { clock, peer, connection } = await connected({ version: '2.6.0' })
    peer.handle(RequestType.select, (request) => request.session.destroy())
    const insert = connection.insert('users', [1])
    await clock.settle()
    const server = new SchemaServer(peer)
    server.create('users')
    expect(await clock.run(insert)).toEqual(['users', 0, [1]])
  })

  it('may be used before there is a connection', async () => {
    const { clock, peer, connection } = dialling({ version: '2.6.0' })
    new SchemaServer(peer).create('users')
    expect(await clock.run(connection.insert('users', [1]))).toEqual(['users', 0, [1]])
  })

  it('report a schema that cannot be read, instead of waiting for ever', async () => {
    const { clock, peer, connection } = await connected({ version: '2.6.0' })
    peer.handle(RequestType.select, (request) =>
      request.session.frame(0, request.sync, (out) => {
        out.mapHeader(1)
        out.uint(Key.data)
        out.raw(Buffer.from('92c1', 'hex'))
      }),
    )
    expect(await clock.run(failure(connection.insert('users', [1])))).toMatchObject({
      code: 'ORB_MALFORMED_FRAME',
      executed: 'no',
    })
  })
})
