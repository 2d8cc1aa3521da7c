/* Configurations from files and storages. */
import { mkdtemp, rename, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { systemClock } from '@orbweaver/connection'
import { ScriptedPeer } from '@orbweaver/connection/testing'
import { RequestType } from '@orbweaver/iproto'
import { writeVshardConfig } from '@orbweaver/vshard'
import type { ClusterConfig } from '@orbweaver/vshard'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { openRouter, readAnyConfig, topologyFile, topologyOfStorage } from '../src/index.js'
import { failure } from './fake-cluster.js'

const config: ClusterConfig = {
  bucketCount: 10,
  identification: 'name',
  user: 'storage',
  password: 'secret',
  replicasets: [{ id: 'a', master: 'auto', instances: [{ id: 'a1', uri: 'localhost:3301' }] }],
}
const bigger: ClusterConfig = {
  ...config,
  replicasets: [...config.replicasets, { id: 'b', instances: [{ id: 'b1', uri: 'localhost:3302' }] }],
}
const topology = {
  bucketCount: 10,
  identification: 'name',
  user: 'storage',
  password: 'secret',
  replicasets: [
    {
      name: 'a',
      uuid: '11111111-1111-4111-8111-111111111111',
      master: 'auto',
      replicas: [{ name: 'a1', uuid: '11111111-1111-4111-8111-111111111112', host: 'localhost', port: 3301 }],
    },
  ],
  proxy: null,
  page: null,
}
const never = new AbortController().signal

it.each([
  ['ours', config],
  ["vshard's own", writeVshardConfig(config)],
  ['a topology file', topology],
])('a configuration in the shape of %s is understood', (_shape, value) => {
  const { bucketCount, replicasets, user } = readAnyConfig(structuredClone(value))
  expect([bucketCount, user, replicasets[0]!.id, replicasets[0]!.instances[0]!.id]).toEqual([10, 'storage', 'a', 'a1'])
})

describe('a file', () => {
  let dir: string
  let path: string

  beforeEach(async () => {
    dir = await mkdtemp(join(tmpdir(), 'orbweaver-topology-'))
    path = join(dir, 'cluster.json')
  })
  afterEach(() => rm(dir, { recursive: true }))

  it('is followed, whether it is written again or replaced, and a bad one changes nothing', async () => {
    await writeFile(path, JSON.stringify(config))
    await using router = await openRouter({
      topology: topologyFile(path),
      discoveryMode: 'off',
      environment: { dial: () => Promise.reject(new Error('nobody is there')) },
    })
    const sets = (): string[] => [...router.routeAll().keys()]
    expect(sets()).toEqual(['a'])
    await writeFile(path, JSON.stringify(bigger))
    await expect.poll(sets).toEqual(['a', 'b'])
    await writeFile(path, '{"bucketCount": 10, "ident')
    await expect.poll(() => router.info().alerts.map(({ name }) => name)).toContain('INVALID_CFG')
    expect(sets()).toEqual(['a', 'b'])
    await writeFile(`${path}.new`, JSON.stringify(config))
    await rename(`${path}.new`, path)
    await expect.poll(sets).toEqual(['a'])
    expect(router.info().alerts.map(({ name }) => name)).not.toContain('INVALID_CFG')
    await router.close({ timeout: 0 })
  })

  it('that is not there is an error for a router that has nothing else', async () => {
    expect(await failure(openRouter({ topology: topologyFile(path) }))).toMatchObject({ code: 'ENOENT' })
  })
})

describe('a storage', () => {
  function seed(answer: unknown): ScriptedPeer {
    const peer = new ScriptedPeer({ clock: systemClock })
    peer.handle(RequestType.call, (request) => request.reply([answer]))
    peer.handle(RequestType.eval, (request) => request.reply([answer]))
    return peer
  }

  function source(peers: Readonly<Record<string, ScriptedPeer>>, name?: string) {
    return topologyOfStorage({
      uris: Object.keys(peers).map((host) => `${host}:3301`),
      ...(name === undefined ? {} : { function: name }),
      environment: {
        dial: async (address) => {
          const peer = peers['host' in address ? address.host : '']!
          if (peer.refusal !== undefined) throw peer.refusal
          return (peer.address as { connect(): never }).connect()
        },
      },
    })
  }

  it('tells which cluster it belongs to, by a function or by what vshard was configured with', async () => {
    const peers = { x: seed(writeVshardConfig(config)) }
    for (const name of ['cluster_config', undefined]) {
      const read = await source(peers, name).read(never)
      expect(read.replicasets.map(({ id, master }) => [id, master])).toEqual([['a', 'auto']])
    }
    expect(peers.x.requests.map(({ type }) => type)).toEqual(
      expect.arrayContaining([RequestType.call, RequestType.eval]),
    )
  })

  it('that cannot is passed over for the next, and all reasons are told when nobody can', async () => {
    const dead = seed(undefined)
    dead.refusal = new Error('it is down')
    expect((await source({ dead, other: seed(config) }, 'f').read(never)).bucketCount).toBe(10)
    const error = (await failure(source({ dead, other: seed({ bucketCount: 0 }) }, 'f').read(never))) as Error
    expect(error).toMatchObject({ code: 'ORB_CONFIG' })
    expect(error.message).toMatch(/dead:3301.*it is down.*other:3301/)
  })
})
