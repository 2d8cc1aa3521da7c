// A cluster of embedded storages in processes of their own: one is killed, another takes over, the first comes back.
import { setTimeout as pause } from 'node:timers/promises'
import { startCluster, type ClusterInstance } from '@orbweaver/cluster'
import { connect } from '@orbweaver/connection'

await using cluster = await startCluster({ replicasets: 1, instances: 3, bucketCount: 300, identification: 'name' })
const { user, password, replicasets } = cluster.config

/** What an instance says about itself. */
async function ask(instance: ClusterInstance): Promise<{ isReadonly: boolean; buckets: number }> {
  await using connection = await connect({ uri: instance.uri, user, password, reconnect: false })
  const { is_ro: isReadonly, status } = (await connection.watchOnce('box.status')) as { is_ro: boolean; status: string }
  // While it fetches what the others have, it lets nobody read.
  if (status !== 'running') return { isReadonly, buckets: 0 }
  const [buckets] = await connection.call<[number]>('vshard.storage.buckets_count')
  return { isReadonly, buckets }
}

for (const { id, instances } of replicasets) {
  console.log(`replicaset ${id}: ${instances.map(({ name }) => name).join(', ')}; master ${cluster.masterOf(id).name}`)
}
console.log('a1:', await ask(cluster.instance('a1')))

await cluster.instance('a1').kill()
console.log('a1 is running:', cluster.instance('a1').isRunning)

await cluster.instance('a2').promote()
console.log('a2, promoted:', await ask(cluster.masterOf('a')))

// What is restarted comes back empty and gets everything from the others.
await cluster.instance('a1').restart()
let returned = await ask(cluster.instance('a1'))
while (returned.buckets < 300) {
  await pause(10)
  returned = await ask(cluster.instance('a1'))
}
console.log('a1, back again:', returned)

/* Prints:
 * replicaset a: a1, a2, a3; master a1
 * a1: { isReadonly: false, buckets: 300 }
 * a1 is running: false
 * a2, promoted: { isReadonly: false, buckets: 300 }
 * a1, back again: { isReadonly: true, buckets: 300 }
 */
