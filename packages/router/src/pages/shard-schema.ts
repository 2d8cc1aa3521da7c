/* Names and definitions on each instance: ids differ between shards, and servers before 3.0 take no names. */
import { NoSuchIndexError, NoSuchSpaceError } from '@orbweaver/connection'
import { decodeData, selectRequest } from '@orbweaver/iproto'
import type { Request } from '@orbweaver/iproto'
import type { AskOptions, HeldRef } from '../map/held-ref.js'
import { indexOrder } from './index-order.js'
import type { IndexOrder, IndexRow } from './index-order.js'

export interface ShardTarget {
  readonly spaceId: number
  readonly indexId: number
  readonly order: IndexOrder
  /** Of the schema it was read from; replies tell when there is a newer one. */
  readonly version: number
}

const VSPACE = 281
const VINDEX = 289
const VSPACE_NAME_INDEX = 2

/** @throws NoSuchSpaceError, NoSuchIndexError, UnmergeableError */
export async function readTarget(
  ref: HeldRef,
  space: string | number,
  index: string | number,
  shardIndex: string | number,
  options: AskOptions,
): Promise<ShardTarget> {
  const select = async (request: Request): Promise<{ rows: unknown[]; version: number }> => {
    const reply = await ref.request(request, options)
    return { rows: decodeData(reply), version: reply.schemaVersion }
  }
  const { rows: spaces, version } = await select(
    typeof space === 'number'
      ? selectRequest({ space: VSPACE, key: [space] })
      : selectRequest({ space: VSPACE, index: VSPACE_NAME_INDEX, key: [space] }),
  )
  const [found] = spaces
  if (!Array.isArray(found) || typeof found[0] !== 'number') throw new NoSuchSpaceError(String(space))
  const spaceId = found[0]
  const rows = (await select(selectRequest({ space: VINDEX, key: [spaceId] }))).rows as IndexRow[]
  const find = (wanted: string | number): IndexRow | undefined =>
    rows.find((row) => row[typeof wanted === 'number' ? 1 : 2] === wanted)
  const target = find(index)
  const primary = find(0)
  if (target === undefined || primary === undefined) throw new NoSuchIndexError(String(space), String(index))
  const order = indexOrder(space, target, primary, find(shardIndex))
  return { spaceId, indexId: target[1] as number, order, version }
}
