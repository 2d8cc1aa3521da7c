/** Which instances make up a replicaset, checked at the door. */
import { type Address, addressProblem, parseUri } from '@orbweaver/connection'
import { ConfigError, type ConfigProblem, InvalidArgumentError, isObject } from '@orbweaver/iproto'

export interface ReplicasetDefinition {
  /** Its name or uuid; errors, events and logs use it. A uuid is compared with what the instances say. */
  readonly id: string
  /** All members, whether they are up or not. At least one. */
  readonly instances: readonly InstanceDefinition[]
  /** `auto` (default): found by events or polls. Else the id of an instance: nobody is discovered, it gets all writes. */
  readonly master?: 'auto' | string
  /** Not used here; routers share buckets by it. */
  readonly weight?: number
}

export interface InstanceDefinition {
  /** Its name or uuid; unique within the replicaset. */
  readonly id: string
  /** If given, the peer must say the same, or it is not used. */
  readonly uuid?: string
  /** If given and the peer has one (3.0 and newer), it must be the same. */
  readonly name?: string
  readonly uri: string | Address
  /** Where it stands, for reads from near. */
  readonly zone?: string | number
  /** Its share of balanced reads; default 1, 0: only when nobody else can serve. */
  readonly weight?: number
}

/** @throws ConfigError with every problem and its path */
export function checkDefinition(definition: ReplicasetDefinition, path: string): ReplicasetDefinition {
  const problems: ConfigProblem[] = []
  const problem = (at: string, message: string): void =>
    void problems.push({ path: path === '' ? at : `${path}.${at}`, message })
  if (typeof definition.id !== 'string' || definition.id === '') problem('id', 'must be a non-empty string')
  const { instances } = definition
  if (!isList(instances) || instances.length === 0) {
    problem('instances', 'must be a list of at least one instance')
  } else {
    checkInstances(instances, problem)
    const { master } = definition
    if (master !== undefined && master !== 'auto' && !instances.some(({ id }) => id === master)) {
      problem(
        'master',
        `names "${master}", which is none of the instances (${instances.map(({ id }) => id).join(', ')})`,
      )
    }
  }
  if (problems.length > 0) throw new ConfigError(problems, { subject: 'replicaset definition' })
  return definition
}

/** Narrower than `Array.isArray`, which would forget the type of the elements. */
function isList<T>(value: readonly T[]): value is readonly T[] {
  return Array.isArray(value)
}

function checkInstances(
  instances: readonly InstanceDefinition[],
  problem: (at: string, message: string) => void,
): void {
  const seen = new Set<string>()
  for (const [index, instance] of instances.entries()) {
    const at = `instances[${String(index)}]`
    if (!isObject(instance)) {
      problem(at, `expected an instance: { id, uri }`)
      continue
    }
    const { id, uuid, uri, weight } = instance
    if (typeof id !== 'string' || id === '') problem(`${at}.id`, 'must be a non-empty string')
    else if (seen.has(id)) problem(`${at}.id`, `"${id}" is there twice`)
    seen.add(id)
    if (uuid !== undefined && !UUID.test(uuid)) problem(`${at}.uuid`, `"${uuid}" is no uuid`)
    if (weight !== undefined && !(typeof weight === 'number' && weight >= 0 && weight < Number.POSITIVE_INFINITY)) {
      problem(`${at}.weight`, 'must be a number of at least 0')
    }
    const fault = uriProblem(uri)
    if (fault !== undefined) problem(`${at}.uri`, fault)
  }
}

function uriProblem(uri: string | Address): string | undefined {
  if (typeof uri !== 'string') return addressProblem(uri)
  try {
    parseUri(uri)
    return undefined
  } catch (error) {
    if (error instanceof InvalidArgumentError) return error.message
    throw error
  }
}

/** Whether two definitions of an instance lead to the same connection. */
export function isSameAddress(a: InstanceDefinition, b: InstanceDefinition): boolean {
  if (a.uri === b.uri) return true
  if (typeof a.uri === 'string' || typeof b.uri === 'string') return false
  if ('connect' in a.uri || 'connect' in b.uri)
    return 'connect' in a.uri && 'connect' in b.uri && a.uri.connect === b.uri.connect
  if ('path' in a.uri || 'path' in b.uri) return 'path' in a.uri && 'path' in b.uri && a.uri.path === b.uri.path
  return a.uri.host === b.uri.host && a.uri.port === b.uri.port
}

/** Whether the text is a uuid, which can be compared with what a peer says. */
export function isUuid(text: string): boolean {
  return UUID.test(text)
}

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i
