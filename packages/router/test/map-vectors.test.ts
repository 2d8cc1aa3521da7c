/* The map-reduce calls of the Lua router against storages of vshard, and what those answered: ours sends the same. */
import { decodeValue, Key, RequestType } from '@orbweaver/iproto'
import { ScriptedPeer, uuidOf, VirtualClock } from '@orbweaver/connection/testing'
import { readFileSync } from 'node:fs'
import { afterEach, expect, it } from 'vitest'
import { createRouter } from '../src/index.js'
import type { MapOptions, Router } from '../src/index.js'

interface Exchange {
  readonly to: string
  readonly function: string
  readonly args: readonly unknown[]
  readonly replyBodyHex: string
}

const VECTORS = JSON.parse(readFileSync(new URL('vectors/map-sequences.json', import.meta.url), 'utf8')) as {
  ids: Record<string, string>
  sequences: { name: string; about: string; exchanges: Exchange[] }[]
}
const BUCKETS = 10
const TIMEOUT_MS = 3_000

/** The call that led to each sequence, and what it gives: values by replicaset, or the fields of its error. */
const CALLS: Readonly<
  Record<string, { name: string; args?: unknown[]; options?: MapOptions; result?: object; error?: object }>
> = {
  'map-full': { name: 'customer_count', result: { rs1: [0], rs2: [0], rs3: [0] } },
  'map-full-error': { name: 'raise_lua', error: { stage: 'map', executed: 'yes' } },
  'map-full-lost-bucket': {
    name: 'customer_count',
    error: { stage: 'check', executed: 'no', replicasetId: undefined },
  },
  'map-partial': { name: 'echo', args: ['p'], options: { bucketIds: [2, 10] }, result: { rs1: ['p'], rs2: ['p'] } },
  'map-partial-args': {
    name: 'echo',
    args: ['common'],
    options: {
      bucketArgs: new Map([
        [10, ['for b2']],
        [2, ['for b1']],
      ]),
    },
    result: { rs1: ['common'], rs2: ['common'] },
  },
  'map-partial-moved': { name: 'echo', args: ['m'], options: { bucketIds: [2] }, result: { rs2: ['m'] } },
}

/** Ours sends no release to storages that have used the reference up, or never gave one. */
const isSentByUs = (sequence: string, { args }: Exchange): boolean =>
  sequence !== 'map-full-error' || args[0] !== 'storage_unref'

let router: Router
let clock: VirtualClock

afterEach(async () => {
  const closing = router.close({ timeout: 0 })
  await clock.advance(100)
  await closing
})

it.each(VECTORS.sequences.map(({ name, about, exchanges }) => [name, about, exchanges] as const))(
  '%s: %s',
  async (name, _about, recorded) => {
    const { args = [], error, name: functionName, options, result } = CALLS[name]!
    const expected = recorded.filter((exchange) => isSentByUs(name, exchange))
    const sent: unknown[] = []
    const left = [...expected]
    clock = new VirtualClock()
    const peers = Object.keys(VECTORS.ids).map((set) =>
      storage(set, (values) => {
        sent.push([set, ...masked(values)])
        const at = left.findIndex((exchange) => exchange.to === set && exchange.args[0] === values[0])
        return at < 0 ? undefined : left.splice(at, 1)[0]!.replyBodyHex
      }),
    )
    router = createRouter({
      config: {
        bucketCount: BUCKETS,
        identification: 'uuid',
        user: 'storage',
        password: 'secret',
        replicasets: Object.entries(VECTORS.ids).map(([set, id], i) => ({
          id,
          master: 'auto',
          weight: 1,
          instances: [{ id: uuidOf(set), uri: `${set}:${3300 + i}` }],
        })),
      },
      discoveryMode: 'off',
      environment: {
        clock,
        random: () => 0.5,
        dial: (address) =>
          Promise.resolve(
            (
              peers[Object.keys(VECTORS.ids).indexOf('host' in address ? address.host : '')]!.address as {
                connect(): never
              }
            ).connect(),
          ),
      },
    })
    await clock.advance(100)
    const { rs1, rs2, rs3 } = VECTORS.ids as { rs1: string; rs2: string; rs3: string }
    router.report({ bucketId: 2, from: rs3, destination: rs1 })
    router.report({ bucketId: 10, from: rs3, destination: rs2 })
    await clock.settle()

    const call = router.mapCallrw(functionName, args, { timeout: TIMEOUT_MS, ...options })
    const outcome = call.then(
      (results) => Object.fromEntries(results),
      (reason: unknown) => reason,
    )
    await clock.advance(500)
    if (error === undefined)
      expect(await outcome).toEqual(
        Object.fromEntries(Object.entries(result!).map(([set, values]) => [VECTORS.ids[set], values as unknown])),
      )
    else expect(await outcome).toMatchObject(error)
    const sortable = (items: readonly unknown[]): unknown[] =>
      items.toSorted((a, b) => (String(a) < String(b) ? -1 : 1))
    expect(sortable(sent)).toEqual(
      sortable(expected.map((exchange) => [exchange.to, ...masked(plain(exchange.args) as unknown[])])),
    )
  },
)

/** Ids of references and times are of one run; ours begin at random, and stay below 10^14. */
function masked([service, id, ...rest]: readonly unknown[]): unknown[] {
  expect(Number(id)).toBeLessThan(1e14)
  const isTimed = service === 'storage_ref' || service === 'storage_ref_make_with_buckets'
  return [service, ...(isTimed ? ['timeout', ...rest.slice(1)] : rest)]
}

/** `{"$map": [[key, value]]}` stands for a map with keys that are no texts. */
function plain(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(plain)
  if (typeof value !== 'object' || value === null) return value
  const { $map } = value as { $map?: [unknown, unknown][] }
  return $map === undefined ? value : new Map($map.map(([key, item]) => [key, plain(item)]))
}

/** A writable instance; services but `info` are answered with recorded bodies, or not at all. */
function storage(set: string, answer: (values: readonly unknown[]) => string | undefined): ScriptedPeer {
  const peer = new ScriptedPeer({ clock, uuid: uuidOf(set), version: '3.2.1', users: { storage: 'secret' } })
  peer.values.set('box.status', { is_ro: false, is_ro_cfg: false, status: 'running' })
  peer.values.set('box.election', { term: 1, is_ro: false, role: 'leader', leader: 1 })
  peer.values.set('box.id', {})
  peer.handle(RequestType.ping, (request) => request.ok())
  peer.handle(RequestType.watchOnce, (request) =>
    request.reply([peer.values.get(request.body.requireText(Key.eventKey))]),
  )
  peer.handle(RequestType.call, (request) => {
    const args = request.body.array(Key.tuple) ?? []
    if (args[0] === 'info') {
      request.reply([{ is_master: true }])
      return
    }
    const hex = answer(args)
    if (hex === undefined) return
    const body = decodeValue(Buffer.from(hex, 'hex'), { maps: 'map' }) as Map<number, unknown[]>
    request.reply(body.get(Key.data)!)
  })
  return peer
}
