import { Key, RequestType, UnsupportedFeatureError } from '@orbweaver/iproto'
import { describe, expect, it } from 'vitest'
import { ConnectionLostError } from '../src/index.js'
import { connected, dialling, failure, type Rig } from './rig.js'

/** Answers transactions with success and rows with themselves, and keeps a log of each stream. */
async function served(version = '3.2.1'): Promise<Rig & { log: string[] }> {
  const rig = await connected({ version }, { reconnect: { minDelayMs: 1 } })
  const log: string[] = []
  const { peer } = rig
  for (const [type, name] of [
    [RequestType.begin, 'begin'],
    [RequestType.commit, 'commit'],
    [RequestType.rollback, 'rollback'],
  ] as const) {
    peer.handle(type, (request) => {
      log.push(`${String(request.streamId)} ${name}`)
      request.ok()
    })
  }
  peer.handle(RequestType.insert, (request) => {
    const tuple = request.body.array(Key.tuple) ?? []
    log.push(`${String(request.streamId)} insert ${String(tuple[0])}`)
    request.reply([tuple])
  })
  return { ...rig, log }
}

describe('A stream', () => {
  it('carries its number on every request, and streams differ', async () => {
    const { clock, connection, log } = await served()
    const [one, two] = [connection.stream(), connection.stream()]
    await clock.run(
      Promise.all([one.begin(), two.begin(), one.insert(512, [1]), two.insert(512, [2]), one.commit(), two.rollback()]),
    )
    expect(log).toEqual(['1 begin', '2 begin', '1 insert 1', '2 insert 2', '1 commit', '2 rollback'])
    expect([one.isOpen, two.isOpen]).toEqual([false, false])
  })

  it('sends begin, statements and commit in one write', async () => {
    const { clock, peer, connection } = await served()
    await clock.settle()
    const before = peer.session.chunksReceived
    const stream = connection.stream()
    await clock.run(Promise.all([stream.begin(), stream.insert(512, [1]), stream.insert(512, [2]), stream.commit()]))
    expect(peer.session.chunksReceived - before).toBe(1)
  })

  it('rolls back at the end of an await using block that did not commit', async () => {
    const { clock, connection, log } = await served()
    const work = async (isGood: boolean): Promise<void> => {
      await using stream = connection.stream()
      await stream.begin()
      await stream.insert(512, [1])
      if (!isGood) throw new Error('changed my mind')
      await stream.commit()
    }
    await clock.run(work(true))
    expect(await clock.run(failure(work(false)))).toMatchObject({ message: 'changed my mind' })
    expect(log).toEqual(['1 begin', '1 insert 1', '1 commit', '2 begin', '2 insert 1', '2 rollback'])
  })

  it('passes the options of begin on', async () => {
    const { clock, peer, connection } = await served()
    await clock.run(connection.stream().begin({ expire: 1_500, isolation: 'read-confirmed' }))
    const { body } = peer.lastRequest
    expect([body.double(Key.timeout), body.uint(Key.txnIsolation)]).toEqual([1.5, 2])
  })

  it('sends names as ids in order, also while the schema is fetched', async () => {
    const { clock, peer, connection, log } = await served('2.11.0')
    peer.handle(RequestType.select, (request) =>
      request.reply(
        request.body.uint(Key.spaceId) === 281 ? [[600, 1, 'users']] : [[600, 0, 'pk', 'tree', {}, [[0, 'unsigned']]]],
      ),
    )
    const stream = connection.stream()
    await clock.run(
      Promise.all([stream.begin(), stream.insert('users', [1]), stream.insert(512, [2]), stream.commit()]),
    )
    expect(log).toEqual(['1 begin', '1 insert 1', '1 insert 2', '1 commit'])
    expect(peer.requestsOf(RequestType.insert).map((request) => request.schemaVersion)).toEqual([undefined, undefined])
  })

  it.each([97, 154, 231])(
    'remembers that error %i ended the transaction: commit rejects with it instead of reporting success for nothing',
    async (code) => {
      const { clock, peer, connection, log } = await served()
      const stream = connection.stream()
      await clock.run(stream.begin())
      peer.handle(RequestType.insert, (request) => request.error(code, 'the transaction is gone'))
      expect(await clock.run(failure(stream.insert(512, [1])))).toMatchObject({ boxCode: code })
      expect(await clock.run(failure(stream.commit()))).toMatchObject({ boxCode: code })
      expect(await clock.run(failure(stream.commit()))).toMatchObject({ boxCode: code })
      expect(log).not.toContain('1 commit')
      await clock.run(stream.rollback())
      await clock.run(stream.begin())
      await clock.run(stream.commit())
      expect(log.at(-1)).toBe('1 commit')
    },
  )

  it('remembers a failed commit', async () => {
    const { clock, peer, connection } = await served()
    const stream = connection.stream()
    await clock.run(stream.begin())
    peer.handle(RequestType.commit, (request) => request.error(97, 'conflict'))
    expect(await clock.run(failure(stream.commit()))).toMatchObject({ boxCode: 97 })
    peer.handle(RequestType.commit, (request) => request.ok())
    expect(await clock.run(failure(stream.commit()))).toMatchObject({ boxCode: 97 })
  })

  it('goes on after a statement that failed by itself', async () => {
    const { clock, peer, connection } = await served()
    const stream = connection.stream()
    await clock.run(stream.begin())
    peer.handle(RequestType.insert, (request) => request.error(3, 'duplicate'))
    expect(await clock.run(failure(stream.insert(512, [1])))).toMatchObject({ boxCode: 3 })
    await clock.run(stream.commit())
  })

  it('is lost with its session: nothing of it runs in the next one, and rolling back is done', async () => {
    const { clock, peer, connection, log } = await served()
    const stream = connection.stream()
    await clock.run(stream.begin())
    peer.cut()
    await clock.advance(100)
    expect(connection.generation).toBe(2)
    log.length = 0
    const errors = await clock.run(
      Promise.all([failure(stream.insert(512, [1])), failure(stream.commit()), failure(stream.begin())]),
    )
    for (const error of errors) expect(error).toBeInstanceOf(ConnectionLostError)
    expect(errors[0]?.executed).toBe('no')
    await clock.run(stream.rollback())
    await clock.run(stream[Symbol.asyncDispose]())
    expect(log).toEqual([])
  })

  it('does not know the outcome when the connection breaks after COMMIT was written', async () => {
    const { clock, peer, connection } = await served()
    const stream = connection.stream()
    await clock.run(stream.begin())
    peer.handle(RequestType.commit, (request) => request.session.destroy())
    expect(await clock.run(failure(stream.commit()))).toMatchObject({
      code: 'ORB_CONNECTION_LOST',
      executed: 'unknown',
    })
  })

  it('may be begun before there is a connection, and then belongs to the first', async () => {
    const { clock, peer, connection } = dialling()
    peer.handle(RequestType.begin, (request) => request.ok())
    peer.handle(RequestType.commit, (request) => request.ok())
    const stream = connection.stream()
    await clock.run(Promise.all([stream.begin(), stream.commit()]))
    expect(peer.requests.map((request) => request.type)).toEqual([RequestType.begin, RequestType.commit])
  })

  it.each([
    ['a select in it', (rig: Rig) => rig.connection.stream().select(512)],
    ['begin', (rig: Rig) => rig.connection.stream().begin()],
    ['a transaction', (rig: Rig) => rig.connection.transaction(() => Promise.resolve(1))],
  ])('is refused on a server without streams before %s is sent', async (_name, run) => {
    const rig = await connected({ version: '2.6.0' })
    const error = await rig.clock.run(failure(run(rig)))
    expect(error).toBeInstanceOf(UnsupportedFeatureError)
    expect(error.message).toMatch(/Tarantool 2\.6\.0/)
    expect(rig.peer.requests).toEqual([])
  })

  it('refuses isSync where it does not exist', async () => {
    const { clock, connection, log } = await served('2.11.0')
    expect(await clock.run(failure(connection.stream().begin({ isSync: true })))).toBeInstanceOf(
      UnsupportedFeatureError,
    )
    expect(log).toEqual([])
  })

  it('refuses iterator positions like the connection', async () => {
    const { clock, peer, connection } = await connected({ version: '2.10.0', features: [0, 1, 2, 3] })
    expect(await clock.run(failure(connection.stream().selectPage(512)))).toBeInstanceOf(UnsupportedFeatureError)
    expect(peer.requests).toEqual([])
  })
})

