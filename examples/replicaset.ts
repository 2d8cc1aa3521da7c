// All instances of one replicaset behind one handle: writes find the master by themselves, also when it changes.
import { startCluster } from '@orbweaver/cluster'
import { createReplicaset } from '@orbweaver/replicaset'

await using cluster = await startCluster({
  replicasets: 1,
  instances: 3,
  inProcess: true,
  vshard: false,
  identification: 'name',
  setUp: (storage) => {
    // Spaces reach the replicas by replication; functions belong to each instance.
    storage.define('create', () =>
      storage.createSpace('counters', {
        format: [
          { name: 'name', type: 'string' },
          { name: 'value', type: 'unsigned' },
        ],
      }),
    )
    storage.define('increment', (context, name) => {
      const counters = context.space<[string, number]>('counters')
      counters.upsert([String(name), 1], [['+', 'value', 1]])
      return counters.get([String(name)])?.[1]
    })
    storage.define('who', () => storage.name)
  },
})
const { user, password, replicasets } = cluster.config

await using replicaset = createReplicaset({ definition: replicasets[0]!, user, password })
replicaset.on('master', ({ previous, master }) =>
  console.log(`the master is ${master ?? 'lost'}${previous === undefined ? '' : `, it was ${previous}`}`),
)

await replicaset.callrw('create')
console.log('written:', await replicaset.callrw('increment', ['visits']))

// Reads in turn from all replicas.
const readers = new Set<string>()
while (readers.size < 2) readers.add((await replicaset.callbre<[string]>('who'))[0])
console.log('read from:', [...readers].sort())

// The master goes away. Writes made meanwhile wait until another one is there; nothing fails, nothing runs twice.
await cluster.instance('a1').kill()
for await (const { master } of replicaset.changes()) if (master === undefined) break
const writes = Promise.all(Array.from({ length: 100 }, () => replicaset.callrw<[number]>('increment', ['visits'])))
console.log('waiting:', replicaset.stats().buffered.now)
await cluster.instance('a2').promote()
const values = (await writes).map(([value]) => value)
console.log(`${values.length} writes, the counter is at ${Math.max(...values)}`)

/* Prints:
 * the master is a1
 * written: [ 1 ]
 * read from: [ 'a2', 'a3' ]
 * the master is lost, it was a1
 * waiting: 100
 * the master is a2
 * 100 writes, the counter is at 101
 */
