/* What a storage waits for before it grants a reference: its buckets must be at rest, and no move may hold the turn. */
import { decodeData, isOrbweaverError, selectRequest } from '@orbweaver/iproto'
import type { Request } from '@orbweaver/iproto'
import type { InstanceHandle } from '@orbweaver/replicaset'
import type { BucketStatus } from '@orbweaver/vshard'

/** In these a bucket keeps references from being granted (vshard 0.1.42, `bucket_are_all_rw`). */
const ON_THE_WAY: readonly BucketStatus[] = ['readonly', 'sending', 'receiving', 'sent', 'garbage']
const VSPACE = 281
const NAME_INDEX = 2
/** Indexes of `_bucket`: `pk`, `status`. */
const STATUS_INDEX = 1
/** Buckets of a status that are named. */
const NAMED = 3

/** Under way: many maps may wait for one instance, and all for the same. */
const explaining = new WeakMap<InstanceHandle, Promise<string>>()

/** In words, for the message of an error. Reads `_bucket`, which the user of the storages may (by the role `replication`). */
export function explainWait(instance: InstanceHandle, deadline: number): Promise<string> {
  const known = explaining.get(instance)
  if (known !== undefined) return known
  const explanation = explain(instance, deadline).finally(() => explaining.delete(instance))
  explaining.set(instance, explanation)
  return explanation
}

async function explain(instance: InstanceHandle, deadline: number): Promise<string> {
  try {
    const [bucket] = await ask(
      instance,
      deadline,
      selectRequest({ space: VSPACE, index: NAME_INDEX, key: ['_bucket'] }),
    )
    const id = (bucket as readonly unknown[] | undefined)?.[0]
    if (typeof id !== 'number') return 'it has not answered yet'
    const found = await Promise.all(
      ON_THE_WAY.map((status) =>
        ask(instance, deadline, selectRequest({ space: id, index: STATUS_INDEX, key: [status], limit: NAMED })),
      ),
    )
    const buckets = found.flat().map((row) => describe(row as readonly unknown[]))
    if (buckets.length > 0) return `it waits for ${buckets.join(', ')}`
    return 'its buckets are at rest: it waits for the turn of a move'
  } catch (error) {
    if (!isOrbweaverError(error)) throw error
    return `it has not answered yet, and cannot be asked why: ${error.message}`
  }
}

function describe([id, status, peer]: readonly unknown[]): string {
  const other = status === 'receiving' ? 'from' : 'to'
  return `bucket ${String(id)} (${String(status)}${typeof peer === 'string' ? ` ${other} ${peer}` : ''})`
}

function ask(instance: InstanceHandle, deadline: number, request: Request): Promise<unknown[]> {
  return new Promise((resolve, reject) => {
    instance.send(
      request,
      { deadline },
      {
        done: (reply) => {
          try {
            resolve(decodeData(reply))
          } catch (error) {
            reject(error)
          }
        },
        failed: reject,
      },
    )
  })
}
