/* What a server ties to a session, on a shared lane: sections 5, 7, 11 and 12 of the design, field case 5. */
import {
  callRequest,
  decodeId,
  decodePrepared,
  executeRequest,
  FrameHeader,
  idRequest,
  Key,
  pingRequest,
  prepareRequest,
  rawRequest,
  readReply,
  RequestType,
  unprepareRequest,
  updateRequest,
} from '@orbweaver/iproto'
import type { PeerRequest } from '@orbweaver/connection/testing'
import { afterEach, describe, expect, it } from 'vitest'
import { type RawClient, type Received, Scene, type SceneOptions } from './scene.js'

let scene: Scene
afterEach(() => scene.close())

/** Statements by session, as a server keeps them. */
let prepared: Map<object, Set<number>>

function idOf(text: string): number {
  return Buffer.from(text).reduce((sum, byte) => (sum * 31 + byte) % 1_000_003, 7)
}

function start(options: SceneOptions = {}): Scene {
  scene = new Scene(options)
  prepared = new Map()
  for (const peer of Object.values(scene.peers)) {
    const of = (request: PeerRequest): Set<number> => {
      const known = prepared.get(request.session) ?? new Set()
      prepared.set(request.session, known)
      return known
    }
    peer.handle(RequestType.prepare, (request) => {
      const id = request.body.uint(Key.stmtId)
      if (id !== undefined) {
        if (!of(request).delete(id)) return request.error(211, `Prepared statement with id ${id} does not exist`)
        return request.ok()
      }
      const text = request.body.requireText(Key.sqlText)
      if (text.startsWith('BROKEN')) return request.error(159, 'Syntax error')
      of(request).add(idOf(text))
      return request.replyWith(
        new Map<number, unknown>([
          [Key.stmtId, idOf(text)],
          [Key.bindCount, 0],
        ]),
      )
    })
    peer.handle(RequestType.execute, (request) => {
      const id = request.body.uint(Key.stmtId)
      if (id !== undefined && !of(request).has(id)) return request.error(211, 'does not exist')
      return request.reply([[id ?? request.body.requireText(Key.sqlText)]])
    })
    peer.handle(RequestType.call, (request) => request.reply([scene.peer().sessions.indexOf(request.session)]))
    peer.handle(RequestType.update, (request) => request.reply([]))
  }
  return scene
}

async function prepare(client: RawClient, text: string): Promise<number> {
  const { frame } = await client.ask(prepareRequest(text))
  const header = new FrameHeader()
  header.read(frame)
  return decodePrepared(readReply(frame, header)).id
}

const codeOf = (reply: Received): number => (reply.type === 0 ? 0 : reply.error.boxCode)

async function sessionOf(client: RawClient): Promise<number> {
  return ((await client.ask(callRequest('session'))).body.value(Key.data) as number[])[0]!
}

describe('prepared statements', () => {
  it('of one client survive that another gives back the same, and are unknown to a third', async () => {
    start()
    const [one, two, three] = [await scene.login(), await scene.login(), await scene.login()]
    const id = await prepare(one, 'SELECT 1')
    expect(await prepare(two, 'SELECT 1')).toBe(id)
    expect(codeOf(await one.ask(unprepareRequest(id)))).toBe(0)
    expect(codeOf(await two.ask(executeRequest(id)))).toBe(0)
    expect(codeOf(await one.ask(executeRequest(id)))).toBe(211)
    expect(codeOf(await three.ask(executeRequest(id)))).toBe(211)
    expect(codeOf(await three.ask(unprepareRequest(id)))).toBe(211)
    expect(codeOf(await two.ask(unprepareRequest(id)))).toBe(0)
    expect([...prepared.values()].flatMap((ids) => [...ids])).toEqual([])
  })

  it('are prepared again where they are needed after the lane was lost', async () => {
    start()
    const client = await scene.login()
    const id = await prepare(client, 'SELECT 2')
    scene.peer().cut()
    await scene.clock.advance(500)
    expect(codeOf(await client.ask(executeRequest(id)))).toBe(0)
    expect(scene.proxy.stats().statementReprepares).toBe(1)
    expect(codeOf(await client.ask(executeRequest(id)))).toBe(0)
    expect(scene.proxy.stats().statementReprepares).toBe(1)
  })

  it('follow to a new master', async () => {
    start({ peers: { a: {}, b: {} } })
    const client = await scene.login()
    const id = await prepare(client, 'SELECT 3')
    await scene.clock.run(scene.proxy.failOverTo('b'))
    expect(codeOf(await client.ask(executeRequest(id)))).toBe(0)
    expect(scene.peer('b').requestsOf(RequestType.prepare)).toHaveLength(1)
  })

  it('that cannot be prepared again are answered with the reason', async () => {
    start()
    const client = await scene.login()
    const id = await prepare(client, 'SELECT 4')
    scene.peer().handle(RequestType.prepare, (request) => request.error(36, "Space 't' does not exist"))
    scene.peer().cut()
    await scene.clock.advance(500)
    expect(codeOf(await client.ask(executeRequest(id)))).toBe(36)
    expect(codeOf(await client.ask(pingRequest()))).toBe(0)
  })

  it('are given back when their last client goes', async () => {
    start()
    const [one, two] = [await scene.login(), await scene.login()]
    const id = await prepare(one, 'SELECT 5')
    await prepare(two, 'SELECT 5')
    one.transport.destroy()
    await scene.clock.settle()
    expect(codeOf(await two.ask(executeRequest(id)))).toBe(0)
    two.transport.destroy()
    await scene.clock.settle()
    expect([...prepared.values()].flatMap((ids) => [...ids])).toEqual([])
  })

  it('that fail to prepare leave nothing behind', async () => {
    start()
    const client = await scene.login()
    expect(codeOf(await client.ask(prepareRequest('BROKEN')))).toBe(159)
    expect(codeOf(await client.ask(executeRequest(idOf('BROKEN'))))).toBe(211)
  })
})

