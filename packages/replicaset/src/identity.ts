/** Whether the instances are who the configuration says, and members of one replicaset. Pure. */
import { type InstanceDefinition, isUuid } from './definition.js'
import type { IdentityValue } from './status-events.js'

export interface Member {
  readonly definition: InstanceDefinition
  /** What the peer said of itself; undefined: nothing yet. */
  readonly identity: IdentityValue | undefined
}

/**
 * The replicaset all members belong to, by their own words.
 * @param known - what it was so far
 * @returns `isAnother`: all of them say the same, and it is not what it was: another replicaset under the same addresses
 */
export function agreedReplicaset(
  members: readonly Member[],
  known: string | undefined,
): { readonly uuid: string | undefined; readonly isAnother: boolean } {
  const uuids = new Set(members.map(({ identity }) => identity?.replicasetUuid).filter((uuid) => uuid !== undefined))
  const [only] = uuids
  if (only === undefined || (uuids.size > 1 && known !== undefined)) return { uuid: known, isAnother: false }
  return { uuid: only, isAnother: known !== undefined && known !== only }
}

/** @returns what is wrong with an instance, in words; undefined: nothing */
export function identityProblem(
  { definition, identity }: Member,
  replicasetId: string,
  agreed: string | undefined,
): string | undefined {
  if (identity === undefined) return undefined
  const { instanceUuid, instanceName, replicasetUuid } = identity
  if (definition.uuid !== undefined && instanceUuid !== undefined && instanceUuid !== definition.uuid.toLowerCase()) {
    return `is the instance ${instanceUuid}, configured is ${definition.uuid}`
  }
  if (definition.name !== undefined && instanceName !== undefined && instanceName !== definition.name) {
    return `is the instance "${instanceName}", configured is "${definition.name}"`
  }
  const wanted = isUuid(replicasetId) ? replicasetId.toLowerCase() : agreed
  if (wanted !== undefined && replicasetUuid !== undefined && replicasetUuid !== wanted) {
    return `belongs to the replicaset ${replicasetUuid}, the others to ${wanted}`
  }
  return undefined
}
