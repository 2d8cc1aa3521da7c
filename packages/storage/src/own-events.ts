/*
 * What a storage tells of itself. Tarantool's built-in events and their shapes: 2.10 and newer; `vshard.storage.election` was
 * proposed for vshard. Watchers hear of a value when it is another one.
 */
import { encodeValue, InvalidArgumentError, shownValue } from '@orbweaver/iproto'
import type { Uuid } from '@orbweaver/iproto'
import type { WatchHub } from '@orbweaver/server'
import { publishRole } from './diagnostics.js'
import type { RoleChange } from './diagnostics.js'

/** Events nobody else may set. */
const OWN = 'box.'

export interface InstanceRole {
  readonly status: 'running' | 'loading'
  readonly isReadonly: boolean
  readonly term: number
  /** Number of the instance that was promoted last, 0 when nobody was. */
  readonly leader: number
}

export class OwnEvents {
  readonly #storageName: string
  readonly #watches: WatchHub
  #schemaVersion = 0
  #role: RoleChange | undefined

  constructor(storageName: string, watches: WatchHub) {
    this.#storageName = storageName
    this.#watches = watches
  }

  identity(number: number, uuid: Uuid, replicasetUuid: Uuid | undefined): void {
    this.#set('box.id', {
      id: number,
      instance_uuid: uuid,
      ...(replicasetUuid === undefined ? {} : { replicaset_uuid: replicasetUuid }),
    })
  }

  /**
   * @param sharding - of a storage whose vshard side is at work: whether the configuration names this instance as the master,
   *   undefined where it names none
   */
  role(now: InstanceRole, sharding: { readonly isMasterByConfiguration: boolean | undefined } | undefined): void {
    const { status, isReadonly, term, leader } = now
    const role = isReadonly ? 'follower' : 'leader'
    const election = { term, role, is_ro: isReadonly, leader }
    this.#set('box.status', { is_ro: isReadonly, is_ro_cfg: false, status })
    this.#set('box.election', election)
    if (sharding !== undefined) {
      const isMaster = sharding.isMasterByConfiguration
      const configured = isMaster === undefined ? {} : { is_master_cfg: isMaster }
      this.#set('vshard.storage.election', { ...election, ...configured })
    }
    this.#publish({ storage: this.#storageName, status, role, isReadonly, term, leader })
  }

  /** Asked with every change of data: it costs a comparison. */
  schema(version: number): void {
    if (version === this.#schemaVersion) return
    this.#schemaVersion = version
    this.#set('box.schema', { version })
  }

  shutdown(): void {
    this.#set('box.shutdown', true)
  }

  #set(key: string, value: unknown): void {
    const encoded = encodeValue(value)
    if (this.#watches.value(key)?.equals(encoded) !== true) this.#watches.broadcast(key, encoded)
  }

  #publish(now: RoleChange): void {
    const told = this.#role
    const isSame =
      told?.status === now.status &&
      told.isReadonly === now.isReadonly &&
      told.term === now.term &&
      told.leader === now.leader
    if (isSame) return
    this.#role = now
    publishRole(now)
  }
}

/** @throws InvalidArgumentError for what is no key of an event */
export function assertEventKey(key: unknown): void {
  if (typeof key !== 'string')
    throw new InvalidArgumentError(`The key of an event is ${shownValue(key)}, expected a string`)
}

/** @throws InvalidArgumentError for an event that only the storage sets */
export function assertForeignEvent(key: string): void {
  assertEventKey(key)
  if (key.startsWith(OWN))
    throw new InvalidArgumentError(`Event '${key}' cannot be set: those that begin with '${OWN}' are the storage's own`)
}
