/*
 * A move that is disturbed at each of its messages in each way a network has, with and without a change of masters at that
 * moment. Never do two replicasets serve a bucket; in the end exactly one does, with every row.
 */
import { afterEach, describe, expect, it } from 'vitest'
import { MemoryCluster } from './vshard-cluster.js'
import type { Interceptor } from './vshard-cluster.js'

const BUCKET = 3
const ROWS = 6

let cluster: MemoryCluster

afterEach(async () => {
  await cluster.close()
})

/** Instances, function and number of the call that is disturbed. */
interface Place {
  readonly name: string
  readonly on: readonly string[]
  readonly function: string
  readonly service?: string
  readonly count: number
}

const RECV = 'vshard.storage.bucket_recv'
const CALL = 'vshard.storage._call'
const [A, B] = [
  ['a1', 'a2'],
  ['b1', 'b2'],
] as const

const PLACES: readonly Place[] = [
  { name: 'the question whether nobody writes', on: A, function: CALL, service: 'bucket_test_send', count: 1 },
  { name: 'the question about maps', on: A, function: 'orbweaver.vshard.await_refs', count: 1 },
  { name: "the receiver's question to the sender", on: A, function: CALL, service: 'recovery_bucket_stat', count: 1 },
  { name: 'the first message', on: B, function: RECV, count: 1 },
  { name: 'the second message', on: B, function: RECV, count: 2 },
  { name: 'the last message with rows', on: B, function: RECV, count: 4 },
  { name: 'the last message', on: B, function: RECV, count: 5 },
  { name: 'the question whether nobody reads', on: A, function: CALL, service: 'bucket_test_gc', count: 1 },
]

const never = (): Promise<never> => new Promise<never>(() => undefined)
const after = (ms: number): Promise<void> => new Promise((resolve) => cluster.clock.schedule(ms, resolve))

const FAULTS: Readonly<Record<string, (run: () => unknown) => unknown>> = {
  'is lost': () => never(),
  'is executed but its answer is lost': async (run) => {
    await run()
    return never()
  },
  'comes seven seconds late': async (run) => {
    await after(7_000)
    return run()
  },
  fails: () => {
    throw new Error('injected')
  },
}

const SWITCHES: Readonly<Record<string, () => Promise<unknown>>> = {
  'and nothing else happens': () => Promise.resolve(),
  "and the sender's master changes": () => cluster.at('a2').promote(),
  "and the receiver's master changes": () => cluster.at('b2').promote(),
  "and the sender's master is cut off, replaced, and comes back": () => replaced('a'),
  "and the receiver's master is cut off, replaced, and comes back": () => replaced('b'),
}

async function replaced(set: string): Promise<void> {
  cluster.isolate(`${set}1`)
  await after(3_000)
  await cluster.at(`${set}2`).promote()
  await after(9_000)
  cluster.rejoin(`${set}1`)
}

/** Disturbs one call, wherever it arrives; `then` runs when it does. */
function disturb(place: Place, fault: (run: () => unknown) => unknown, then: () => void): void {
  let seen = 0
  const interceptor: Interceptor = (run, args) => {
    const isIt =
      place.service === undefined ? true : args[0] === place.service && JSON.stringify(args).includes(String(BUCKET))
    if (!isIt || ++seen !== place.count) return run()
    then()
    return fault(run)
  }
  for (const name of place.on) cluster.intercept(name, place.function, interceptor)
}

async function watched(ms: number): Promise<void> {
  for (let passed = 0; passed < ms; passed += 50) {
    await cluster.clock.advance(50)
    expect(cluster.doubled()).toEqual([])
  }
}

const CASES = PLACES.flatMap((place) =>
  Object.keys(FAULTS).flatMap((fault) => Object.keys(SWITCHES).map((change) => ({ place, fault, change }))),
)

