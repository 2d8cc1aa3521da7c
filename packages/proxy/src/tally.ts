interface Count {
  readonly labels: Readonly<Record<string, string>>
  count: number
}

/** Rare events by name and labels: for what is counted a few times a second at most. Hot paths have fields of their own. */
export class Tally {
  readonly #counts = new Map<string, Map<string, Count>>()

  /** @param labels - from closed lists, or names of the configuration: each combination is kept for ever */
  add(name: string, labels: Readonly<Record<string, string>>): void {
    let counts = this.#counts.get(name)
    if (counts === undefined) {
      counts = new Map()
      this.#counts.set(name, counts)
    }
    const key = JSON.stringify(labels)
    const known = counts.get(key)
    if (known === undefined) counts.set(key, { labels, count: 1 })
    else known.count++
  }

  of(name: string): Readonly<Count>[] {
    return [...(this.#counts.get(name)?.values() ?? [])]
  }
}
