/* A program that holds buckets and dies without a word: its connections are gone, and so is the hold. */
import { spawn } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { connect } from '@orbweaver/connection'
import type { Connection } from '@orbweaver/connection'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { startCluster } from '../../src/index.js'
import type { Cluster } from '../../src/index.js'
import { describeEngines } from '../engines.js'

const BUCKETS = 10
/** Less than the 30 seconds a reference lives when nobody renews it: the end of the session must be what frees the buckets. */
const MOVE_SECONDS = 20

describeEngines('buckets held by another process', (engine) => {
  let cluster: Cluster
  let master: Connection
  let holder: ChildProcess | undefined

  beforeAll(async () => {
    cluster = await startCluster({ engine, instances: 1, bucketCount: BUCKETS })
    const { password, replicasets, user } = cluster.config
    master = await connect({ uri: replicasets[0]!.instances[0]!.uri, user, password })
  }, 60_000)

  afterAll(async () => {
    holder?.kill('SIGKILL')
    master?.destroy()
    await cluster?.close()
  })

  const move = async (bucketId: number, seconds: number): Promise<boolean> => {
    const { id } = cluster.config.replicasets[1]!
    const [isMoved] = await master.call('vshard.storage.bucket_send', [bucketId, id, { timeout: seconds }], {
      timeout: 60_000,
    })
    return isMoved === true
  }

  it('move again once it was killed', async () => {
    const program = fileURLToPath(new URL('../fixtures/holds-buckets.mjs', import.meta.url))
    holder = spawn(process.execPath, [program, JSON.stringify(cluster.config)], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    await once(holder.stdout!, 'data')
    expect(await move(1, 0.5)).toBe(false)

    const ended: string[] = []
    const moving = move(2, MOVE_SECONDS).then((isMoved) => {
      ended.push('move')
      return isMoved
    })
    const dying = once(holder, 'exit').then(() => ended.push('holder'))
    // It is there, and waits: others are served meanwhile.
    expect(await move(3, 0.5)).toBe(false)
    holder.kill('SIGKILL')
    await dying
    expect(await moving).toBe(true)
    expect(ended).toEqual(['holder', 'move'])
  }, 90_000)
})