describe.each(PLACES.map(({ name }) => name))('when %s', (placeName) => {
  it.each(CASES.filter(({ place }) => place.name === placeName))('$fault $change', async ({ place, fault, change }) => {
    cluster = await new MemoryCluster({
      replicasets: 2,
      instances: 3,
      bucketCount: 8,
      quorum: 2,
      vshard: { maxChunkBytes: 14 },
    }).start()
    const rows = cluster.at('a1').space('s')
    for (let i = 1; i < ROWS; i++) rows.insert([100 + i, BUCKET, 'x'])
    let changed: Promise<unknown> = Promise.resolve()
    let isDisturbed = false
    disturb(place, FAULTS[fault]!, () => {
      isDisturbed = true
      changed = SWITCHES[change]!().catch((error: unknown) => error)
    })
    let outcome: unknown
    void cluster
      .at('a1')
      .vshard.sendBucket(BUCKET, 'b', { timeout: 20_000, chunkTimeout: 2_000, syncTimeout: 1_000 })
      .then(
        () => (outcome = 'moved'),
        (error: unknown) => (outcome = error),
      )
    await watched(35_000)
    await changed
    expect(isDisturbed).toBe(true)
    expect(outcome).toBeDefined()
    const owners = cluster.owners(BUCKET)
    expect(Object.values(owners)).toEqual(['active'])
    const [owner] = Object.keys(owners)
    for (const name of cluster.names) {
      const found = cluster.at(name).space('s').select([BUCKET], { index: 'bucket_id' })
      expect({ [name]: found.length }).toEqual({ [name]: name.startsWith(owner!) ? ROWS : 0 })
    }
    // And it can move again, wherever it is.
    const other = owner === 'a' ? 'b' : 'a'
    for (const name of place.on) cluster.at(name).define(place.function, cluster.side(name).functions[place.function]!)
    const master = cluster.names.find((name) => name.startsWith(owner!) && !cluster.at(name).isReadonly)!
    await cluster.wait(cluster.at(master).vshard.sendBucket(BUCKET, other))
    await watched(1_000)
    expect(cluster.owners(BUCKET)).toEqual({ [other]: 'active' })
  })
})

describe.each([
  ['before it is executed', false],
  ['after it was executed', true],
])('a process that is killed at a message, %s', (_when, isExecuted) => {
  it.each(
    ['a1', 'b1'].flatMap((victim) =>
      PLACES.filter(({ function: called }) => called === RECV).map((place) => ({ victim, place })),
    ),
  )('is $victim at $place.name: the bucket is in one place, whole', async ({ victim, place }) => {
    cluster = await new MemoryCluster({
      replicasets: 2,
      bucketCount: 8,
      isDurable: true,
      vshard: { maxChunkBytes: 14 },
    }).start()
    const rows = cluster.at('a1').space('s')
    for (let i = 1; i < ROWS; i++) rows.insert([100 + i, BUCKET, 'x'])
    await cluster.wait(cluster.at('a1').committed())
    let crashed: Promise<unknown> | undefined
    let seen = 0
    cluster.intercept('b1', RECV, async (run) => {
      if (++seen !== place.count) return run()
      const reply = isExecuted ? await run() : undefined
      if (isExecuted) await cluster.at('b1').committed()
      crashed = cluster.crash(victim)
      return isExecuted ? reply : never()
    })
    cluster
      .at('a1')
      .vshard.sendBucket(BUCKET, 'b', { timeout: 20_000, chunkTimeout: 2_000 })
      .catch((error: unknown) => error)
    await watched(35_000)
    await crashed
    expect(crashed).toBeDefined()
    const owners = cluster.owners(BUCKET)
    expect(Object.values(owners)).toEqual(['active'])
    const [owner] = Object.keys(owners)
    for (const name of cluster.names) {
      const found = cluster.at(name).space('s').select([BUCKET], { index: 'bucket_id' })
      expect({ [name]: found.length }).toEqual({ [name]: name.startsWith(owner!) ? ROWS : 0 })
    }
  })
})
