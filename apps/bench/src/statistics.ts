/** What many rounds say together. All functions leave their input alone; none accepts an empty list. */

/** The middle of some samples, and how far apart they lie. */
export interface Summary {
  readonly median: number
  readonly min: number
  readonly max: number
}

/** @throws RangeError when there is nothing to summarise */
export function summarise(samples: readonly number[]): Summary {
  const sorted = ascending(samples)
  return { median: quantileOf(sorted, 0.5), min: sorted[0]!, max: sorted.at(-1)! }
}

/**
 * A quantile, interpolated between the two samples beside it.
 * @param share - 0 (smallest) to 1 (largest)
 * @throws RangeError when there are no samples
 */
export function quantile(samples: readonly number[], share: number): number {
  return quantileOf(ascending(samples), share)
}

/**
 * Ratios of what was measured side by side, round by round: a machine that is slower in one round is slower for both, so
 * their ratio moves less than either of them.
 * @param theirs - of the same rounds as `ours`; a round that one of the two did not finish is undefined and left out
 * @returns undefined when no round was finished by both
 */
export function pairedRatio(
  ours: readonly (number | undefined)[],
  theirs: readonly (number | undefined)[],
): Summary | undefined {
  const ratios = ours.flatMap((our, round) => {
    const their = theirs[round]
    return our === undefined || their === undefined || their === 0 ? [] : [our / their]
  })
  return ratios.length === 0 ? undefined : summarise(ratios)
}

function ascending(samples: readonly number[]): number[] {
  if (samples.length === 0) throw new RangeError('There are no samples')
  return samples.toSorted((a, b) => a - b)
}

function quantileOf(sorted: readonly number[], share: number): number {
  const place = share * (sorted.length - 1)
  const below = sorted[Math.floor(place)]!
  const above = sorted[Math.ceil(place)]!
  return below + (above - below) * (place - Math.floor(place))
}
