import { merge } from '@orbweaver/router'
import type { ReplicasetHandle } from '@orbweaver/replicaset'
import { byPopulation, TOP } from '../places.js'
import type { Totals } from '../places.js'
import { duration, grouped, now } from '../printer.js'
import type { Printer } from '../printer.js'
import type { PlaceTuple } from '../set-up.js'
import type { World } from '../world.js'

/** Tuples of a page: the merge reads no further than it must. */
const PAGE = 10

interface City {
  readonly id: number
  readonly name: string
  readonly population: number
}

/** The largest cities, merged in order from one stream per replicaset. */
export async function largestCities(
  { router }: World,
  totals: Totals,
  printer: Printer,
): Promise<{ ok: boolean; top: readonly City[] }> {
  printer.title(`The ${TOP} largest cities: an ordered merge of the shards' streams`)
  const started = now()
  const top: City[] = []
  const streams = [...router.routeAll().values()].map(citiesOf)
  for await (const city of merge(streams, byPopulation)) {
    top.push(city)
    if (top.length === TOP) break
  }
  const ms = now() - started
  const ok = top.length === totals.largest.length && top.every((city, i) => city.id === totals.largest[i]!.id)
  printer.say(
    `${top
      .slice(0, 5)
      .map((city) => `${city.name} (${grouped(city.population)})`)
      .join(', ')}, …: ${duration(ms)}`,
  )
  printer.say(ok ? `All ${TOP} are in the order of the data itself` : 'This is NOT the order of the data itself')
  return { ok, top }
}

/** One replicaset's cities, the largest first, a page at a time. */
async function* citiesOf(replicaset: ReplicasetHandle): AsyncGenerator<City> {
  let after: PlaceTuple | undefined
  for (;;) {
    const [page] = await replicaset.callro<[PlaceTuple[]]>(
      'place.largest',
      after === undefined ? [PAGE] : [PAGE, after],
    )
    for (const [id, , name, , population] of page) yield { id, name, population }
    if (page.length < PAGE) return
    after = page.at(-1)
  }
}
