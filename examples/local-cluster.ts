// A cluster of embedded storages in processes of their own: one is killed, another takes over, the first comes back.
import { startCluster, type ClusterInstance } from '@orbweaver/cluster'
import { connect } from '@orbweaver/connection'

await using cluster = await startCluster({ replicasets: 1, instances: 3, bucketCount: 300, identification: 'name' })
const { user, password, replicasets } = cluster.config

/** What an instance says about itself. */
async function ask(instance: ClusterInstance): Promise<string> {
  await using connection = await connect({ uri: instance.uri, user, password, reconnect: false })
  const status = (await connection.watchOnce('box.status')) as { is_ro: boolean }
  const [buckets] = await connection.call<[number]>('vshard.storage.buckets_count')
  return `${instance.name} ${status.is_ro ? 'reads' : 'takes writes'}, ${buckets} buckets`
}

for (const { id, instances } of replicasets) {
  console.log(`replicaset ${id}: ${instances.map(({ name }) => name).join(', ')}; master ${cluster.masterOf(id).name}`)
}
console.log(await ask(cluster.instance('a1')))

await cluster.instance('a1').kill()
console.log('a1 runs:', cluster.instance('a1').isRunning)

await cluster.instance('a2').promote()
console.log(await ask(cluster.masterOf('a')))

await cluster.instance('a1').restart()
console.log(await ask(cluster.instance('a1')))

/* Prints:
 */
