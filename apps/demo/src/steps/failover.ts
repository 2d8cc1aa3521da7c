import type { ClusterInstance } from '@orbweaver/cluster'
import { duration, grouped, now } from '../printer.js'
import type { Printer } from '../printer.js'
import type { World } from '../world.js'

export interface FailoverResult {
  readonly oldMaster: string
  readonly newMaster: string
  /** From the end of the promotion to the moment the router knew. */
  readonly masterKnownMs: number
  readonly failedWrites: number
  /** Acknowledged and not there afterwards. */
  readonly lostWrites: number
}

/** Writers at work during the failover. */
const WRITERS = 16
/** Writes go on for this long before and after the switch. */
const MARGIN_MS = 300

/** Makes another instance the master in the middle of writes, and counts what was refused and what was lost. */
export async function failOver(
  { cluster, router, engine }: World,
  printer: Printer,
  signal: AbortSignal,
): Promise<{ ok: boolean; result: FailoverResult }> {
  const replicaset = cluster.config.replicasets.at(-1)!
  const old = cluster.masterOf(replicaset.id)
  const next = cluster.instances.find((instance) => instance.replicasetId === replicaset.id && instance !== old) ?? old
  printer.title(
    `A failover in the middle of writes: replicaset ${replicaset.name ?? replicaset.id}, from ${old.name} to ${next.name}`,
  )

  const acknowledged = new Set<number>()
  // A function that runs while its Tarantool becomes read-only is refused in its middle; writing the same row twice is no harm.
  const idempotent = engine === 'tarantool'
  let failed = 0
  let lastError = ''
  let longest = 0
  const ended = new AbortController()
  let lastId = 0
  // Of this moment: nothing moves buckets here.
  const ours = bucketsOf(router, cluster.config.bucketCount, replicaset.id)
  const write = async (): Promise<void> => {
    while (!ended.signal.aborted && !signal.aborted) {
      const id = ++lastId
      const bucketId = router.bucketId(id)
      if (!ours.has(bucketId)) continue
      const started = now()
      try {
        await router.callrw(bucketId, 'visit.add', [id, bucketId, id], { idempotent })
        acknowledged.add(id)
      } catch (error) {
        failed++
        lastError = (error as Error).message
      }
      longest = Math.max(longest, now() - started)
    }
  }
  const writers = Array.from({ length: WRITERS }, write)
  const switched = await promoteAmidst({ router }, next, replicaset.id).finally(() => ended.abort())
  await Promise.all(writers)

  const stored = new Set<number>()
  for (const [ids] of (await router.mapCallrw<[number[]]>('visit.ids')).values()) for (const id of ids) stored.add(id)
  const lost = [...acknowledged].filter((id) => !stored.has(id)).length
  printer.say(
    `${next.name} became the master in ${duration(switched.promoteMs)}; the router knew ${duration(switched.masterKnownMs)} later`,
  )
  printer.say(
    `${grouped(acknowledged.size)} writes were acknowledged, ${failed} failed${failed > 0 ? ` (${lastError})` : ''}, ${lost} were lost; the longest waited ${duration(longest)}`,
  )
  const result = {
    oldMaster: old.name,
    newMaster: next.name,
    masterKnownMs: Number(switched.masterKnownMs.toFixed(1)),
    failedWrites: failed,
    lostWrites: lost,
  }
  return { ok: failed === 0 && lost === 0 && acknowledged.size > 0, result }
}

function bucketsOf(router: World['router'], bucketCount: number, replicasetId: string): ReadonlySet<number> {
  const all = Array.from({ length: bucketCount }, (_, i) => i + 1)
  return new Set(all.filter((bucketId) => router.locate(bucketId) === replicasetId))
}

async function promoteAmidst(
  { router }: Pick<World, 'router'>,
  next: ClusterInstance,
  replicasetId: string,
): Promise<{ promoteMs: number; masterKnownMs: number }> {
  const replicaset = router.routeAll().get(replicasetId)!
  await new Promise((resolve) => setTimeout(resolve, MARGIN_MS))
  const known = whenMaster(replicaset, next.id)
  const started = now()
  await next.promote()
  const promoted = now()
  const knownAt = await known
  await new Promise((resolve) => setTimeout(resolve, MARGIN_MS))
  return { promoteMs: promoted - started, masterKnownMs: Math.max(0, knownAt - promoted) }
}

async function whenMaster(
  replicaset: { master(): { id: string } | undefined; changes(): AsyncIterable<{ master: string | undefined }> },
  id: string,
): Promise<number> {
  for await (const { master } of replicaset.changes()) if (master === id) return now()
  throw new Error(`The replicaset was closed before ${id} became its master`)
}
