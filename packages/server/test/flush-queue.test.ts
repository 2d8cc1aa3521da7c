import type { Clock } from '@orbweaver/connection'
import { describe, expect, it } from 'vitest'
import { type Flushed, FlushQueue } from '../src/flush-queue.js'

/** A loop that is turned by hand. */
function loop(): { queue: FlushQueue; turn: () => string[]; member: (name: string) => Flushed } {
  let tasks: (() => void)[] = []
  let flushed: string[] = []
  const clock: Clock = {
    now: () => 0,
    wallNow: () => 0,
    schedule: () => () => undefined,
    soon: (task) => void tasks.push(task),
  }
  return {
    queue: new FlushQueue(clock),
    member: (name) => ({ flushDue: 0, flush: () => void flushed.push(name) }),
    turn: () => {
      const due = tasks
      tasks = []
      flushed = []
      for (const task of due) task()
      return flushed
    },
  }
}

describe('FlushQueue', () => {
  it('flushes each member once behind the turn it was asked in', () => {
    const { queue, turn, member } = loop()
    const [a, b] = [member('a'), member('b')]
    queue.soon(a)
    queue.soon(b)
    queue.soon(a)
    expect(turn()).toEqual(['a', 'b'])
    expect(turn()).toEqual([])
    queue.soon(a)
    expect(turn()).toEqual(['a'])
  })

  it('lets those wait one turn more for which more is on its way', () => {
    const { queue, turn, member } = loop()
    const a = member('a')
    queue.later(a)
    expect(turn()).toEqual([])
    queue.later(a)
    expect(turn()).toEqual(['a'])
    expect(turn()).toEqual([])
  })

  it('waits no longer when the last has come', () => {
    const { queue, turn, member } = loop()
    const a = member('a')
    queue.later(a)
    queue.soon(a)
    queue.later(a)
    expect(turn()).toEqual(['a'])
    expect(turn()).toEqual([])
  })

  it('passes over members that were flushed by somebody else', () => {
    const { queue, turn, member } = loop()
    const a = member('a')
    queue.soon(a)
    a.flushDue = 0
    expect(turn()).toEqual([])
    queue.later(a)
    a.flushDue = 0
    expect([turn(), turn()]).toEqual([[], []])
  })
})
