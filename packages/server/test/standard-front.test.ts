import { chapSha1, decodeValue, encodeValue, type FrameWriter, hash2Of, Key, RequestType } from '@orbweaver/iproto'
import { transportPair } from '@orbweaver/connection'
import { VirtualClock } from '@orbweaver/connection/testing'
import { describe, expect, it } from 'vitest'
import { createServer, createWatchHub, standardFront } from '../src/index.js'
import type { UserSource } from '../src/index.js'
import { dataOf, errorCode, KeepingHandler, RawClient, SALT, startServer } from './harness.js'

const USERS: UserSource = { hash2: (user) => (user === 'alice' ? hash2Of('secret') : undefined) }

function start() {
  const next = new KeepingHandler()
  const watches = createWatchHub({ clock: new VirtualClock() })
  const front = standardFront(
    { users: USERS, features: new Set([0, 1, 2, 3, 4, 5, 6]), watches, maxFailedLogins: 3 },
    next,
  )
  const { clock, client, server } = startServer(front)
  return { next, watches, clock, client, server }
}

function login(client: RawClient, sync: number, user: string, tuple: readonly unknown[]): void {
  client.request(RequestType.auth, sync, (out) => {
    out.mapHeader(2)
    out.uint(Key.userName)
    out.text(user)
    out.uint(Key.tuple)
    out.value(tuple)
  })
}

function key(name: string): (out: FrameWriter) => void {
  return (out) => {
    out.mapHeader(1)
    out.uint(Key.eventKey)
    out.text(name)
  }
}

