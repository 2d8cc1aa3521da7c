/** Things with deadlines, the nearest first: a binary heap that also takes out of its middle. */
export interface Expiring {
  readonly deadline: number
}

export class RefHeap<T extends Expiring> {
  readonly #items: T[] = []
  readonly #places = new Map<T, number>()

  get size(): number {
    return this.#items.length
  }

  peek(): T | undefined {
    return this.#items[0]
  }

  push(item: T): void {
    this.#items.push(item)
    this.#places.set(item, this.#items.length - 1)
    this.#up(this.#items.length - 1)
  }

  /** false when it is not there. */
  remove(item: T): boolean {
    const place = this.#places.get(item)
    if (place === undefined) return false
    this.#places.delete(item)
    const last = this.#items.pop()!
    if (place < this.#items.length) {
      this.#items[place] = last
      this.#places.set(last, place)
      this.#up(place)
      this.#down(this.#places.get(last)!)
    }
    return true
  }

  #up(start: number): void {
    let place = start
    while (place > 0) {
      const parent = (place - 1) >> 1
      if (this.#items[parent]!.deadline <= this.#items[place]!.deadline) return
      this.#swap(place, parent)
      place = parent
    }
  }

  #down(start: number): void {
    let place = start
    for (;;) {
      const left = place * 2 + 1
      if (left >= this.#items.length) return
      const right = left + 1
      const nearest =
        right < this.#items.length && this.#items[right]!.deadline < this.#items[left]!.deadline ? right : left
      if (this.#items[place]!.deadline <= this.#items[nearest]!.deadline) return
      this.#swap(place, nearest)
      place = nearest
    }
  }

  #swap(a: number, b: number): void {
    const [itemA, itemB] = [this.#items[a]!, this.#items[b]!]
    this.#items[a] = itemB
    this.#items[b] = itemA
    this.#places.set(itemB, a)
    this.#places.set(itemA, b)
  }
}
