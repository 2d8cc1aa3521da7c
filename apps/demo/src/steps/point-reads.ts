import { TOP } from '../places.js'
import type { Totals } from '../places.js'
import { duration, now } from '../printer.js'
import type { Printer } from '../printer.js'
import type { PlaceTuple } from '../set-up.js'
import type { World } from '../world.js'

/** Reads the largest places by their ids: each read goes to the one replicaset that has the bucket. @returns whether all were right */
export async function pointReads({ router }: World, totals: Totals, printer: Printer): Promise<boolean> {
  printer.title('Reading by bucket')
  let right = 0
  let total = 0
  for (const place of totals.largest) {
    const bucketId = router.bucketId(place.id)
    const started = now()
    const [tuple] = await router.callro<[PlaceTuple | undefined]>(bucketId, 'place.get', [place.id])
    const ms = now() - started
    total += ms
    if (tuple?.[2] === place.name && tuple[4] === place.population) right++
    if (place === totals.largest[0])
      printer.say(
        `${place.name} (id ${place.id}) is in bucket ${bucketId}, on replicaset ${router.locate(bucketId)}: answered in ${duration(ms)}`,
      )
  }
  printer.say(`${right} of ${TOP} places came back right, ${duration(total / TOP)} each on average`)
  return right === totals.largest.length
}
