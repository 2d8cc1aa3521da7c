/* Who a connection is, and how it gets there, on a real server. */
import { connect as connectSocket, createServer, type Server } from 'node:net'
import { join } from 'node:path'
import { AuthError, connect, ConnectError, createConnection, socketTransport } from '@orbweaver/connection'
import { type BoxError, hash1Of } from '@orbweaver/iproto'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { isAtLeast, missingTarantool, startTarantool, type TarantoolServer, tarantoolVersion } from '../tarantool.js'
import { SETUP } from './setup.js'

const title = missingTarantool === undefined ? `on Tarantool ${tarantoolVersion}` : `(${missingTarantool})`

describe.skipIf(missingTarantool !== undefined)(`Sessions ${title}`, () => {
  let server: TarantoolServer
  beforeAll(async () => {
    server = await startTarantool({
      lua: `${SETUP}
        require('console').listen(box.cfg.work_dir .. '/console.sock')`,
      unixSocket: isAtLeast(2, 10),
    })
  })
  afterAll(() => server.stop())

  const logins: readonly [user: string, password: string][] = [
    ['alice', 'secret'],
    ['пользователь', '✓:@/?#%'],
    ['odd', '?'],
    ['odder', '}p{'],
    ['empty', ''],
  ]
  it.each(logins)('runs as %s with the password %j, by options and by address', async (user, password) => {
    await using byOptions = await connect(server.uri, { user, password })
    expect(await byOptions.call('whoami')).toEqual([user])
    await using byUri = await connect(`${encodeURIComponent(user)}:${encodeURIComponent(password)}@${server.uri}`)
    expect(await byUri.call('whoami')).toEqual([user])
    await using byHash = await connect({ uri: server.uri, user, hash1: hash1Of(password) })
    expect(await byHash.call('whoami')).toEqual([user])
  })

  it('is guest when nobody is named, or guest is', async () => {
    await using nobody = await connect(server.uri)
    expect(await nobody.call('whoami')).toEqual(['guest'])
    await using guest = await connect(`guest@${server.uri}`)
    expect(await guest.call('whoami')).toEqual(['guest'])
  })

  const refusals: readonly [name: string, user: string, password: string | undefined][] = [
    ['a wrong password', 'alice', 'wrong'],
    ['no password', 'alice', undefined],
    ['an empty password', 'alice', ''],
    ['an unknown user', 'nobody', 'x'],
    ['an account without a password', 'nopassword', 'x'],
    ['guest with a password it does not have', 'guest', 'x'],
  ]
  it.each(refusals)('fails with the server’s answer for %s, never as guest', async (_name, user, password) => {
    const error = await connect({ uri: server.uri, user, ...(password === undefined ? {} : { password }) }).then(
      () => undefined,
      (thrown: unknown) => thrown as AuthError,
    )
    expect(error).toBeInstanceOf(AuthError)
    // 2.x tells unknown users apart (45); both mean that this login is refused.
    expect([45, 47]).toContain((error?.cause as BoxError | undefined)?.boxCode)
    expect(error?.executed).toBe('no')
  })

  it('heals by itself after the password was corrected on the server', async () => {
    await using admin = await connect(server.uri)
    const connection = createConnection({
      uri: server.uri,
      user: 'odd',
      password: 'changed',
      reconnect: { maxDelayMs: 100 },
    })
    await expect(connection.ping()).rejects.toBeInstanceOf(AuthError)
    await admin.eval(`box.schema.user.passwd('odd', 'changed')`)
    await connection.connect().catch(() => connection.connect())
    expect(await connection.call('whoami')).toEqual(['odd'])
    await connection.close()
    await admin.eval(`box.schema.user.passwd('odd', '?')`)
  })

  it('knows its server: version, instance, features', async () => {
    await using connection = await connect(server.uri)
    const [uuid] = await connection.eval<[string]>('return box.info.uuid')
    expect(connection.peerUuid).toBe(uuid)
    expect(connection.serverVersion).toMatch(new RegExp(`^${tarantoolVersion.replaceAll('.', '\\.')}`))
  })

  it('tries all addresses of a name', async () => {
    await using connection = await connect(`localhost:${String(server.port)}`)
    await connection.ping()
  })

  it('goes over a socket that was brought along', async () => {
    await using connection = await connect({
      uri: { connect: () => socketTransport(connectSocket(server.port, '127.0.0.1')) },
    })
    await connection.ping()
  })

  it.skipIf(!isAtLeast(2, 10))('goes over a unix socket in every spelling', async () => {
    const path = join(server.dir, 'iproto.sock')
    for (const uri of [`unix/:${path}`, path, `alice:secret@${path}`, `alice:secret@unix/:${path}`]) {
      await using connection = await connect(uri)
      expect(await connection.call('whoami')).toEqual([uri.startsWith('alice') ? 'alice' : 'guest'])
    }
  })

  it('says that a text console is none of its kind, promptly', async () => {
    const started = performance.now()
    await expect(connect(join(server.dir, 'console.sock'))).rejects.toMatchObject({
      code: 'ORB_CONNECT',
      message: expect.stringMatching(/console/i) as string,
    })
    expect(performance.now() - started).toBeLessThan(4_000)
  })
})

describe('Peers that are no Tarantool', () => {
  const servers: Server[] = []
  afterAll(() => {
    for (const server of servers) server.close()
  })

  async function serve(onSocket: Parameters<typeof createServer>[1]): Promise<number> {
    const server = createServer({ allowHalfOpen: true }, onSocket)
    servers.push(server)
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    const address = server.address()
    return address !== null && typeof address === 'object' ? address.port : 0
  }

  it('a closed port fails with the system’s error and the address', async () => {
    const port = await serve(() => undefined)
    await new Promise((resolve) => servers.pop()?.close(resolve))
    const error = await connect(`127.0.0.1:${String(port)}`).then(
      () => undefined,
      (thrown: unknown) => thrown as ConnectError,
    )
    expect(error).toBeInstanceOf(ConnectError)
    expect(error).toMatchObject({ stage: 'dial', peer: `127.0.0.1:${String(port)}`, cause: { code: 'ECONNREFUSED' } })
  })

  it('a web server is named as one', async () => {
    const port = await serve((socket) => socket.end('HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n'))
    await expect(connect(`127.0.0.1:${String(port)}`)).rejects.toThrow(/HTTP/)
  })

  it('one that accepts and stays silent fails at the deadline with the stage, and its socket is closed', async () => {
    let closed = 0
    const port = await serve((socket) => {
      socket.on('close', () => (closed += 1))
      socket.on('end', () => socket.end())
      socket.resume()
    })
    await expect(connect({ uri: `127.0.0.1:${String(port)}`, connectTimeoutMs: 200 })).rejects.toMatchObject({
      stage: 'greeting',
    })
    await expect.poll(() => closed).toBe(1)
  })

  it('one that closes in the middle of its greeting is told apart', async () => {
    const port = await serve((socket) => socket.end('Tarantool 2.11.5 (Binary)'))
    await expect(connect(`127.0.0.1:${String(port)}`)).rejects.toThrow(/25 of the 128 bytes/)
  })
})
