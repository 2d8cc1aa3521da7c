/* Transactions that stored functions begin: outside a stream they end with the call, inside one they are the stream's. */
import { BoxError } from '@orbweaver/iproto'
import { describe, expect, it } from 'vitest'
import type { FunctionContext } from '../src/index.js'
import { startAlone } from './memory.js'
import type { Alone } from './memory.js'

interface Subject extends Alone {
  /** Ids anybody sees. */
  visible(): number[]
}

function start(): Subject {
  const alone = startAlone()
  const { storage, clock } = alone
  storage.createSpace('s', { format: [{ name: 'id', type: 'unsigned' }] })
  const waitFor = (ms: number): Promise<void> => new Promise((resolve) => clock.schedule(ms, resolve))
  const functions: Record<string, (context: FunctionContext) => unknown> = {
    beginAndReturn: (context) => {
      context.begin()
      context.space('s').insert([1])
      return 'done'
    },
    beginAndThrow: (context) => {
      context.begin()
      context.space('s').insert([1])
      throw new Error('changed its mind')
    },
    beginAndWait: async (context) => {
      context.begin()
      context.space('s').insert([1])
      await waitFor(100)
      return context.space('s').count()
    },
    beginWaitAndThrow: async (context) => {
      context.begin()
      context.space('s').insert([1])
      await waitFor(100)
      throw new Error('changed its mind late')
    },
    commitTwice: (context) => {
      context.begin()
      context.space('s').insert([1])
      context.commit()
      context.commit()
      return 'done'
    },
    beginTwice: (context) => {
      context.begin()
      context.space('s').insert([1])
      context.begin()
    },
    rollBack: (context) => {
      context.begin()
      context.space('s').insert([1])
      context.rollback()
      context.space('s').insert([2])
      return 'done'
    },
    overWaits: async (context) => {
      context.begin()
      context.space('s').insert([1])
      await waitFor(100)
      context.space('s').insert([2])
      context.commit()
      return 'done'
    },
    beginWithTimeout: async (context) => {
      context.begin({ timeout: 50 })
      context.space('s').insert([1])
      await waitFor(100)
      context.commit()
    },
    conflict: async (context) => {
      context.begin()
      const seen = context.space('s').count()
      context.space('s').select()
      await waitFor(100)
      context.space<[number]>('s').insert([100 + seen])
      context.commit()
    },
    beginInAtomic: (context) => context.atomic(() => context.begin()),
    nested: (context) => context.call('beginAndReturn'),
    count: (context) => context.space('s').count(),
    commit: (context) => context.commit(),
  }
  for (const [name, run] of Object.entries(functions)) storage.define(name, run)
  return {
    ...alone,
    visible: () =>
      storage
        .space<[number]>('s')
        .select()
        .map(([id]) => id),
  }
}

async function outcome(work: Promise<unknown>): Promise<unknown> {
  try {
    return await work
  } catch (error) {
    if (error instanceof BoxError) return `${error.boxCode}: ${error.message}`
    throw error
  }
}

const LEFT_OPEN = '30: Transaction is active at return from function'

describe('a function called outside a stream', () => {
  it.each([
    ['beginAndReturn', LEFT_OPEN, []],
    ['beginAndThrow', '32: changed its mind', []],
    ['beginAndWait', LEFT_OPEN, []],
    ['beginWaitAndThrow', '32: changed its mind late', []],
    ['commitTwice', ['done'], [1]],
    ['beginTwice', '79: Operation is not permitted when there is an active transaction ', []],
    ['rollBack', ['done'], [2]],
    ['overWaits', ['done'], [1, 2]],
    ['beginWithTimeout', '231: Transaction has been aborted by timeout', []],
    ['beginInAtomic', '79: Operation is not permitted when there is an active transaction ', []],
    ['nested', LEFT_OPEN, []],
    ['commit', [], []],
  ])('%s answers %j and leaves %j', async (name, answer, left) => {
    const { connect, wait, visible } = start()
    const client = connect()
    expect(await wait(outcome(client.call(name)))).toEqual(answer)
    expect(visible()).toEqual(left)
    // Nothing leaks into what follows on the same connection.
    expect(await wait(client.call('count'))).toEqual([left.length])
    await wait(client.insert('s', [50]))
    expect(visible()).toEqual([...left, 50])
  })

  it('is alone with its transaction while it waits', async () => {
    const { connect, wait, visible, clock } = start()
    const client = connect()
    const waiting = outcome(client.call('overWaits'))
    await clock.advance(50)
    expect(visible()).toEqual([])
    await wait(client.insert('s', [9]))
    expect(await wait(waiting)).toEqual(['done'])
    expect(visible()).toEqual([1, 2, 9])
  })

  it('loses to whoever changed what it had read, as any transaction does', async () => {
    const { connect, wait, visible, clock } = start()
    const client = connect()
    const waiting = outcome(client.call('conflict'))
    await clock.advance(50)
    await wait(client.insert('s', [9]))
    expect(await wait(waiting)).toBe('97: Transaction has been aborted by conflict')
    expect(visible()).toEqual([9])
  })

  it('has its transaction rolled back also when its client is gone', async () => {
    const { connect, visible, clock, storage } = start()
    const client = connect()
    const lost = outcome(client.call('beginAndWait').catch(() => 'lost'))
    await clock.advance(50)
    client.destroy()
    await clock.advance(1_000)
    expect(await lost).toBe('lost')
    expect(visible()).toEqual([])
    storage.space('s').insert([1])
    expect(visible()).toEqual([1])
  })

  it('is treated alike when this process calls it', async () => {
    const { storage, wait, visible } = start()
    expect(await wait(outcome(storage.call('beginAndReturn')))).toBe(LEFT_OPEN)
    expect(visible()).toEqual([])
  })
})

describe('a function called in a stream', () => {
  it('leaves its transaction to the stream: the client commits it', async () => {
    const { connect, wait, visible } = start()
    const stream = connect().stream()
    expect(await wait(stream.call('beginAndReturn'))).toEqual(['done'])
    expect(visible()).toEqual([])
    await wait(stream.insert('s', [2]))
    await wait(stream.commit())
    expect(visible()).toEqual([1, 2])
  })

  it('leaves its transaction to the stream: the client rolls it back, also after the function threw', async () => {
    const { connect, wait, visible } = start()
    const stream = connect().stream()
    expect(await wait(outcome(stream.call('beginAndThrow')))).toBe('32: changed its mind')
    expect(await wait(stream.call('count'))).toEqual([1])
    await wait(stream.rollback())
    expect(visible()).toEqual([])
    expect(await wait(stream.call('count'))).toEqual([0])
  })

  it('works in the transaction the client began, and may end it', async () => {
    const { connect, wait, visible } = start()
    const stream = connect().stream()
    await wait(stream.begin())
    await wait(stream.insert('s', [3]))
    expect(await wait(outcome(stream.call('beginAndReturn')))).toBe(
      '79: Operation is not permitted when there is an active transaction ',
    )
    await wait(stream.call('commit'))
    expect(visible()).toEqual([3])
    await wait(stream.commit())
  })

  it('leaves nothing when the connection ends', async () => {
    const { connect, wait, visible, clock } = start()
    const client = connect()
    await wait(client.stream().call('beginAndReturn'))
    client.destroy()
    await clock.advance(100)
    expect(visible()).toEqual([])
  })
})
