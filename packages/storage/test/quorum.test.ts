import { VirtualClock } from '@orbweaver/connection/testing'
import { describe, expect, it } from 'vitest'
import { Quorum } from '../src/replication/quorum.js'

/** Who waited for which row, once it was confirmed or not. */
function waiting(quorum: Quorum, lsns: readonly number[]): string[] {
  const said: string[] = []
  for (const lsn of lsns) {
    void quorum.wait(lsn)?.then(
      () => said.push(`${lsn} confirmed`),
      () => said.push(`${lsn} failed`),
    )
  }
  return said
}

describe('a quorum of three', () => {
  function begin(): { clock: VirtualClock; quorum: Quorum } {
    const clock = new VirtualClock()
    return { clock, quorum: new Quorum({ clock, needed: 3, timeoutMs: 1_000 }) }
  }

  it('confirms what two others have, whatever the order of the news', async () => {
    const { clock, quorum } = begin()
    const said = waiting(quorum, [5, 7])
    quorum.acknowledge(2, 9)
    await clock.settle()
    expect(said).toEqual([])
    quorum.acknowledge(3, 6)
    quorum.acknowledge(3, 4)
    await clock.settle()
    expect(said).toEqual(['5 confirmed'])
    expect([quorum.has(6), quorum.has(7), quorum.confirmed]).toEqual([true, false, 6])
    await clock.advance(1_000)
    expect(said).toEqual(['5 confirmed', '7 failed'])
    expect(quorum.wait(6)).toBeUndefined()
  })

  it('adds nothing of an earlier term to what is said in a new one', async () => {
    const { clock, quorum } = begin()
    const said = waiting(quorum, [5])
    quorum.acknowledge(2, 9)
    quorum.beginTerm()
    quorum.acknowledge(3, 9)
    await clock.settle()
    expect(said).toEqual([])
    quorum.acknowledge(2, 9)
    await clock.settle()
    expect(said).toEqual(['5 confirmed'])
  })

  it('begins anew when the numbers do', async () => {
    const { clock, quorum } = begin()
    quorum.acknowledge(2, 9)
    quorum.acknowledge(3, 9)
    quorum.reset(4)
    const said = waiting(quorum, [4, 5])
    quorum.acknowledge(2, 5)
    await clock.settle()
    expect([said, quorum.waiting]).toEqual([[], 1])
    quorum.acknowledge(3, 5)
    await clock.settle()
    expect(said).toEqual(['5 confirmed'])
  })
})
