/* Logins: field cases 3 and 4, and the table of section 6 of the design. */
import {
  authGuestRequest,
  authRequest,
  callRequest,
  chapSha1,
  chapSha1FromHash1,
  encodeValue,
  hash1Of,
  hash2Of,
  Key,
  pingRequest,
  rawRequest,
  RequestType,
} from '@orbweaver/iproto'
import { afterEach, describe, expect, it } from 'vitest'
import { type RawClient, Scene, type SceneOptions } from './scene.js'

let scene: Scene
afterEach(() => scene.close())

function start(options: SceneOptions = {}): Scene {
  scene = new Scene(options)
  // Every call is answered with the user of the session it arrived in.
  for (const peer of Object.values(scene.peers)) {
    peer.handle(RequestType.call, (request) => request.reply([request.session.user]))
  }
  return scene
}

async function userOf(client: RawClient): Promise<unknown> {
  return ((await client.ask(callRequest('who'))).body.value(Key.data) as unknown[])[0]
}

async function codeOf(client: RawClient, user: string, password: string): Promise<number> {
  const reply = await client.ask(client.auth(user, password))
  return reply.type === 0 ? 0 : reply.error.boxCode
}

describe('a login', () => {
  it('gives each client a salt of its own, and a proof made for another is refused', async () => {
    start()
    const [one, two] = [await scene.client(), await scene.client()]
    expect(one.salt).not.toEqual(two.salt)
    expect((await one.ask(one.auth('alice', 'secret'))).type).toBe(0)
    // A replay of the proof that was good for the first.
    const replayed = await two.ask(authRequest('alice', 'chap-sha1', chapSha1(one.salt, 'secret')))
    expect(replayed.error.boxCode).toBe(47)
    expect(await userOf(two)).toBe('guest')
  })

  it('is needed by every client, whatever others have proved', async () => {
    start()
    await scene.login()
    const wrong = await scene.client()
    expect(await codeOf(wrong, 'alice', 'wrong')).toBe(47)
    expect(await codeOf(wrong, 'alice', '')).toBe(47)
    expect(await codeOf(wrong, 'nobody', 'secret')).toBe(47)
    expect(await userOf(wrong)).toBe('guest')
    expect(await userOf(await scene.client())).toBe('guest')
  })

  it('says the same of a wrong password and of an unknown user', async () => {
    start()
    const client = await scene.client()
    const wrong = (await client.ask(client.auth('alice', 'wrong'))).error
    const unknown = (await client.ask(client.auth('nobody', 'wrong'))).error
    expect([wrong.boxCode, wrong.message]).toEqual([unknown.boxCode, unknown.message])
    expect(wrong.message).toBe('User not found or supplied credentials are invalid')
  })

  it('cannot be made with the stored hash alone', async () => {
    start()
    const client = await scene.client()
    const forged = await client.ask(
      authRequest('alice', 'chap-sha1', chapSha1FromHash1(client.salt, hash2Of('secret'))),
    )
    expect(forged.error.boxCode).toBe(47)
    const real = await client.ask(authRequest('alice', 'chap-sha1', chapSha1FromHash1(client.salt, hash1Of('secret'))))
    expect(real.type).toBe(0)
  })

  it('switches the user, back to guest too, and a failed one keeps the user there was', async () => {
    start()
    const client = await scene.login('alice')
    expect(await userOf(client)).toBe('alice')
    expect(await codeOf(client, 'bob', 'wrong')).toBe(47)
    expect(await userOf(client)).toBe('alice')
    expect(await codeOf(client, 'bob', 'b')).toBe(0)
    expect(await userOf(client)).toBe('bob')
    expect((await client.ask(authGuestRequest())).type).toBe(0)
    expect(await userOf(client)).toBe('guest')
  })

  it('applies to what is sent behind it, and not to what was sent before', async () => {
    start()
    const client = await scene.client()
    client.send(callRequest('who'), 1)
    client.send(client.auth('alice', 'secret'), 2)
    client.send(callRequest('who'), 3)
    client.send(client.auth('bob', 'b'), 4)
    client.send(callRequest('who'), 5)
    const users = []
    for (const sync of [1, 3, 5]) users.push((await client.reply(sync)).body.value(Key.data))
    expect(users).toEqual([['guest'], ['alice'], ['bob']])
  })

  it('ends the connection after five failures, each slower than the last', async () => {
    start()
    const client = await scene.client()
    const startedAt = scene.clock.now()
    for (let i = 0; i < 5; i++) expect(await codeOf(client, 'alice', `wrong ${i}`)).toBe(47)
    await scene.clock.until(() => client.isEnded)
    expect(scene.clock.now() - startedAt).toBeGreaterThanOrEqual(50 + 100 + 200 + 400 + 800)
  })

  it.each<[string, Buffer, number]>([
    ['without a body', Buffer.alloc(0), 69],
    ['without a tuple', Buffer.from('8123a5616c696365', 'hex'), 69],
    [
      'of an unknown method',
      Buffer.concat([Buffer.from('8223a5616c69636521', 'hex'), encodeValue(['ldap', 'x'])]),
      249,
    ],
    [
      'with a proof of another size',
      Buffer.concat([Buffer.from('8223a5616c69636521', 'hex'), encodeValue(['chap-sha1', 'x'])]),
      251,
    ],
    ['with one element', Buffer.concat([Buffer.from('8223a5616c69636521', 'hex'), encodeValue(['chap-sha1'])]), 20],
    ['that is no map', Buffer.of(0x91, 0x01), 20],
  ])('%s is answered with the code of a server', async (_name, body, code) => {
    start()
    const client = await scene.client()
    expect((await client.ask(rawRequest(RequestType.auth, 'session', body))).error.boxCode).toBe(code)
    expect(await userOf(client)).toBe('guest')
  })
})