describe('transaction', () => {
  it('commits what the work did and gives what it gave', async () => {
    const { clock, connection, log } = await served()
    const result = await clock.run(
      connection.transaction(async (stream) => {
        await stream.insert(512, [1])
        return 'done'
      }),
    )
    expect(result).toBe('done')
    expect(log).toEqual(['1 begin', '1 insert 1', '1 commit'])
  })

  it('rolls back when the work rejects, and rejects with that', async () => {
    const { clock, connection, log } = await served()
    const error = await clock.run(
      failure(
        connection.transaction(async (stream) => {
          await stream.insert(512, [1])
          throw new Error('no')
        }),
      ),
    )
    expect(error.message).toBe('no')
    expect(log).toEqual(['1 begin', '1 insert 1', '1 rollback'])
  })

  it('rejects with the conflict and repeats nothing', async () => {
    const { clock, peer, connection, log } = await served()
    peer.handle(RequestType.commit, (request) => request.error(97, 'conflict'))
    let runs = 0
    const error = await clock.run(
      failure(
        connection.transaction(async (stream) => {
          runs += 1
          await stream.insert(512, [1])
        }),
      ),
    )
    expect(error).toMatchObject({ boxCode: 97 })
    expect([runs, log]).toEqual([1, ['1 begin', '1 insert 1', '1 rollback']])
  })

  it('rejects with the error of the work also when rolling back fails', async () => {
    const { clock, peer, connection } = await served()
    peer.handle(RequestType.rollback, (request) => request.error(1, 'odd'))
    expect(await clock.run(failure(connection.transaction(() => Promise.reject(new Error('first')))))).toMatchObject({
      message: 'first',
    })
  })
})
