/**
 * Whether an instance is alive, from what was received and when. Pure: time and byte counts come in. Only time in which we
 * ourselves could listen counts: a blocked event loop or a stopped process is not held against the instance.
 */
export interface PulseLimits {
  readonly pingIntervalMs: number
  readonly silentAfterMs: number
  readonly redialSilentAfterMs: number
}

/** What is to be done: nothing, ask for a sign of life, treat it as silent, or make the connection anew. */
export type Beat = 'heard' | 'quiet' | 'ask' | 'silent' | 'redial'

export class Pulse {
  readonly #limits: PulseLimits
  #heardMs = 0
  #bytesSeen = 0

  constructor(limits: PulseLimits) {
    this.#limits = limits
  }

  /** A new connection. */
  begin(nowMs: number, bytesRead: number): void {
    this.#heardMs = nowMs
    this.#bytesSeen = bytesRead
  }

  /** Something was received just now. */
  heard(nowMs: number): void {
    this.#heardMs = nowMs
  }

  /**
   * A look at regular intervals.
   * @param lateMs - how long we ourselves could not listen since the last look
   * @param bytesRead - received on the connection so far
   */
  beat(nowMs: number, lateMs: number, bytesRead: number): Beat {
    this.#heardMs = Math.min(nowMs, this.#heardMs + lateMs)
    if (bytesRead !== this.#bytesSeen) {
      this.#bytesSeen = bytesRead
      this.#heardMs = nowMs
      return 'heard'
    }
    const quietMs = nowMs - this.#heardMs
    if (quietMs >= this.#limits.redialSilentAfterMs) return 'redial'
    if (quietMs >= this.#limits.silentAfterMs) return 'silent'
    return quietMs >= this.#limits.pingIntervalMs ? 'ask' : 'quiet'
  }
}