describe('the standard front', () => {
  it('answers PING with an empty body, whatever its sync', async () => {
    const { clock, client } = start()
    const peer = client()
    peer.request(RequestType.ping, 0xffff_ffff)
    await clock.settle()
    expect(peer.answers.map((answer) => [answer.type, answer.sync])).toEqual([[0, 0xffff_ffff]])
  })

  it('agrees by ID on the features both have, and announces the version they came with', async () => {
    const { clock, client, next } = start()
    const peer = client()
    peer.request(RequestType.id, 1, (out) => {
      out.mapHeader(2)
      out.uint(Key.version)
      out.uint(9)
      out.uint(Key.features)
      out.value([0, 2, 3, 9, 99])
    })
    peer.request(RequestType.select, 2)
    await clock.settle()
    expect(peer.answers[0]!.body.uint(Key.version)).toBe(6)
    expect(peer.answers[0]!.body.array(Key.features)).toEqual([0, 1, 2, 3, 4, 5, 6])
    expect(peer.answers[0]!.body.text(Key.authType)).toBe('chap-sha1')
    expect([...next.sessions[0]!.features]).toEqual([0, 2, 3])
  })

  it('refuses ID without a body with error 20', async () => {
    const { clock, client } = start()
    const peer = client()
    peer.request(RequestType.id, 1)
    await clock.settle()
    expect(errorCode(peer.answers[0])).toBe(20)
  })

  it.each<[string, string, readonly unknown[], number | undefined]>([
    ['the right password', 'alice', ['chap-sha1', Buffer.from(chapSha1(SALT, 'secret'))], undefined],
    ['guest without a proof', 'guest', [], undefined],
    ['guest with an empty proof', 'guest', ['chap-sha1', ''], undefined],
    ['a wrong password', 'alice', ['chap-sha1', Buffer.from(chapSha1(SALT, 'wrong'))], 47],
    ['no proof for a user with a password', 'alice', [], 47],
    ['an unknown user', 'mallory', ['chap-sha1', Buffer.from(chapSha1(SALT, 'secret'))], 47],
    ['a proof for another salt', 'alice', ['chap-sha1', Buffer.from(chapSha1(SALT.toReversed(), 'secret'))], 47],
    ['an unknown method', 'alice', ['md5', 'x'], 249],
    ['a proof of the wrong size', 'alice', ['chap-sha1', 'short'], 251],
    ['a method without a proof', 'alice', ['chap-sha1'], 20],
    ['a proof that is a number', 'alice', ['chap-sha1', 5], 20],
  ])('judges a login with %s', async (_what, user, tuple, code) => {
    const { clock, client, next } = start()
    const peer = client()
    login(peer, 1, user, tuple)
    peer.request(RequestType.select, 2)
    await clock.settle()
    expect(errorCode(peer.answers[0])).toBe(code)
    expect(next.sessions[0]!.user).toBe(code === undefined ? user : 'guest')
  })

  it('keeps the connection and the user when a later login fails', async () => {
    const { clock, client, next } = start()
    const peer = client()
    login(peer, 1, 'alice', ['chap-sha1', Buffer.from(chapSha1(SALT, 'secret'))])
    login(peer, 2, 'alice', ['chap-sha1', Buffer.from(chapSha1(SALT, 'wrong'))])
    peer.request(RequestType.select, 3)
    await clock.settle()
    expect(peer.answers.map(errorCode)).toEqual([undefined, 47])
    expect(next.sessions[0]!.user).toBe('alice')
  })

  it('closes a session that guesses passwords', async () => {
    const { clock, client } = start()
    const peer = client()
    for (let sync = 1; sync <= 5; sync++)
      login(peer, sync, 'alice', ['chap-sha1', Buffer.from(chapSha1(SALT, `guess ${sync}`))])
    await clock.settle()
    expect(peer.answers.map(errorCode)).toEqual([47, 47, 47])
    expect(peer.hasEnded).toBe(true)
  })

  it('answers guesses later and later where it has a clock, and what follows them in order', async () => {
    const clock = new VirtualClock()
    const front = standardFront(
      { users: USERS, features: new Set(), watches: createWatchHub({ clock }), maxFailedLogins: 10, clock },
      new KeepingHandler(),
    )
    const server = createServer({ handler: front, environment: { clock } })
    const [mine, theirs] = transportPair(clock)
    server.accept(theirs)
    const peer = new RawClient(mine)
    for (let sync = 1; sync <= 3; sync++)
      login(peer, sync, 'alice', ['chap-sha1', Buffer.from(chapSha1(SALT, `guess ${sync}`))])
    peer.request(RequestType.ping, 4)
    await clock.settle()
    expect(peer.answers.map((answer) => answer.sync)).toEqual([1])
    await clock.advance(51)
    expect(peer.answers.map((answer) => answer.sync)).toEqual([1, 2])
    await clock.advance(95)
    expect(peer.answers.map((answer) => answer.sync)).toEqual([1, 2])
    await clock.advance(10)
    expect(peer.answers.map((answer) => [answer.sync, errorCode(answer)])).toEqual([
      [1, 47],
      [2, 47],
      [3, 47],
      [4, undefined],
    ])
  })

  it('answers an error whose text is cut within a character, and goes on answering everybody', async () => {
    const { clock, client } = start()
    const peer = client()
    const other = client()
    login(peer, 1, 'alice', [`${'x'.repeat(63)}\u{1f600}`, 'proof'])
    peer.request(RequestType.ping, 2)
    other.request(RequestType.ping, 3)
    await clock.settle()
    expect(peer.answers.map((answer) => [answer.sync, errorCode(answer)])).toEqual([
      [1, 249],
      [2, undefined],
    ])
    expect(other.answers.map((answer) => answer.sync)).toEqual([3])
  })

  it('answers WATCH_ONCE with the value of the moment, or nothing', async () => {
    const { clock, client, watches } = start()
    watches.broadcast('box.status', encodeValue({ is_ro: false }))
    const peer = client()
    peer.request(RequestType.watchOnce, 1, key('box.status'))
    peer.request(RequestType.watchOnce, 2, key('nobody'))
    await clock.settle()
    expect(peer.answers.map(dataOf)).toEqual([[{ is_ro: false }], []])
  })

  it.each([RequestType.id, RequestType.auth, RequestType.watch, RequestType.unwatch, RequestType.watchOnce])(
    'refuses type %i inside a stream with 229',
    async (type) => {
      const { clock, client } = start()
      const peer = client()
      peer.request(type, 1, key('x'), 7)
      await clock.settle()
      expect(errorCode(peer.answers[0])).toBe(229)
    },
  )

  it('answers WATCH without a key with 69 and one with a wrong key with 20', async () => {
    const { clock, client } = start()
    const peer = client()
    peer.request(RequestType.watch, 1, (out) => out.mapHeader(0))
    peer.request(RequestType.watch, 2, (out) => {
      out.mapHeader(1)
      out.uint(Key.eventKey)
      out.uint(5)
    })
    await clock.settle()
    expect(peer.answers.map((answer) => [errorCode(answer), answer.sync])).toEqual([
      [69, 1],
      [20, 2],
    ])
  })

  it('hands on what it does not know, with the body as it came', async () => {
    const { clock, client, next } = start()
    const peer = client()
    peer.request(RequestType.call, 3, (out) => {
      out.mapHeader(1)
      out.uint(Key.functionName)
      out.text('f')
    })
    await clock.settle()
    expect(next.frames[0]).toMatchObject({ type: RequestType.call, syncLow: 3, syncHigh: 0, streamId: 0 })
    expect(decodeValue(next.frames[0]!.body)).toEqual(new Map([[Key.functionName, 'f']]))
  })
})