describe('features', () => {
  it('are what all targets have in common, and the version that goes with them', async () => {
    start({ peers: { a: {}, b: { features: [0, 1, 2, 3, 4, 42] } }, ro: ['b'] })
    await scene.clock.settle()
    const client = await scene.client()
    await scene.clock.settle()
    const { frame } = await client.ask(client.identify([0, 1, 2, 3, 4, 5, 6]))
    const header = new FrameHeader()
    header.read(frame)
    const reply = decodeId(readReply(frame, header))
    expect(reply).toMatchObject({ version: 4, features: [0, 1, 2, 3, 4], authType: 'chap-sha1' })
  })

  it('that change what a server sends keep clients apart, and others do not', async () => {
    start()
    const [plain, errors, names, both] = [
      await scene.login(),
      await scene.login(),
      await scene.login(),
      await scene.login(),
    ]
    await errors.ask(errors.identify([2]))
    await names.ask(names.identify([0, 1, 3, 4, 5]))
    await both.ask(both.identify([5, 2]))
    const lanes = [await sessionOf(plain), await sessionOf(errors), await sessionOf(names), await sessionOf(both)]
    expect([lanes[2], lanes[3]]).toEqual([lanes[0], lanes[1]])
    expect(lanes[0]).not.toBe(lanes[1])
  })

  it('are unknown to the proxy where its targets do not know them', async () => {
    start({ peers: { a: { version: '2.6.0' } } })
    const client = await scene.client()
    expect(codeOf(await client.ask(idRequest({ version: 1, features: [0] })))).toBe(48)
  })

  it('need a body', async () => {
    start()
    const client = await scene.client()
    expect(codeOf(await client.ask(rawRequest(RequestType.id, 'session', new Uint8Array(0))))).toBe(20)
  })
})

