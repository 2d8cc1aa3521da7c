/*
 * What the demo's storages can do: loaded by each instance, in its own process. set-up.lua has the same for
 * Tarantool; routers and clients do not notice.
 */
import type { SetUp } from '@orbweaver/cluster'
import type { FunctionContext } from '@orbweaver/storage'

/** [id, bucket_id, name, country, population, longitude, latitude] */
export type PlaceTuple = [number, number, string, string, number, number, number]
/** [id, bucket_id, place id] */
export type VisitTuple = [number, number, number]

export const setUp: SetUp = (storage) => {
  storage.define('demo.create_spaces', () => {
    storage.createSpace('place', {
      ifNotExists: true,
      format: [
        { name: 'id', type: 'unsigned' },
        { name: 'bucket_id', type: 'unsigned' },
        { name: 'name', type: 'string' },
        { name: 'country', type: 'string' },
        { name: 'population', type: 'unsigned' },
        { name: 'longitude', type: 'number' },
        { name: 'latitude', type: 'number' },
      ],
      indexes: [
        { name: 'id', parts: ['id'] },
        { name: 'bucket_id', parts: ['bucket_id'], isUnique: false },
        { name: 'population', parts: ['population', 'id'] },
      ],
    })
    storage.createSpace('visit', {
      ifNotExists: true,
      format: [
        { name: 'id', type: 'unsigned' },
        { name: 'bucket_id', type: 'unsigned' },
        { name: 'place_id', type: 'unsigned' },
      ],
      indexes: [
        { name: 'id', parts: ['id'] },
        { name: 'bucket_id', parts: ['bucket_id'], isUnique: false },
      ],
    })
    return true
  })
  storage.define('place.put', (context, places) => {
    const space = context.space<PlaceTuple>('place')
    context.atomic(() => {
      for (const place of places as PlaceTuple[]) space.replace(place)
    })
    return (places as PlaceTuple[]).length
  })
  storage.define('place.get', (context, id) => context.space<PlaceTuple>('place').get([id]))
  storage.define('place.count', (context) => context.space('place').count())
  storage.define('place.people_per_country', peoplePerCountry)
  storage.define('place.largest', (context, limit, after) =>
    context.space<PlaceTuple>('place').select([], {
      index: 'population',
      iterator: 'REQ',
      limit: Number(limit),
      ...(Array.isArray(after) ? { after } : {}),
    }),
  )
  storage.define('visit.add', (context, id, bucketId, placeId) => {
    context.space<VisitTuple>('visit').replace([Number(id), Number(bucketId), Number(placeId)])
    return true
  })
  storage.define('visit.ids', (context) =>
    context
      .space<VisitTuple>('visit')
      .select()
      .map(([id]) => id),
  )
}

/** Country to [people, places]. */
function peoplePerCountry(context: FunctionContext): Record<string, [number, number]> {
  const people: Record<string, [number, number]> = {}
  for (const [, , , country, population] of context.space<PlaceTuple>('place').select()) {
    const sum = (people[country] ??= [0, 0])
    sum[0] += population
    sum[1]++
  }
  return people
}
