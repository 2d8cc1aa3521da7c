/* What one router tells: events to its listeners, log records, and alerts that last. */
import { EventEmitter } from 'eventemitter3'
import { LastingAlerts } from './alerts.js'
import type { RouterAlert } from './alerts.js'
import { log, publishRoutes } from './diagnostics.js'
import type { RouterEvents, RoutesChange, TopologyEvent } from './events.js'

export class RouterVoice {
  readonly alerts: LastingAlerts = new LastingAlerts((alert) => this.alert(alert))
  readonly #name: string
  readonly #emitter = new EventEmitter<RouterEvents>()

  /** @param name - of the router */
  constructor(name: string) {
    this.#name = name
  }

  on<E extends keyof RouterEvents>(event: E, listener: RouterEvents[E]): void {
    this.#emitter.on(event, listener as never)
  }

  once<E extends keyof RouterEvents>(event: E, listener: RouterEvents[E]): void {
    this.#emitter.once(event, listener as never)
  }

  off<E extends keyof RouterEvents>(event: E, listener: RouterEvents[E]): void {
    this.#emitter.off(event, listener as never)
  }

  routes(change: Omit<RoutesChange, 'router'>): void {
    const full: RoutesChange = { router: this.#name, ...change }
    publishRoutes(full)
    if (this.#emitter.listenerCount('routes') > 0) this.#tell(() => this.#emitter.emit('routes', full))
  }

  topology(change: Omit<TopologyEvent, 'router'>): void {
    const full: TopologyEvent = { router: this.#name, ...change }
    log('info', this.#name, 'topology', () => ({ ...full }))
    this.#tell(() => this.#emitter.emit('topology', full))
  }

  /** One that passes by itself. */
  alert(alert: RouterAlert): void {
    log('warn', this.#name, 'alert', () => ({ ...alert }))
    this.#tell(() => this.#emitter.emit('alert', alert))
  }

  closed(): void {
    this.#tell(() => this.#emitter.emit('close'))
  }

  /** Listeners run when the change is complete, and what they throw changes nothing. */
  #tell(tell: () => void): void {
    queueMicrotask(() => {
      try {
        tell()
      } catch (error) {
        log('error', this.#name, 'listener failed', () => ({ error }))
      }
    })
  }
}