describe('a connection of its own', () => {
  it.each([
    [
      'DML on the session settings',
      updateRequest({ space: 380, key: ['sql_full_metadata'], operations: [['=', 1, true]] }),
    ],
    ['SET SESSION', executeRequest('SET SESSION "sql_full_metadata" = true')],
    ['a change of them by SQL', executeRequest('UPDATE "_session_settings" SET "value" = true')],
  ])('is given to a client for %s, and others do not see it', async (_name, request) => {
    start()
    const [one, two] = [await scene.login(), await scene.login()]
    const shared = await sessionOf(one)
    await one.ask(request)
    const own = await sessionOf(one)
    expect(own).not.toBe(shared)
    expect(await sessionOf(two)).toBe(shared)
    expect(scene.proxy.stats().clientsBy.pinned).toBe(1)
    one.transport.destroy()
    await scene.clock.settle()
    expect(scene.peer().sessions[own]!.open).toBe(false)
    expect(scene.proxy.stats()).toMatchObject({ lanes: 1 })
  })

  it('is taken when nothing is in flight any more, and everything keeps its order', async () => {
    start()
    const client = await scene.login()
    const order: number[] = []
    scene.peer().handle(RequestType.call, (request) => {
      order.push(request.body.requireArray(Key.tuple)[0] as number)
      scene.clock.schedule(100, () => request.reply([]))
    })
    client.send(callRequest('f', [1]), 1)
    client.send(executeRequest('SET SESSION "x" = 1'), 2)
    client.send(callRequest('f', [3]), 3)
    await client.reply(3)
    expect(order).toEqual([1, 3])
    expect(client.received.slice(1).map(({ sync }) => sync)).toEqual([1, 2, 3])
  })

  it('is given from the start to users in session mode', async () => {
    start({ pool: { mode: { bob: 'session' } } })
    const [one, two] = [await scene.login('bob'), await scene.login('bob')]
    expect(await sessionOf(one)).not.toBe(await sessionOf(two))
    expect(await sessionOf(one)).toBe(await sessionOf(one))
  })

  it('is given to clients that call what keeps something in its session', async () => {
    start({ pin: { functions: ['cart.*', 'login'] } })
    const [one, two] = [await scene.login(), await scene.login()]
    const shared = await sessionOf(two)
    expect(await sessionOf(one)).toBe(shared)
    for (const name of ['cart', 'logins', 'my.login']) await one.ask(callRequest(name))
    expect(await sessionOf(one)).toBe(shared)
    await one.ask(callRequest('cart.add'))
    expect(await sessionOf(one)).not.toBe(shared)
    expect(await sessionOf(two)).toBe(shared)
    expect(scene.proxy.clients().map(({ pin }) => pin)).toEqual(['functions', undefined])
  })

  it.each([
    ['close', true],
    ['rebind', false],
  ] as const)('of a user in session mode ends with the master, or moves: %s', async (onFailover, isEnded) => {
    start({ peers: { a: {}, b: {} }, pool: { mode: { bob: 'session' }, onFailover: { bob: onFailover } } })
    const client = await scene.login('bob')
    await client.ask(pingRequest())
    scene.proxy.setRw('b')
    await scene.clock.settle()
    expect(client.isEnded).toBe(isEnded)
    if (isEnded) return
    expect((await client.ask(pingRequest())).type).toBe(0)
    expect(scene.peer('b').requestsOf(RequestType.ping)).not.toHaveLength(0)
  })

  it('is refused when too many clients have one, and the client goes on', async () => {
    start({ limits: { maxPinned: 1 } })
    const [one, two] = [await scene.login(), await scene.login()]
    expect(codeOf(await one.ask(executeRequest('SET SESSION "x" = 1')))).toBe(0)
    expect(codeOf(await two.ask(executeRequest('SET SESSION "x" = 1')))).toBe(5)
    expect(codeOf(await two.ask(pingRequest()))).toBe(0)
  })

  it('is given to a client with too many statements', async () => {
    start({ limits: { maxStatementsPerClient: 2 } })
    const client = await scene.login()
    const shared = await sessionOf(client)
    const ids = []
    for (const n of [1, 2, 3]) ids.push(await prepare(client, `SELECT ${n}`))
    expect(await sessionOf(client)).not.toBe(shared)
    for (const id of ids) expect(codeOf(await client.ask(executeRequest(id)))).toBe(0)
  })

  it('is closed with its client when the master changes, unless nothing of the session counts', async () => {
    start({ peers: { a: {}, b: {} }, limits: { maxStatementsPerClient: 1 } })
    const [settings, statements] = [await scene.login(), await scene.login()]
    await settings.ask(executeRequest('SET SESSION "x" = 1'))
    const ids = [await prepare(statements, 'SELECT 1'), await prepare(statements, 'SELECT 2')]
    await scene.clock.run(scene.proxy.failOverTo('b'))
    await scene.clock.settle()
    expect(settings.isEnded).toBe(true)
    for (const id of ids) expect(codeOf(await statements.ask(executeRequest(id)))).toBe(0)
    const stillThere = scene.peer('a').sessions.filter(({ open, user }) => open && user === 'alice')
    expect(stillThere.length).toBeLessThanOrEqual(1)
  })

  it('carries the storage refs of a client, and nothing else of it', async () => {
    start()
    const [one, two] = [await scene.login(), await scene.login()]
    const shared = await sessionOf(one)
    const refOf = async (client: RawClient, service: string): Promise<number> =>
      ((await client.ask(callRequest('vshard.storage._call', [service, 1]))).body.value(Key.data) as number[])[0]!
    const [ref, other] = [await refOf(one, 'storage_ref'), await refOf(two, 'storage_ref')]
    expect(new Set([shared, ref, other]).size).toBe(3)
    expect(await refOf(one, 'storage_map')).toBe(ref)
    expect(await refOf(one, 'storage_unref')).toBe(ref)
    expect(await refOf(one, 'info')).toBe(shared)
    expect(await sessionOf(one)).toBe(shared)
    one.transport.destroy()
    await scene.clock.settle()
    expect(scene.peer().sessions[ref]!.open).toBe(false)
    expect(scene.peer().sessions[other]!.open).toBe(true)
  })
})

describe('requests that are not for sharing', () => {
  it.each([65, 66, 69, 70])('of replication (type %i) are refused with 5', async (type) => {
    start()
    const client = await scene.login()
    expect(codeOf(await client.ask(rawRequest(type, 'session', Buffer.of(0x80))))).toBe(5)
  })

  it.each([0, 30, 76, 126, 200, 1_000])('of unknown type %i are refused with 48, as by a server', async (type) => {
    start()
    const client = await scene.login()
    const reply = await client.ask(rawRequest(type, 'session', Buffer.of(0x80)))
    expect([codeOf(reply), reply.error.message]).toEqual([48, `Unknown request type ${type}`])
  })

  it('of an unknown type are passed on where the options say so', async () => {
    start({ forwardUnknown: true })
    scene.peer().handle(99, (request) => request.reply(['new']))
    const client = await scene.login()
    expect((await client.ask(rawRequest(99, 'session', Buffer.of(0x80)))).body.value(Key.data)).toEqual(['new'])
    expect(codeOf(await client.ask(rawRequest(200, 'session', Buffer.of(0x80))))).toBe(48)
  })
})
