/* The second half of a map: the function runs under each reference, and its results come as they arrive. */
import type { ReplySink } from '@orbweaver/connection'
import { decodeData, isOrbweaverError, RawValue, RequestType, skipValue } from '@orbweaver/iproto'
import type { BodyWriter, DecodeOptions, OrbweaverError, Reply, Request } from '@orbweaver/iproto'
import { readStorageMap, SERVICES } from '@orbweaver/vshard'
import { MapReduceError } from '../errors.js'
import type { RoutedSet } from '../topology.js'
import { firstValueAt } from './first-value.js'
import type { HeldRef } from './held-ref.js'
import { nameOf } from './ref-stage.js'
import { serviceHead } from './service-head.js'

/** What is run, and who is told how it goes. */
export interface MapWork {
  readonly functionName: string
  writeArguments(out: BodyWriter, ref: HeldRef): void
  readonly isRaw: boolean
  readonly decode: DecodeOptions | undefined
  readonly deadline: number
  /** Whether what was read under the reference is of one moment, asked when the result is in. False: it must be found out. */
  isSurelyHeld(ref: HeldRef): boolean
  isHeld(ref: HeldRef): Promise<boolean>
  /** A result, in the order of arrival. */
  arrived(set: RoutedSet, values: unknown[]): void
  /** The end: all results have arrived, or the first failure. What still runs on other storages ends there by itself. */
  ended(error: OrbweaverError | undefined): void
}

export class MapStage {
  readonly #work: MapWork
  #refs = 0
  #left = 0
  #isOver = false

  constructor(work: MapWork) {
    this.#work = work
  }

  /** To be called once. */
  start(refs: readonly HeldRef[]): void {
    this.#refs = this.#left = refs.length
    if (refs.length === 0) this.#end(undefined)
    for (const ref of refs) {
      ref.used()
      ref.send(new MapRequest(this, this.#work, ref), this.#work.deadline)
    }
  }

  /** Nobody waits for the results any more. */
  abandon(error: OrbweaverError): void {
    if (!this.#isOver) this.#end(error)
  }

  returned(ref: HeldRef, values: unknown[]): void {
    if (this.#isOver) return
    this.#work.arrived(ref.set, values)
    this.#left--
    if (this.#left === 0) this.#end(undefined)
  }

  failed(ref: HeldRef, error: OrbweaverError): void {
    if (!this.#isOver) this.#end(failure(ref, error, this.#refs))
  }

  #end(error: OrbweaverError | undefined): void {
    this.#isOver = true
    this.#work.ended(error)
  }
}

const MAP_HEAD = serviceHead(SERVICES.storageMap, 3)

/** The function on one replicaset: its request, and what becomes of its answer. */
class MapRequest implements Request, ReplySink {
  readonly type: number = RequestType.call
  readonly requestClass = 'code'
  readonly #stage: MapStage
  readonly #work: MapWork
  readonly #ref: HeldRef

  constructor(stage: MapStage, work: MapWork, ref: HeldRef) {
    this.#stage = stage
    this.#work = work
    this.#ref = ref
  }

  writeBody(out: BodyWriter): void {
    const { functionName } = this.#work
    out.raw(MAP_HEAD)
    out.uint(this.#ref.id)
    out.text(functionName)
    this.#work.writeArguments(out, this.#ref)
  }

  done(reply: Reply): void {
    const ref = this.#ref
    try {
      const values = resultOf(reply, this.#work)
      if (this.#work.isSurelyHeld(ref)) this.#stage.returned(ref, values)
      else void this.#findOut(values)
    } catch (error) {
      if (!isOrbweaverError(error)) throw error
      this.#stage.failed(ref, error)
    }
  }

  failed(error: OrbweaverError): void {
    this.#stage.failed(this.#ref, error)
  }

  async #findOut(values: unknown[]): Promise<void> {
    if (await this.#work.isHeld(this.#ref)) this.#stage.returned(this.#ref, values)
    else this.#stage.failed(this.#ref, masterChanged(this.#ref))
  }
}

function masterChanged({ instance, set }: HeldRef): MapReduceError {
  const master = set.replicaset.master()
  const now = master === undefined || master.id === instance.id ? '' : `, to ${master.id}`
  return new MapReduceError(
    `The master of replicaset ${set.id} changed during the map, from ${instance.id}${now}: its result may miss buckets or count them twice`,
    { stage: 'map', executed: 'yes', replicasetId: set.id, instanceId: instance.id },
  )
}

const TRUE = 0xc3

/** What the function returned: at most one value. @throws VshardError, BoxError: its failure, or a refusal */
function resultOf(reply: Reply, { decode, isRaw }: MapWork): unknown[] {
  const { frame, dataEnd } = reply
  const flag = firstValueAt(reply)
  if (flag < dataEnd && frame[flag] === TRUE) {
    const first = flag + 1
    if (first === dataEnd) return []
    if (isRaw) return [new RawValue(Buffer.from(frame.subarray(first, skipValue(frame, first, dataEnd))))]
    return [decodeData(reply, decode)[1]]
  }
  // Errors are read as they come; only results appear as their reader wants them.
  const answer = readStorageMap(decodeData(reply))
  if (!answer.ok) throw answer.error
  return [...answer.value]
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
