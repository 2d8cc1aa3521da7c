// Rows of all shards in one order, page by page, while buckets move; and buckets that are kept from moving.
import { startCluster, type SetUp } from '@orbweaver/cluster'
import { createRouter, merge } from '@orbweaver/router'

type City = [name: string, bucketId: number, people: number]

const PEOPLE: Readonly<Record<string, number>> = {
  Lagos: 15_388_000,
  Lima: 9_751_717,
  Kano: 3_626_068,
  Kyoto: 1_463_723,
  Arequipa: 1_008_290,
  Oslo: 709_037,
  Bergen: 291_940,
}

const setUp: SetUp = (storage) => {
  storage.define('create', () => {
    storage.createSpace('cities', {
      format: [
        { name: 'name', type: 'string' },
        { name: 'bucket_id', type: 'unsigned' },
        { name: 'people', type: 'unsigned' },
      ],
      indexes: [
        { name: 'name', parts: ['name'] },
        { name: 'bucket_id', parts: ['bucket_id'], isUnique: false },
        { name: 'people', parts: ['people'], isUnique: false },
      ],
    })
  })
  storage.define('who', () => storage.name)
  storage.define('city.put', (context, city) => context.space<City>('cities').replace(city as City))
}

await using cluster = await startCluster({
  replicasets: 3,
  instances: 1,
  bucketCount: 90,
  inProcess: true,
  identification: 'name',
  setUp,
})
await using router = createRouter({ config: cluster.config })
await router.mapCallrw('create')
for (const [name, people] of Object.entries(PEOPLE)) {
  const bucketId = router.bucketId(name)
  await router.callrw(bucketId, 'city.put', [[name, bucketId, people]])
}

/** Moves the bucket of a city to another replicaset. */
async function move(city: string, options: { timeout: number }): Promise<boolean> {
  const bucketId = router.bucketId(city)
  // A call finds out where it is by now.
  await router.callrw(bucketId, 'who')
  const from = await router.route(bucketId)
  const to = from.id === 'c' ? 'a' : 'c'
  const [isMoved] = await from.callrw('vshard.storage.bucket_send', [bucketId, to, options])
  return isMoved === true
}

// The largest first. The cursor is the last row that was shown, wherever rows are by then.
let page = 0
for await (const { rows, hasMore } of router.selectPages<City>('cities', {
  index: 'people',
  iterator: 'LE',
  pageSize: 3,
})) {
  page += 1
  console.log(`page ${page}: ${rows.map(([name]) => name).join(', ')}${hasMore ? ' …' : ''}`)
  await move('Lima', { timeout: 5 })
  await move('Oslo', { timeout: 5 })
}

// A page from anywhere: what stands in front of a row.
const { value } = await router.selectPages<City>('cities', { before: ['Kyoto', 0, 0], pageSize: 2 }).next()
console.log('before Kyoto:', value?.rows.map(([name]) => name).join(', '))

// While buckets are held nothing moves.
{
  await using hold = await router.holdBuckets({ timeout: 5_000 })
  console.log('held, moved:', await move('Lima', { timeout: 0.2 }), '- lost:', hold.signal.aborted)
}
console.log('released, moved:', await move('Lima', { timeout: 5 }))

// Ordered lists of any kind become one.
for await (const number of merge(
  [
    [1, 2, 3],
    [4, 5, 6],
  ],
  (a, b) => a - b,
  { limit: 4 },
))
  console.log(number)

/* Prints:
 * page 1: Lagos, Lima, Kano …
 * page 2: Kyoto, Arequipa, Oslo …
 * page 3: Bergen
 * before Kyoto: Bergen, Kano
 * held, moved: false - lost: false
 * released, moved: true
 * 1
 * 2
 * 3
 * 4
 */
