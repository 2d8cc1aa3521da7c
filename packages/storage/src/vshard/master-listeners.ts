/* vshard's `on_master_enable` and `on_master_disable`: who wants to know when this instance becomes the master, or is none. */
import { InvalidArgumentError } from '@orbweaver/iproto'
import { tell } from '../listeners.js'

export class MasterListeners {
  readonly #storageName: string
  readonly #listeners = { onMasterEnable: new Set<() => void>(), onMasterDisable: new Set<() => void>() }
  /** What the listeners know. */
  #isMaster = false

  constructor(storageName: string) {
    this.#storageName = storageName
  }

  /** Calls it at once when it is so already. @returns ends it */
  add(what: 'onMasterEnable' | 'onMasterDisable', listener: () => unknown): () => void {
    if (typeof listener !== 'function')
      throw new InvalidArgumentError(`A listener of ${what} is ${typeof listener}, expected a function`)
    // A function of its own, so that the same one added twice is two listeners.
    const added = (): void => tell(this.#storageName, what, listener)
    this.#listeners[what].add(added)
    if (this.#isMaster === (what === 'onMasterEnable')) added()
    return () => void this.#listeners[what].delete(added)
  }

  now(isMaster: boolean): void {
    if (isMaster === this.#isMaster) return
    this.#isMaster = isMaster
    for (const listener of this.#listeners[isMaster ? 'onMasterEnable' : 'onMasterDisable']) listener()
  }
}
