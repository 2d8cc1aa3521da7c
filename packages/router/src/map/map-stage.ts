/* The second half of a map: the function runs under each reference, and its results come as they arrive. */
import { callRequest, decodeData, isOrbweaverError, RawValue, skipValue } from '@orbweaver/iproto'
import type { DecodeOptions, OrbweaverError, Reply } from '@orbweaver/iproto'
import { readStorageMap, storageMapCall } from '@orbweaver/vshard'
import { MapReduceError } from '../errors.js'
import { abortedBy } from './held-ref.js'
import type { HeldRef } from './held-ref.js'
import { nameOf } from './ref-stage.js'

export interface MapWork {
  readonly functionName: string
  argumentsFor(ref: HeldRef): readonly unknown[]
  readonly isRaw: boolean
  readonly decode: DecodeOptions | undefined
  readonly deadline: number
  readonly signal: AbortSignal | undefined
  /** Whether what was read under the reference is of one moment, asked when the result is in. */
  holds(ref: HeldRef): Promise<boolean>
  /** A result, in the order of arrival. */
  arrived(replicasetId: string, values: unknown[]): void
}

/** Rejects with the MapReduceError of the first failure at once; what still runs on other storages ends there by itself. */
export function mapUnder(refs: readonly HeldRef[], work: MapWork): Promise<void> {
  const { signal } = work
  if (signal?.aborted === true) return Promise.reject(abortedBy(signal, 'no'))
  return new Promise((resolve, reject) => {
    const onAbort = (): void => end(abortedBy(signal!, 'unknown'))
    let left = refs.length
    const end = (error?: OrbweaverError): void => {
      left = Number.NaN
      signal?.removeEventListener('abort', onAbort)
      if (error === undefined) resolve()
      else reject(error)
    }
    if (left === 0) end()
    signal?.addEventListener('abort', onAbort, { once: true })
    for (const ref of refs) {
      ref.used()
      mapOne(ref, work).then(
        (values) => {
          if (Number.isNaN(left)) return
          work.arrived(ref.set.id, values)
          left--
          if (left === 0) end()
        },
        (error: unknown) => {
          if (!isOrbweaverError(error)) throw error
          if (!Number.isNaN(left)) end(failure(ref, error, refs.length))
        },
      )
    }
  })
}

async function mapOne(ref: HeldRef, work: MapWork): Promise<unknown[]> {
  const call = storageMapCall(ref.id, work.functionName, work.argumentsFor(ref))
  const reply = await ref.request(callRequest(call.name, call.args), { deadline: work.deadline })
  const values = resultOf(reply, work)
  if (await work.holds(ref)) return values
  const { instance, set } = ref
  const master = set.replicaset.master()
  const now = master === undefined || master.id === instance.id ? '' : `, to ${master.id}`
  throw new MapReduceError(
    `The master of replicaset ${set.id} changed during the map, from ${instance.id}${now}: its result may miss buckets or count them twice`,
    { stage: 'map', executed: 'yes', replicasetId: set.id, instanceId: instance.id },
  )
}

const TRUE = 0xc3

/** What the function returned: at most one value. @throws VshardError, BoxError: its failure, or a refusal */
function resultOf(reply: Reply, { decode, isRaw }: MapWork): unknown[] {
  const raw = isRaw ? rawResult(reply) : undefined
  if (raw !== undefined) return raw
  // Errors are read as they come; only the result appears as its reader wants it.
  const answer = readStorageMap(decodeData(reply))
  if (!answer.ok) throw answer.error
  return decode === undefined ? [...answer.value] : decodeData(reply, decode).slice(1, 2)
}

/** The result as the bytes it came in; undefined: the function failed, or returned nothing. */
function rawResult({ frame, dataStart, dataEnd }: Reply): RawValue[] | undefined {
  // `[true, result]`, behind the head of an array of at most 15: one byte, or five from Tarantool.
  const head = frame[dataStart] === 0xdd ? 5 : frame[dataStart] === 0xdc ? 3 : 1
  const flag = dataStart + head
  if (flag >= dataEnd || frame[flag] !== TRUE || flag + 1 >= dataEnd) return undefined
  return [new RawValue(Buffer.from(frame.subarray(flag + 1, skipValue(frame, flag + 1, dataEnd))))]
}

function failure(ref: HeldRef, cause: OrbweaverError, maps: number): MapReduceError {
  if (cause instanceof MapReduceError) return cause
  const { instance, set } = ref
  return new MapReduceError(`The map failed on ${nameOf(set.id, instance.id)}: ${cause.message}`, {
    stage: 'map',
    // The function runs on the others, whatever became of this one.
    executed: cause.executed === 'no' && maps > 1 ? 'unknown' : cause.executed,
    cause,
    replicasetId: set.id,
    instanceId: instance.id,
  })
}
