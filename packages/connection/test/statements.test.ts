import { Key, RequestType } from '@orbweaver/iproto'
import { describe, expect, it } from 'vitest'
import type { PeerRequest, PeerSession } from '../src/testing/index.js'
import { connected, failure, type Rig } from './rig.js'

/** The SQL side of a server: statements live in a session and expire with the schema. */
class StatementServer {
  prepares = 0
  unprepares = 0
  executed: unknown[][] = []
  readonly #known = new WeakMap<PeerSession, Map<number, number>>()

  constructor(rig: Rig) {
    const { peer } = rig
    const knownOf = (session: PeerSession): Map<number, number> => {
      const known = this.#known.get(session) ?? new Map<number, number>()
      this.#known.set(session, known)
      return known
    }
    peer.handle(RequestType.prepare, (request: PeerRequest) => {
      const id = request.body.uint(Key.stmtId)
      if (id !== undefined) {
        this.unprepares += 1
        if (!knownOf(request.session).delete(id))
          return request.error(211, 'Prepared statement with such id does not exist')
        return request.ok()
      }
      this.prepares += 1
      knownOf(request.session).set(77, peer.schemaVersion)
      request.replyWith(
        new Map<number, unknown>([
          [Key.stmtId, 77],
          [Key.bindCount, 1],
          [
            Key.bindMetadata,
            [
              new Map<number, unknown>([
                [0, '?'],
                [1, 'ANY'],
              ]),
            ],
          ],
          [
            Key.metadata,
            [
              new Map<number, unknown>([
                [0, 'ID'],
                [1, 'integer'],
              ]),
            ],
          ],
        ]),
      )
    })
    peer.handle(RequestType.execute, (request: PeerRequest) => {
      const id = request.body.uint(Key.stmtId)
      const binds = request.body.array(Key.sqlBind) ?? []
      const version = id === undefined ? peer.schemaVersion : knownOf(request.session).get(id)
      if (version === undefined) return request.error(211, 'Prepared statement with such id does not exist')
      if (version !== peer.schemaVersion)
        return request.error(159, 'Failed to execute SQL statement: statement has expired')
      if (binds[0] === 'bad') return request.error(159, 'Failed to execute SQL statement: something else')
      this.executed.push([id ?? 'text', ...binds])
      request.replyWith(
        new Map<number, unknown>([
          [Key.metadata, []],
          [Key.data, [binds]],
        ]),
      )
    })
  }
}

async function served(): Promise<Rig & { server: StatementServer }> {
  const rig = await connected({ version: '3.2.1' }, { reconnect: { minDelayMs: 1 } })
  return { ...rig, server: new StatementServer(rig) }
}

