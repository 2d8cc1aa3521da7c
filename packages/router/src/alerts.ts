import type { VshardErrorName } from '@orbweaver/vshard'

/** Something an operator should see. */
export interface RouterAlert {
  /** vshard's name for it; what replicasets say of themselves has names of `@orbweaver/replicaset`. */
  readonly name: VshardErrorName | (string & {})
  readonly message: string
  /** undefined: about the router as a whole. */
  readonly replicaset?: string
}

/**
 * Alerts of the router itself that last until something takes them back: each has a subject, and there is one for a subject.
 */
export class LastingAlerts {
  readonly #alerts = new Map<string, RouterAlert>()
  readonly #raised: (alert: RouterAlert) => void

  /** @param raised - told of each that is new */
  constructor(raised: (alert: RouterAlert) => void) {
    this.#raised = raised
  }

  raise(subject: string, alert: RouterAlert): void {
    const before = this.#alerts.get(subject)
    if (before === undefined && this.#alerts.size >= MOST) return
    this.#alerts.set(subject, alert)
    if (before === undefined) this.#raised(alert)
  }

  clear(subject: string): void {
    this.#alerts.delete(subject)
  }

  get all(): readonly RouterAlert[] {
    return [...this.#alerts.values()]
  }
}

/** Subjects come from outside (ids in answers): more than these are too many to read. */
const MOST = 100
