/*
 * Where requests for the master wait while it is being changed. Clients wait, not requests: a client's later requests stand
 * behind its first one anyway.
 */
import type { Clock } from '@orbweaver/connection'

/** A client whose first request waits. */
export interface GateMember {
  /** Requests and bytes it has waiting in all. */
  readonly backlog: number
  readonly backlogBytes: number
  /** The gate has opened. */
  passed(): void
}

export class Gate {
  readonly #clock: Clock
  readonly #perTurn: number
  readonly #waiting = new Set<GateMember>()
  #isClosed = false
  #maxRequests = 0
  #maxBytes = 0

  /** @param options.perTurn - members let through in one turn of the loop, so that the target is not flooded */
  constructor(options: { clock: Clock; perTurn: number }) {
    this.#clock = options.clock
    this.#perTurn = options.perTurn
  }

  get isClosed(): boolean {
    return this.#isClosed
  }

  get waiting(): number {
    return this.#waiting.size
  }

  /** The most that waited at one time since the gate was closed. */
  get peak(): { readonly requests: number; readonly bytes: number } {
    return { requests: this.#maxRequests, bytes: this.#maxBytes }
  }

  close(): void {
    if (this.#isClosed) return
    this.#isClosed = true
    this.#maxRequests = this.#maxBytes = 0
  }

  open(): void {
    if (!this.#isClosed) return
    this.measure()
    this.#isClosed = false
    this.#letThrough()
  }

  wait(member: GateMember): void {
    this.#waiting.add(member)
  }

  leave(member: GateMember): void {
    this.#waiting.delete(member)
  }

  /** Requests and bytes that wait now. */
  measure(): { requests: number; bytes: number } {
    let requests = 0
    let bytes = 0
    for (const member of this.#waiting) {
      requests += member.backlog
      bytes += member.backlogBytes
    }
    this.#maxRequests = Math.max(this.#maxRequests, requests)
    this.#maxBytes = Math.max(this.#maxBytes, bytes)
    return { requests, bytes }
  }

  #letThrough(): void {
    if (this.#isClosed) return
    let left = this.#perTurn
    for (const member of this.#waiting) {
      if (left-- === 0) break
      this.#waiting.delete(member)
      member.passed()
      if (this.#isClosed) return
    }
    if (this.#waiting.size > 0) this.#clock.soon(() => this.#letThrough())
  }
}
