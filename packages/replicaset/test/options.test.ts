import { ConfigError } from '@orbweaver/iproto'
import { describe, expect, it } from 'vitest'
import { createReplicaset } from '../src/index.js'

const definition = { id: 'a', instances: [{ id: 'x', uri: 'localhost:3301' }] }

describe('what a replicaset is told', () => {
  it.each([
    [undefined, /definition: expected the replicaset: \{ id, instances/],
    [{}, /definition: expected the replicaset/],
    [{ definition: 5 }, /definition: expected the replicaset/],
    [{ definition: { id: 'a', instances: [] } }, /definition\.instances: must be a list of at least one instance/],
    [{ definition: { id: 'a', instances: [5] } }, /definition\.instances\[0\]: expected an instance/],
    [{ definition: { id: 'a', instances: [{ id: 'x', uri: 5 }] } }, /instances\[0\]\.uri: expected an address, got 5/],
    [{ definition: { id: 'a', instances: [{ id: 'x' }] } }, /instances\[0\]\.uri: /],
    [{ definition, wait: 5 }, /wait: is no option/],
    [{ definition, buffer: { windowMs: '5' } }, /buffer\.windowMs: is 5, expected milliseconds/],
  ])('is refused at the door when it is %j', (options, message) => {
    const create = (): unknown => createReplicaset(options as Parameters<typeof createReplicaset>[0])
    expect(create).toThrow(ConfigError)
    expect(create).toThrow(message)
  })
})