describe('A prepared statement', () => {
  it('knows its columns and binds, and runs by id', async () => {
    const { clock, connection, server } = await served()
    const statement = await clock.run(connection.prepare('SELECT ?'))
    expect([statement.text, statement.columns[0]?.name, statement.bindCount, statement.binds[0]?.name]).toEqual([
      'SELECT ?',
      'ID',
      1,
      '?',
    ])
    expect((await clock.run(statement.execute<[number]>([5]))).rows).toEqual([[5]])
    expect((await clock.run(connection.execute(statement, [6]))).rows).toEqual([[6]])
    expect(server.executed).toEqual([
      [77, 5],
      [77, 6],
    ])
    expect(server.prepares).toBe(1)
  })

  it('renews itself once for a hundred callers after the schema changed', async () => {
    const { clock, peer, connection, server } = await served()
    const statement = await clock.run(connection.prepare('SELECT ?'))
    peer.schemaVersion += 1
    const results = await clock.run(Promise.all(Array.from({ length: 100 }, (_, i) => statement.execute([i]))))
    expect(results.map((result) => result.rows[0])).toEqual(Array.from({ length: 100 }, (_, i) => [i]))
    expect(server.prepares).toBe(2)
    expect(server.executed).toHaveLength(100)
  })

  it('renews itself once for a hundred callers after a reconnect', async () => {
    const { clock, peer, connection, server } = await served()
    const statement = await clock.run(connection.prepare('SELECT ?'))
    peer.cut()
    await clock.settle()
    const early = Array.from({ length: 50 }, (_, i) => statement.execute([i]))
    await clock.advance(100)
    const late = Array.from({ length: 50 }, (_, i) => statement.execute([50 + i]))
    expect(await clock.run(Promise.all([...early, ...late]))).toHaveLength(100)
    expect(server.prepares).toBe(2)
    expect(connection.generation).toBe(2)
  })

  it('renews itself when another part of the program released the same text', async () => {
    const { clock, connection, server } = await served()
    const one = await clock.run(connection.prepare('SELECT ?'))
    const other = await clock.run(connection.prepare('SELECT ?'))
    await clock.run(other.release())
    expect((await clock.run(one.execute([1]))).rows).toEqual([[1]])
    expect(server.prepares).toBe(3)
  })

  it('does not repeat a statement that failed for another reason with the same code', async () => {
    const { clock, connection, server } = await served()
    const statement = await clock.run(connection.prepare('SELECT ?'))
    expect(await clock.run(failure(statement.execute(['bad'])))).toMatchObject({ boxCode: 159 })
    expect(server.prepares).toBe(1)
  })

  it('does not repeat what may have run when the connection broke, unless it was declared repeatable', async () => {
    const { clock, peer, connection, server } = await served()
    const statement = await clock.run(connection.prepare('SELECT ?'))
    const original = peer.handlerOf(RequestType.execute)
    const breakOnce = (): void => {
      peer.handle(RequestType.execute, (request) => {
        peer.handle(RequestType.execute, original)
        request.session.destroy()
      })
    }
    breakOnce()
    expect(await clock.run(failure(statement.execute([1])))).toMatchObject({
      code: 'ORB_CONNECTION_LOST',
      executed: 'unknown',
    })
    expect((await clock.run(statement.execute([2]))).rows).toEqual([[2]])
    breakOnce()
    expect((await clock.run(statement.execute([3], { idempotent: true }))).rows).toEqual([[3]])
    expect(server.executed).toEqual([
      [77, 2],
      [77, 3],
    ])
  })

  it('keeps its arguments while it is prepared again', async () => {
    const { clock, peer, connection } = await served()
    const statement = await clock.run(connection.prepare('SELECT ?'))
    peer.schemaVersion += 1
    const binds = [1]
    const running = statement.execute(binds)
    binds[0] = 2
    expect((await clock.run(running)).rows).toEqual([[1]])
  })

  it('keeps the timeout of the call while it is prepared again, and its signal', async () => {
    const { clock, peer, connection } = await served()
    const statement = await clock.run(connection.prepare('SELECT ?'))
    peer.cut()
    await clock.advance(100)
    peer.handle(RequestType.prepare, () => undefined)
    const started = clock.now()
    expect(await clock.run(failure(statement.execute([1], { timeout: 200 })))).toMatchObject({
      code: 'ORB_REQUEST_TIMEOUT',
      executed: 'no',
    })
    expect(clock.now() - started).toBe(200)
    const controller = new AbortController()
    const aborted = failure(statement.execute([1], { signal: controller.signal }))
    await clock.settle()
    controller.abort()
    expect(await clock.run(aborted)).toMatchObject({ code: 'ORB_REQUEST_ABORTED', executed: 'no' })
    connection.destroy()
    await clock.settle()
    expect(clock.pendingTimers).toBe(0)
  })

  it('is released once, however often that is asked, and whatever the server thinks', async () => {
    const { clock, peer, connection, server } = await served()
    const statement = await clock.run(connection.prepare('SELECT ?'))
    await clock.run(Promise.all([statement.release(), statement.release()]))
    await clock.run(statement.release())
    expect(server.unprepares).toBe(1)
    expect((await clock.run(statement.execute([1]))).rows).toEqual([[1]])
    expect(server.prepares).toBe(2)
    peer.handle(RequestType.prepare, (request) => request.error(211, 'no such id'))
    await clock.run(statement.release())
    peer.cut()
    await clock.advance(100)
    await clock.run(statement.release())
  })

  it('is released by await using', async () => {
    const { clock, connection, server } = await served()
    await clock.run(
      (async () => {
        await using statement = await connection.prepare('SELECT ?')
        await statement.execute([1])
      })(),
    )
    expect(server.unprepares).toBe(1)
  })

  it('runs in a stream by id, or by its text where the session does not know it', async () => {
    const { clock, peer, connection, server } = await served()
    const statement = await clock.run(connection.prepare('SELECT ?'))
    const stream = connection.stream()
    await clock.run(stream.execute(statement, [1]))
    peer.schemaVersion += 1
    await clock.run(stream.execute(statement, [2]))
    await clock.run(statement.release())
    await clock.run(connection.stream().execute(statement, [3]))
    expect(server.executed).toEqual([
      [77, 1],
      ['text', 2],
      ['text', 3],
    ])
  })

  it('is not repeated inside a transaction, where later statements may have run already', async () => {
    const { clock, peer, connection, server } = await served()
    for (const type of [RequestType.begin, RequestType.rollback]) peer.handle(type, (request) => request.ok())
    const statement = await clock.run(connection.prepare('SELECT ?'))
    const stream = connection.stream()
    await clock.run(stream.begin())
    peer.schemaVersion += 1
    expect(await clock.run(failure(stream.execute(statement, [1])))).toMatchObject({ boxCode: 159 })
    expect(server.executed).toEqual([])
    await clock.run(stream.rollback())
  })
})
