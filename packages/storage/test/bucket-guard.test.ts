import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { problemOf } from '../src/vshard/bucket-guard.js'
import type { BucketRecord } from '../src/vshard/bucket-record.js'
import { startAlone } from './memory.js'

const { cases } = JSON.parse(readFileSync(new URL('vectors/bucket-transitions.json', import.meta.url), 'utf8')) as {
  cases: { from: string; to: string; allowed: boolean }[]
}

function record(status: string, generation = 1): BucketRecord | undefined {
  return status === 'nil' ? undefined : ({ id: 1, status, destination: undefined, generation } as BucketRecord)
}

const FREE = { read: 0, write: 0, readLock: false, writeLock: false }

describe('a change of a bucket', () => {
  it.each(cases)('from $from to $to: allowed $allowed', ({ from, to, allowed }) => {
    const problem = problemOf({ before: record(from), after: record(to, to === 'sending' ? 2 : 1) }, undefined)
    expect(problem === undefined).toBe(allowed)
  })

  it.each([
    ['a new one that somebody uses', undefined, record('receiving'), FREE, "new bucket can't have a ref object"],
    [
      'to sending under a write',
      record('readonly'),
      record('sending', 2),
      { ...FREE, write: 1 },
      "'sending' bucket can't have rw refs",
    ],
    [
      'to sent under a write',
      record('sending'),
      record('sent'),
      { ...FREE, write: 1 },
      "'sent' bucket can't have rw refs",
    ],
    [
      'to garbage under a read',
      record('sent'),
      record('garbage'),
      { ...FREE, read: 1 },
      "'garbage' bucket can't have any refs",
    ],
    ['deleting it under a read', record('garbage'), undefined, { ...FREE, read: 1 }, "can't delete a bucket with refs"],
    ['without its generation', record('readonly'), record('active', 0), undefined, 'bucket update drops generation 1'],
    [
      'to sending without counting',
      record('readonly'),
      record('sending', 1),
      undefined,
      "bucket update to 'sending' doesn't increment generation 1 -> 1",
    ],
    [
      'to sent with another generation',
      record('sending'),
      record('sent', 2),
      undefined,
      "transition to 'sent' changes generation 2 -> 1",
    ],
    [
      'to garbage with another generation',
      record('sent'),
      record('garbage', 2),
      undefined,
      "transition to 'garbage' changes generation 2 -> 1",
    ],
    [
      'to a status nobody knows',
      record('active'),
      { ...record('active')!, status: 'frozen' },
      undefined,
      "unknown bucket status 'frozen'",
    ],
  ])('%s is refused with its reason', (_what, before, after, refs, reason) => {
    expect(problemOf({ before, after }, refs)).toBe(reason)
  })

  it('is judged whoever makes it, also a client with rights on the space, and leaves no trace when refused', async () => {
    const { storage, connect, wait } = startAlone({ vshard: { bucketCount: 10 } })
    await wait(storage.call('vshard.storage.bucket_force_create', 1, 3))
    const error = await wait(
      connect()
        .delete('_bucket', [1])
        .catch((cause: unknown) => cause),
    )
    expect(JSON.parse((error as Error).message)).toMatchObject({
      name: 'BUCKET_INVALID_UPDATE',
      bucket_id: 1,
      reason: "can't delete 'active' bucket",
    })
    expect(() => storage.space('_bucket').insert([9, 'active'])).toThrow(/transition 'nil' to 'active' is not allowed/)
    expect(storage.space('_bucket').select()).toEqual([
      [1, 'active'],
      [2, 'active'],
      [3, 'active'],
    ])
    storage.vshard.setBucketProtection(false)
    storage.space('_bucket').delete([1])
    expect(storage.info().buckets).toBe(2)
  })
})
