/* A space with one row or none, as queues and locks have it. */
import { describe, expect, it } from 'vitest'
import { startAlone } from './memory.js'

const SPACE = {
  format: [
    { name: 'id', type: 'unsigned' },
    { name: 'owner', type: 'string' },
  ],
  indexes: [
    { name: 'pk', parts: ['id'] },
    { name: 'owner', parts: ['owner'], isUnique: false },
  ],
} as const

describe('the only row of a space, inserted and deleted a thousand times', { timeout: 30_000 }, () => {
  it.each(['committed', 'rolled back', 'in a stream', 'in a stream, pipelined'])(
    '%s, leaves an empty, healthy space',
    async (how) => {
      const { storage, connect, wait } = startAlone()
      storage.createSpace('locks', SPACE)
      storage.define('pair', (context, isKept) =>
        context.atomic(() => {
          context.space('locks').insert([1, 'me'])
          context.space('locks').delete([1])
          if (isKept !== true) throw new Error('undone')
          return true
        }),
      )
      const client = connect()
      const stream = client.stream()
      if (how.startsWith('in a stream')) {
        for (let round = 0; round < 10; round++) {
          await wait(stream.begin())
          const requests: Promise<unknown>[] = []
          for (let i = 0; i < 100; i++) {
            requests.push(stream.insert('locks', [1, 'me']), stream.delete('locks', [1]))
            if (!how.includes('pipelined')) await wait(Promise.all(requests.splice(0)))
          }
          await wait(Promise.all(requests))
          await wait(round % 2 === 0 ? stream.commit() : stream.rollback())
        }
      } else {
        const outcomes = Array.from({ length: 1_000 }, () =>
          client.call('pair', [how === 'committed']).catch(() => undefined),
        )
        await wait(Promise.all(outcomes))
      }
      const locks = storage.space('locks')
      expect(locks.count()).toBe(0)
      expect(locks.select([], { index: 'owner' })).toEqual([])
      await wait(client.insert('locks', [1, 'you']))
      expect(locks.select(['you'], { index: 'owner' })).toEqual([[1, 'you']])
      await wait(storage.close({ graceMs: 0 }))
    },
  )
})
