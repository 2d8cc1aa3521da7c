import { describe, expect, it } from 'vitest'
import type { BucketStatus } from '../src/vshard/bucket-record.js'
import { verdictOf } from '../src/vshard/recovery-rules.js'

const STATUSES: readonly BucketStatus[] = ['active', 'pinned', 'readonly', 'sending', 'sent', 'receiving', 'garbage']

function verdict(
  status: BucketStatus,
  remote: BucketStatus | undefined,
  generation: number,
  options: { isPeer?: boolean; isTransferring?: boolean } = {},
): string {
  const { isPeer = true, isTransferring = false } = options
  return verdictOf(
    { id: 1, status, destination: 'b', generation: 5 },
    remote === undefined ? undefined : { status: remote, generation, isTransferring, isPeer },
  )
}

describe('recovery', () => {
  it('makes a readonly bucket active without asking anybody', () => {
    expect(verdict('readonly', undefined, 0)).toBe('active')
  })

  it.each(STATUSES)('waits while the other side moves the bucket (it is %s there)', (remote) => {
    expect(verdict('sending', remote, 5, { isTransferring: true })).toBe('wait')
    expect(verdict('receiving', remote, 6, { isTransferring: true })).toBe('wait')
  })

  it.each([
    // local, remote, remote generation (ours is 5), what becomes of it
    ['sending', 'active', 5, 'sent'],
    ['sending', 'pinned', 5, 'sent'],
    ['sending', 'receiving', 5, 'wait'],
    ['sending', 'garbage', 5, 'active'],
    ['sending', 'sent', 5, 'active'],
    ['sending', undefined, 0, 'active'],
    ['sending', 'active', 6, 'sent'],
    ['sending', 'sending', 6, 'sent'],
    ['sending', 'sent', 6, 'sent'],
    ['sending', 'receiving', 6, 'wait'],
    ['sending', 'receiving', 4, 'active'],
    ['sending', 'sent', 4, 'active'],
    ['sending', 'active', 4, 'wait'],
    ['receiving', 'sent', 5, 'active'],
    ['receiving', 'garbage', 5, 'active'],
    ['receiving', undefined, 0, 'active'],
    ['receiving', 'sending', 5, 'garbage'],
    ['receiving', 'active', 5, 'garbage'],
    ['receiving', 'readonly', 5, 'garbage'],
    ['receiving', 'active', 6, 'garbage'],
    ['receiving', 'receiving', 6, 'garbage'],
    ['receiving', 'active', 4, 'garbage'],
    ['receiving', 'readonly', 4, 'garbage'],
    ['receiving', 'sent', 4, 'active'],
  ] as const)('%s here and %s of generation %d there: %s', (local, remote, generation, wanted) => {
    expect(verdict(local, remote, generation)).toBe(wanted)
  })

  it('keeps what it received when an older sender of it is found elsewhere, who has given it up long ago', () => {
    expect(verdict('receiving', 'sending', 4, { isPeer: false })).toBe('active')
    expect(verdict('receiving', 'active', 4, { isPeer: false })).toBe('garbage')
  })

  it('never lets both sides serve the bucket, nor both give it up, when they look at each other at rest', () => {
    for (const sender of ['sending', 'sent', 'active'] as const) {
      const here = sender === 'sending' ? verdict('sending', 'receiving', 5) : 'stays'
      const there = verdict('receiving', sender, 5)
      const serving = [sender === 'active', here === 'active', there === 'active'].filter(Boolean)
      expect(serving.length).toBeLessThanOrEqual(1)
      expect(sender === 'sent' ? there : 'active').toBe('active')
    }
  })
})
