// Over all shards at once, each bucket counted exactly once: references hold the buckets where they are meanwhile.
import { startCluster, type SetUp } from '@orbweaver/cluster'
import { createRouter, merge } from '@orbweaver/router'

type City = [name: string, country: string, people: number]

const CITIES: readonly City[] = [
  ['Lagos', 'NG', 15_388_000],
  ['Kano', 'NG', 3_626_068],
  ['Lima', 'PE', 9_751_717],
  ['Arequipa', 'PE', 1_008_290],
  ['Oslo', 'NO', 709_037],
  ['Bergen', 'NO', 291_940],
  ['Kyoto', 'JP', 1_463_723],
]

const setUp: SetUp = (storage) => {
  const cities = () => storage.space<City>('cities')
  storage.define('create', () => {
    storage.createSpace('cities', {
      format: [
        { name: 'name', type: 'string' },
        { name: 'country', type: 'string' },
        { name: 'people', type: 'unsigned' },
      ],
    })
  })
  storage.define('city.put', (_context, city) => cities().replace(city as City))
  // The map: what one storage knows.
  storage.define('people_by_country', () => {
    const people = new Map<string, number>()
    for (const [, country, count] of cities().select()) people.set(country, (people.get(country) ?? 0) + count)
    return people
  })
  storage.define('largest', () =>
    cities()
      .select()
      .sort((a, b) => b[2] - a[2]),
  )
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
await Promise.all(CITIES.map((city) => router.callrw(router.bucketId(city[0]), 'city.put', [city])))

// The reduce: one answer of each replicaset.
const total = new Map<string, number>()
for (const [replicaset, [people]] of await router.mapCallrw<[Record<string, number>]>('people_by_country')) {
  console.log(`${replicaset} knows of ${Object.keys(people).sort().join(', ') || 'nobody'}`)
  for (const [country, count] of Object.entries(people)) total.set(country, (total.get(country) ?? 0) + count)
}
console.log(
  'in all:',
  [...total]
    .sort(([a], [b]) => a.localeCompare(b))
    .map(([country, count]) => `${country} ${count}`)
    .join(', '),
)

// Lists that are ordered each become one that is ordered as a whole, read only as far as needed.
const lists = await router.mapCallrw<[City[]]>('largest')
let rank = 0
for await (const [name] of merge(
  [...lists.values()].map(([cities]) => cities),
  (a, b) => b[2] - a[2],
  { limit: 3 },
)) {
  rank += 1
  console.log(`${rank}. ${name}`)
}

/* Prints:
 * a knows of PE
 * b knows of JP, NG, PE
 * c knows of NG, NO
 * in all: JP 1463723, NG 19014068, NO 1000977, PE 10760007
 * 1. Lagos
 * 2. Lima
 * 3. Kano
 */
