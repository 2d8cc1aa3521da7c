import type { Pending } from './pending.js'

/**
 * One listener per distinct `AbortSignal`, however many requests share it. A listener is taken off when the turn in which
 * its last request ended is over, so a signal used by one request after the other is not re-registered each time.
 */
export class AbortListeners {
  readonly #groups = new Map<AbortSignal, AbortGroup>()
  readonly #aborted: (pending: Pending, reason: unknown) => void
  readonly #soon: (task: () => void) => void
  #isCleaning = false

  constructor(aborted: (pending: Pending, reason: unknown) => void, soon: (task: () => void) => void) {
    this.#aborted = aborted
    this.#soon = soon
  }

  add(signal: AbortSignal, pending: Pending): void {
    let group = this.#groups.get(signal)
    if (group === undefined) {
      const members = new Set<Pending>()
      group = { members, listener: () => this.#fire(signal) }
      this.#groups.set(signal, group)
      signal.addEventListener('abort', group.listener, { once: true })
    }
    group.members.add(pending)
  }

  remove(signal: AbortSignal, pending: Pending): void {
    const group = this.#groups.get(signal)
    if (group === undefined) return
    group.members.delete(pending)
    if (group.members.size > 0 || this.#isCleaning) return
    this.#isCleaning = true
    this.#soon(() => {
      this.#isCleaning = false
      this.#dropUnused()
    })
  }

  #fire(signal: AbortSignal): void {
    const group = this.#groups.get(signal)
    this.#groups.delete(signal)
    if (group === undefined) return
    for (const pending of [...group.members]) this.#aborted(pending, signal.reason)
  }

  #dropUnused(): void {
    for (const [signal, group] of this.#groups) {
      if (group.members.size > 0) continue
      signal.removeEventListener('abort', group.listener)
      this.#groups.delete(signal)
    }
  }
}

interface AbortGroup {
  readonly members: Set<Pending>
  readonly listener: () => void
}
