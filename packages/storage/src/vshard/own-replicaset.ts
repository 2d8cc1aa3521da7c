/*
 * The other instances of this replicaset, as moves, collection and a new master need them: all of them must agree. An instance
 * that is gone for good is written off by the operator, and is not waited for from then on.
 */
import type { Environment } from '@orbweaver/connection'
import { InvalidArgumentError } from '@orbweaver/iproto'
import type { ServiceCall, ServiceReply } from '@orbweaver/vshard'
import type { ReplicationOptions } from '../replication/options.js'
import type { Replication } from '../replication/replication.js'
import { InstanceLink } from './instance-link.js'
import { timeoutFor } from './refusals.js'

export class OwnReplicaset {
  readonly #replication: Replication
  readonly #links: ReadonlyMap<number, InstanceLink>
  readonly #writtenOff = new Set<number>()

  constructor(replication: Replication, options: ReplicationOptions, environment: Environment) {
    this.#replication = replication
    this.#links = new Map(
      options.peers.map(({ number, uuid, address }) => [
        number,
        new InstanceLink(uuid, address, options.credential, environment),
      ]),
    )
  }

  /** uuids of the instances that are not waited for. */
  get writtenOff(): readonly string[] {
    return [...this.#writtenOff].map((number) => this.#links.get(number)!.id)
  }

  /** @throws InvalidArgumentError when this replicaset has no other instance of that uuid */
  setWrittenOff(uuid: string, isWrittenOff: boolean): void {
    const found = [...this.#links].find(([, link]) => link.id === uuid)
    if (found === undefined) throw new InvalidArgumentError(`The replicaset has no other instance '${uuid}'`)
    if (isWrittenOff) this.#writtenOff.add(found[0])
    else this.#writtenOff.delete(found[0])
  }

  /** uuids of instances that do not follow this one. */
  get unconnected(): readonly string[] {
    const followers = this.#replication.followers
    return this.#counted().flatMap(([number, link]) => (followers.has(number) ? [] : [link.id]))
  }

  /** Every other instance has everything that is here. @throws BoxError 78 naming those that do not confirm in time */
  async synced(timeoutMs: number, what: string): Promise<void> {
    if (await this.#replication.synced(timeoutMs, this.#writtenOff)) return
    const { unconnected } = this
    throw timeoutFor(
      `could not sync with replicas for ${what}${unconnected.length === 0 ? '' : `: ${unconnected.join(', ')} not connected`}`,
    )
  }

  /**
   * Asks all others at once.
   * @throws what the first of them to fail raised or refused with
   */
  async askAll<T>(
    call: ServiceCall,
    read: (values: readonly unknown[]) => ServiceReply<T>,
    timeoutMs: number,
  ): Promise<readonly T[]> {
    return Promise.all(
      this.#counted().map(async ([, link]) => {
        const reply = await link.call(call, read, timeoutMs)
        if (!reply.ok) throw reply.error
        return reply.value
      }),
    )
  }

  close(): void {
    for (const link of this.#links.values()) link.close()
  }

  #counted(): [number, InstanceLink][] {
    return [...this.#links].filter(([number]) => !this.#writtenOff.has(number))
  }
}
