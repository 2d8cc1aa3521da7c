import type { Totals } from '../places.js'
import { duration, grouped, now } from '../printer.js'
import type { Printer } from '../printer.js'
import type { World } from '../world.js'

export interface MapReduceResult {
  readonly countries: number
  readonly totalPopulation: number
  readonly ms: number
}

/** People per country, counted on every storage at once while no bucket may move. */
export async function countPeople(
  { router }: World,
  totals: Totals,
  printer: Printer,
): Promise<{ ok: boolean; rows: number; result: MapReduceResult }> {
  printer.title('Counting people per country: a consistent map-reduce')
  const started = now()
  const parts = await router.mapCallrw<[Record<string, [number, number]>]>('place.people_per_country')
  const people = new Map<string, number>()
  let rows = 0
  for (const [counts] of parts.values()) {
    for (const [country, [population, places]] of Object.entries(counts)) {
      people.set(country, (people.get(country) ?? 0) + population)
      rows += places
    }
  }
  const ms = now() - started
  const totalPopulation = [...people.values()].reduce((sum, population) => sum + population, 0)
  const ok =
    rows === totals.places &&
    people.size === totals.populationOf.size &&
    [...people].every(([country, population]) => totals.populationOf.get(country) === population)
  printer.say(
    `${parts.size} storages counted ${grouped(rows)} places in ${people.size} countries: ${grouped(totalPopulation)} people, in ${duration(ms)}`,
  )
  const largest = [...people].toSorted(([, a], [, b]) => b - a).slice(0, 5)
  printer.say(
    `Most people live in places of ${largest.map(([country, population]) => `${country} (${grouped(population)})`).join(', ')}`,
  )
  printer.say(ok ? 'Every country agrees with the data itself' : 'This does NOT agree with the data itself')
  return { ok, rows, result: { countries: people.size, totalPopulation, ms: Math.round(ms) } }
}
