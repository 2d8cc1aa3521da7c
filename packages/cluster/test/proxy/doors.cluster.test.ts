/* How clients come in over real sockets: TLS, headers of load balancers, limits by address; and TLS towards a target. */
import { connect as connectPlain, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { type Connection, connect, socketTransport, type Transport } from '@orbweaver/connection'
import { hash2Of } from '@orbweaver/iproto'
import { createProxy, type ListenOptions, type Proxy, type ProxyOptions } from '@orbweaver/proxy'
import { createStorage, type Storage } from '@orbweaver/storage'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { CERT, KEY } from './tls-fixture.js'

let storage: Storage
const proxies: Proxy[] = []
const clients: Connection[] = []

beforeEach(() => {
  storage = createStorage({ name: 'one', users: { alice: { password: 'secret', rights: 'super' } } })
  storage.define('who', (context) => context.session.user)
})

afterEach(async () => {
  for (const client of clients.splice(0)) client.destroy()
  for (const proxy of proxies.splice(0)) await proxy.close({ graceMs: 0 })
  await storage.close({ graceMs: 0 })
})

async function start(options: ProxyOptions): Promise<{ proxy: Proxy; port: number }> {
  const proxy = createProxy({
    targets: { one: { embedded: storage } },
    rw: 'one',
    credentials: { mode: 'storage' },
    ...options,
  })
  proxies.push(proxy)
  const address = await proxy.listen()
  if (!('port' in address)) throw new TypeError('A port was asked for')
  return { proxy, port: address.port }
}

const door = (more: object = {}): readonly ListenOptions[] => [{ host: '127.0.0.1', port: 0, ...more }]

async function alice(transport: () => Transport): Promise<Connection> {
  const client = await connect({ uri: { connect: transport }, user: 'alice', password: 'secret', reconnect: false })
  clients.push(client)
  return client
}

function over(socket: Socket): () => Transport {
  return () => socketTransport(socket)
}

describe('a listener with TLS', () => {
  it('serves clients that trust its certificate', async () => {
    const { port } = await start({ listen: door({ tls: { cert: CERT, key: KEY } }) })
    const client = await alice(over(connectTls({ host: '127.0.0.1', port, ca: CERT })))
    expect(await client.call('who')).toEqual(['alice'])
  })

  it('takes those only that show a certificate, where one is asked for', async () => {
    const { proxy, port } = await start({ listen: door({ tls: { cert: CERT, key: KEY, ca: CERT } }) })
    await expect(alice(over(connectTls({ host: '127.0.0.1', port, ca: CERT })))).rejects.toThrow(/Cannot connect/)
    expect(proxy.stats().clients).toBe(0)
    const client = await alice(over(connectTls({ host: '127.0.0.1', port, ca: CERT, cert: CERT, key: KEY })))
    expect(await client.call('who')).toEqual(['alice'])
  })

  it('closes who speaks without it, and goes on', async () => {
    const { port } = await start({ listen: door({ tls: { cert: CERT, key: KEY } }) })
    const plain = connectPlain({ host: '127.0.0.1', port })
    plain.on('error', () => undefined)
    plain.write('GET / HTTP/1.1\r\n\r\n')
    await new Promise((resolve) => plain.once('close', resolve))
    const client = await alice(over(connectTls({ host: '127.0.0.1', port, ca: CERT })))
    expect(await client.call('who')).toEqual(['alice'])
  })

  it('asks for more from the next connection on, when it is reconfigured so', async () => {
    const { proxy, port } = await start({ listen: door({ tls: { cert: CERT, key: KEY } }) })
    const before = await alice(over(connectTls({ host: '127.0.0.1', port, ca: CERT })))
    const { changes } = await proxy.reconfigure({
      targets: { one: { embedded: storage } },
      rw: 'one',
      credentials: { mode: 'storage' },
      listen: door({ tls: { cert: CERT, key: KEY, ca: CERT } }),
    })
    expect(changes).toEqual(['listen 127.0.0.1:0'])
    expect(await before.call('who')).toEqual(['alice'])
    await expect(alice(over(connectTls({ host: '127.0.0.1', port, ca: CERT })))).rejects.toThrow(/Cannot connect/)
    const after = await alice(over(connectTls({ host: '127.0.0.1', port, ca: CERT, cert: CERT, key: KEY })))
    expect(await after.call('who')).toEqual(['alice'])
  })

  it('is refused with a certificate that is none', () => {
    expect(() => createProxy({ listen: door({ tls: { cert: 'x', key: KEY } }) })).toThrow(/listen\[0\]\.tls/)
  })
})

describe('TLS towards a target', () => {
  it('reaches another proxy that asks for it', async () => {
    const inner = await start({ listen: door({ tls: { cert: CERT, key: KEY } }) })
    const { port } = await start({
      listen: door(),
      targets: { inner: { uri: `127.0.0.1:${inner.port}`, tls: { ca: CERT } } },
      rw: 'inner',
      credentials: { mode: 'static', users: { alice: Buffer.from(hash2Of('secret')).toString('base64') } },
    })
    const client = await alice(over(connectPlain({ host: '127.0.0.1', port })))
    expect(await client.call('who')).toEqual(['alice'])
  })

  it('does not trust a certificate that nobody vouches for', async () => {
    const inner = await start({ listen: door({ tls: { cert: CERT, key: KEY } }) })
    const { proxy, port } = await start({
      listen: door(),
      targets: { inner: { uri: `127.0.0.1:${inner.port}`, tls: {} } },
      rw: 'inner',
      limits: { connectWaitMs: 300 },
    })
    const client = await connect({ uri: `127.0.0.1:${port}`, reconnect: false })
    clients.push(client)
    await expect(client.ping()).rejects.toThrow(/cannot be reached/)
    expect(proxy.stats().targets[0]?.lastFailure).toMatch(/self.signed/)
  })
})

describe('a listener behind a load balancer', () => {
  const trusted = { proxyProtocol: { trusted: ['127.0.0.0/8'] } }

  it('knows clients by the header in front', async () => {
    const { proxy, port } = await start({ listen: door(trusted) })
    const socket = connectPlain({ host: '127.0.0.1', port })
    socket.write('PROXY TCP4 192.0.2.7 198.51.100.1 4242 3301\r\n')
    const client = await alice(over(socket))
    expect(await client.call('who')).toEqual(['alice'])
    expect(proxy.clients().map(({ peer }) => peer)).toEqual(['192.0.2.7:4242'])
  })

  it('reads it before TLS', async () => {
    const { proxy, port } = await start({ listen: door({ ...trusted, tls: { cert: CERT, key: KEY } }) })
    const socket = connectPlain({ host: '127.0.0.1', port })
    socket.write(Buffer.from('0d0a0d0a000d0a515549540a2111000cc0000208c633640110920ce5', 'hex'))
    const client = await alice(over(connectTls({ socket, servername: 'localhost', ca: CERT })))
    expect(await client.call('who')).toEqual(['alice'])
    expect(proxy.clients().map(({ peer }) => peer)).toEqual(['192.0.2.8:4242'])
  })

  it('closes who puts none in front, and believes it to nobody else', async () => {
    const { port } = await start({ listen: door(trusted) })
    const bare = connectPlain({ host: '127.0.0.1', port })
    bare.on('error', () => undefined)
    bare.write(Buffer.from('ce00000005', 'hex'))
    await new Promise((resolve) => bare.once('close', resolve))

    const elsewhere = await start({ listen: door({ proxyProtocol: { trusted: ['192.0.2.0/24'] } }) })
    const client = await alice(over(connectPlain({ host: '127.0.0.1', port: elsewhere.port })))
    expect(await client.call('who')).toEqual(['alice'])
    expect(elsewhere.proxy.clients()[0]?.peer).toMatch(/^127\.0\.0\.1:/)
  })

  it('counts clients by the address of the header', async () => {
    const { port } = await start({ listen: door(trusted), limits: { maxClientsPerAddress: 1 } })
    const from = (host: string): (() => Transport) => {
      const socket = connectPlain({ host: '127.0.0.1', port })
      socket.write(`PROXY TCP4 ${host} 198.51.100.1 4242 3301\r\n`)
      return over(socket)
    }
    const first = await alice(from('192.0.2.1'))
    await expect(alice(from('192.0.2.1'))).rejects.toThrow(/1 clients from one address/)
    expect(await (await alice(from('192.0.2.2'))).call('who')).toEqual(['alice'])
    first.destroy()
    await expect
      .poll(async () =>
        alice(from('192.0.2.1')).then(
          () => true,
          () => false,
        ),
      )
      .toBe(true)
  })
})

describe('a direct listener', () => {
  it('gives the calls of its clients to the master, whatever router is served', async () => {
    const { proxy, port } = await start({ listen: [...door({ isDirect: true }), ...door()] })
    const refuse = (): Promise<never> => Promise.reject(new Error('nobody asked'))
    const served = (): Promise<unknown[]> => Promise.resolve(['served'])
    proxy.serve(
      {
        callrw: served,
        callro: refuse,
        callbro: refuse,
        callre: refuse,
        callbre: refuse,
        mapCallrw: refuse,
        bucketIdMpcrc32: () => 1,
        bucketIdStrcrc32: () => 1,
      },
      { users: ['alice'] },
    )
    const [direct] = proxy.addresses
    if (direct === undefined || !('port' in direct)) throw new TypeError('A port was asked for')
    const client = await alice(over(connectPlain({ host: '127.0.0.1', port: direct.port })))
    await expect(client.call('vshard.router.callrw', [1, 'who'])).rejects.toThrow(/not defined/)
    const other = await alice(over(connectPlain({ host: '127.0.0.1', port })))
    expect(await other.call('vshard.router.callrw', [1, 'who'])).toEqual(['served'])
  })
})

describe('users of the embedded master', () => {
  it('log in with the passwords of the moment', async () => {
    const { port } = await start({ listen: door() })
    const login = (password: string): Promise<Connection> =>
      connect({ uri: `127.0.0.1:${port}`, user: 'alice', password, reconnect: false })
    const client = await login('secret')
    clients.push(client)
    expect(await client.call('who')).toEqual(['alice'])
    await expect(login('wrong')).rejects.toThrow(/credentials are invalid/)
    storage.setUser('alice', { password: 'changed', rights: 'super' })
    await expect(login('secret')).rejects.toThrow(/credentials are invalid/)
    const again = await login('changed')
    clients.push(again)
    expect(await again.call('who')).toEqual(['alice'])
  })
})