describe('confirming a login at the storage', () => {
  it('refuses the old password once the storage has a new one, also where a lane of the old one is open', async () => {
    start()
    const before = await scene.login()
    expect(await userOf(before)).toBe('alice')
    scene.peer().users = { alice: 'changed' }
    const after = await scene.client()
    expect(await codeOf(after, 'alice', 'secret')).toBe(47)
    expect(scene.proxy.stats()).toMatchObject({ staleLogins: 1, lanes: 1 })
    // Who had logged in before goes on, as at a server.
    expect(await userOf(before)).toBe('alice')
  })

  it('asks over the lane there is: one round trip and no new connection', async () => {
    start()
    await scene.login()
    const sessions = scene.peer().sessions.length
    await scene.login()
    expect(scene.peer().sessions).toHaveLength(sessions)
  })

  it('asks nobody under `never`, and within its time under `ttl`', async () => {
    start({
      credentials: {
        mode: 'static',
        users: { alice: Buffer.from(hash2Of('secret')).toString('base64') },
        verify: 'ttl',
      },
    })
    await scene.login()
    scene.peer().users = { alice: 'changed' }
    const second = await scene.client()
    expect(await codeOf(second, 'alice', 'secret')).toBe(0)
    await scene.clock.advance(11_000)
    const third = await scene.client()
    expect(await codeOf(third, 'alice', 'secret')).toBe(47)
  })

  it('answers 77 when the storage cannot be reached, and the client stays who it was', async () => {
    start({ version: '3.2.1' })
    scene.peer().refusal = new Error('connection refused')
    const client = await scene.client()
    const reply = await client.ask(client.auth('alice', 'secret'))
    expect([reply.error.boxCode, reply.error.fields.get('sent')]).toEqual([77, false])
    scene.peer().refusal = undefined
    await scene.clock.advance(6_000)
    expect(await codeOf(client, 'alice', 'secret')).toBe(0)
  })

  it('passes on other refusals of the storage', async () => {
    start()
    scene.peer().handle(RequestType.auth, (request) => request.error(42, 'Session access is denied'))
    const client = await scene.client()
    expect(await codeOf(client, 'alice', 'secret')).toBe(42)
  })

  it('refuses clients of a login whose password was changed when their lane has to be opened again', async () => {
    start()
    const client = await scene.login()
    const other = await scene.login('bob')
    scene.peer().users = { alice: 'changed', bob: 'b' }
    const logins = (): number => scene.peer().sessions.length
    scene.peer().cut()
    await scene.clock.settle()
    const reply = await client.ask(callRequest('who'))
    expect(reply.error.boxCode).toBe(47)
    await scene.clock.until(() => client.isEnded)
    expect(await userOf(other)).toBe('bob')
    // A client with the new password cannot get in before the list knows it, and that costs no login at the storage.
    const count = logins()
    const late = await scene.client()
    expect(await codeOf(late, 'alice', 'changed')).toBe(47)
    expect(logins()).toBe(count)
  })

  it('goes on for a client that was idle for longer than everything that is kept for it', async () => {
    start()
    const client = await scene.login()
    await scene.clock.advance(3_600_000)
    expect(scene.proxy.stats().lanes).toBe(0)
    expect(await userOf(client)).toBe('alice')
  })

  it('overwrites the secret of a login that nobody uses any more', async () => {
    start({ limits: { forgetAfterMs: 1_000 } })
    const client = await scene.login()
    expect(scene.proxy.stats().lanes).toBe(1)
    client.transport.destroy()
    await scene.clock.advance(1_500)
    expect(scene.proxy.stats().lanes).toBe(0)
    expect(await userOf(await scene.login())).toBe('alice')
  })
})

describe('a new master that does not know a user yet', () => {
  it('makes only that user wait or fail, and nobody has to come again', async () => {
    start({ peers: { a: {}, b: { users: { bob: 'b' } } } })
    const [alice, bob] = [await scene.login(), await scene.login('bob')]
    scene.proxy.setRw('b')
    expect(await userOf(bob)).toBe('bob')
    const refused = await alice.ask(callRequest('who'))
    expect(refused.error.boxCode).toBe(47)
    expect(alice.isEnded).toBe(false)
    scene.peer('b').users = { bob: 'b', alice: 'secret' }
    await scene.clock.advance(5_000)
    expect(await userOf(alice)).toBe('alice')
    expect((await bob.ask(pingRequest())).type).toBe(0)
  })
})
