/*
 * Another replicaset: its instances, and who of them is the master. A configured master is asked; otherwise everybody is asked
 * who it is, all at once, and what was found is kept until an instance says otherwise.
 */
import type { Credential, Environment } from '@orbweaver/connection'
import { infoCall, readInfo, VshardError } from '@orbweaver/vshard'
import type { ReplicasetConfig, ServiceCall, ServiceReply } from '@orbweaver/vshard'
import { InstanceLink, isNonMaster } from './instance-link.js'
import { toRefusal } from './refusals.js'

const PAUSE_MS = 100
const SEARCH_TIMEOUT_MS = 5_000

export class ReplicasetLink {
  readonly config: ReplicasetConfig
  readonly #environment: Environment
  readonly #instances: ReadonlyMap<string, InstanceLink>
  #master: string | undefined

  constructor(config: ReplicasetConfig, credential: Credential | undefined, environment: Environment) {
    this.config = config
    this.#environment = environment
    this.#instances = new Map(
      config.instances.map(({ id, uri }) => [id, new InstanceLink(id, uri, credential, environment)]),
    )
    this.#master = this.#configured
  }

  get id(): string {
    return this.config.id
  }

  /** The master as far as it is known. */
  get masterId(): string | undefined {
    return this.#master
  }

  /** State of the connection to the master; undefined while there is none. */
  get masterState(): string | undefined {
    return this.#master === undefined ? undefined : this.#instances.get(this.#master)?.state
  }

  /**
   * Calls a service of the master, whoever that is; the same call is made again only where it surely was not executed.
   * @throws VshardError MISSING_MASTER when none was found in time, and what InstanceLink.call throws
   */
  async callMaster<T>(
    call: ServiceCall,
    read: (values: readonly unknown[]) => ServiceReply<T>,
    timeoutMs: number,
  ): Promise<ServiceReply<T>> {
    const { clock } = this.#environment
    const deadline = clock.now() + timeoutMs
    for (;;) {
      const master = await this.#findMaster(deadline)
      const left = deadline - clock.now()
      let reply: ServiceReply<T>
      try {
        reply = await master.call(call, read, left)
      } catch (error) {
        const refusal = toRefusal(error)
        if (this.#master === master.id && this.#configured === undefined) this.#master = undefined
        if (refusal.executed !== 'no' || deadline - clock.now() <= PAUSE_MS) throw error
        await this.#pause()
        continue
      }
      if (reply.ok || !isNonMaster(reply.error) || deadline - clock.now() <= PAUSE_MS) return reply
      this.#refusedBy(master.id, reply.error)
      await this.#pause()
    }
  }

  close(): void {
    for (const instance of this.#instances.values()) instance.close()
  }

  get #configured(): string | undefined {
    return this.config.master === 'auto' ? undefined : this.config.master
  }

  #refusedBy(instance: string, error: VshardError): void {
    if (this.#master !== instance) return
    const named = error.fields.get('master')
    this.#master = typeof named === 'string' && this.#instances.has(named) ? named : this.#configured
  }

  async #findMaster(deadline: number): Promise<InstanceLink> {
    const { clock } = this.#environment
    for (;;) {
      const known = this.#master === undefined ? undefined : this.#instances.get(this.#master)
      if (known !== undefined) return known
      const left = deadline - clock.now()
      if (left <= 0) throw VshardError.of('MISSING_MASTER', { replicaset: this.id })
      this.#master = await this.#search(Math.min(left, SEARCH_TIMEOUT_MS))
      if (this.#master === undefined) await this.#pause()
    }
  }

  /** The first that says it is the master; undefined when nobody does. */
  async #search(timeoutMs: number): Promise<string | undefined> {
    const asked = [...this.#instances.values()].map(async (instance) => {
      const reply = await instance.call(infoCall(), readInfo, timeoutMs)
      if (!reply.ok || !reply.value.isMaster) throw new Error(`${instance.id} is not the master`)
      return instance.id
    })
    return Promise.any(asked).catch(() => undefined)
  }

  #pause(): Promise<void> {
    return new Promise((resolve) => this.#environment.clock.schedule(PAUSE_MS, resolve))
  }
}
