// Clients that know one address. Behind it the master is changed while they work; they do not notice.
import { startCluster } from '@orbweaver/cluster'
import { connect } from '@orbweaver/connection'
import { hash2Of } from '@orbweaver/iproto'
import { createProxy } from '@orbweaver/proxy'

await using cluster = await startCluster({
  replicasets: 1,
  instances: 2,
  inProcess: true,
  vshard: false,
  identification: 'name',
  setUp: (storage) => {
    storage.define('create', () =>
      storage.createSpace('log', {
        format: [
          { name: 'number', type: 'unsigned' },
          { name: 'by', type: 'string' },
        ],
      }),
    )
    storage.define('append', (context, number) =>
      context.space<[number, string]>('log').insert([Number(number), storage.name]),
    )
    storage.define('count', (context) => context.space('log').count())
  },
})
const { user, password, replicasets } = cluster.config

await using proxy = createProxy({
  targets: Object.fromEntries(replicasets[0]!.instances.map(({ id, uri }) => [id, { uri }])),
  rw: 'a1',
  // What Tarantool keeps in _user; the passwords themselves are not needed.
  credentials: { mode: 'static', users: { [user]: Buffer.from(hash2Of(password)).toString('base64') } },
})
const address = await proxy.listen({ host: '127.0.0.1', port: 0 })

// To a client the proxy is a Tarantool.
await using client = await connect({ uri: address, user, password })
await client.call('create')

const writes: Promise<unknown>[] = []
const write = async (): Promise<void> => {
  writes.push(client.call('append', [writes.length + 1]))
  await writes.at(-1)
}
await write()

// A planned change: requests wait while those in flight end, then go on at the new master.
const change = proxy.failOverTo('a2', { promote: (name) => cluster.instance(name).promote() })
while (proxy.stats().rw !== 'a2') await write()
const { from, to, outcome } = await change
await write()
console.log(`${from} handed over to ${to}: ${outcome}`)

await Promise.all(writes)
const [count] = await client.call<[number]>('count')
console.log('every write arrived exactly once:', count === writes.length)
const by = new Set((await client.select<[number, string]>('log')).map(([, name]) => name))
console.log('written by', [...by].join(' and '))

const { clients, logins, failovers } = proxy.stats()
console.log({ clients, logins, failovers })

/* Prints:
 * a1 handed over to a2: ok
 * every write arrived exactly once: true
 * written by a1 and a2
 * { clients: 1, logins: 1, failovers: 1 }
 */
