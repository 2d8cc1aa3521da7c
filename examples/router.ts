// A sharded cluster: each row belongs to a bucket, the router knows which replicaset has it.
import { startCluster, type SetUp } from '@orbweaver/cluster'
import { isOrbweaverError } from '@orbweaver/iproto'
import { createRouter } from '@orbweaver/router'

type Customer = [id: number, bucketId: number, name: string]

/** What the application runs on every storage. */
const setUp: SetUp = (storage) => {
  storage.define('create', () => {
    storage.createSpace('customers', {
      format: [
        { name: 'id', type: 'unsigned' },
        { name: 'bucket_id', type: 'unsigned' },
        { name: 'name', type: 'string' },
      ],
      ifNotExists: true,
    })
  })
  storage.define('customer.put', (context, customer) =>
    context.space<Customer>('customers').replace(customer as Customer),
  )
  storage.define('customer.get', (context, id) => context.space<Customer>('customers').get([id]) ?? null)
}

await using cluster = await startCluster({
  replicasets: 2,
  instances: 2,
  bucketCount: 100,
  inProcess: true,
  identification: 'name',
  setUp,
})

await using router = createRouter({ config: cluster.config })
await router.ready()
for (const { id, buckets } of router.info().replicasets) console.log(`replicaset ${id} has ${buckets} buckets`)
await router.mapCallrw('create')

// The same key is always in the same bucket, for every router in whatever language.
for (const [id, name] of [
  [1, 'Ann'],
  [2, 'Bob'],
  [3, 'Cem'],
] as const) {
  const bucketId = router.bucketId(id)
  await router.callrw(bucketId, 'customer.put', [[id, bucketId, name]])
  console.log(`${name} is in bucket ${bucketId}, on replicaset ${router.locate(bucketId)}`)
}

const [bob] = await router.callro<[Customer | null]>(router.bucketId(2), 'customer.get', [2])
console.log('read from a replica or the master:', bob)

try {
  await router.callrw(router.bucketId(4), 'customer.remove', [4])
} catch (error) {
  if (!isOrbweaverError(error)) throw error
  console.log(`${error.code}: ${error.message}`)
}

/* Prints:
 * replicaset a has 50 buckets
 * replicaset b has 50 buckets
 * Ann is in bucket 14, on replicaset a
 * Bob is in bucket 86, on replicaset b
 * Cem is in bucket 11, on replicaset a
 * read from a replica or the master: [ 2, 86, 'Bob' ]
 * ORB_BOX: Procedure 'customer.remove' is not defined
 */
