import { getEventListeners } from 'node:events'
import { pingRequest } from '@orbweaver/iproto'
import { describe, expect, it } from 'vitest'
import { AbortListeners } from '../src/aborts.js'
import { Pending } from '../src/pending.js'
import { CountingSink } from './rig.js'

function pending(): Pending {
  return new Pending({ abandon: () => undefined }, pingRequest(), { deadline: 0 }, new CountingSink())
}

describe('AbortListeners', () => {
  it('registers one listener for a signal however many requests share it', () => {
    const listeners = new AbortListeners(
      () => undefined,
      () => undefined,
    )
    const { signal } = new AbortController()
    for (let i = 0; i < 1_000; i += 1) listeners.add(signal, pending())
    expect(getEventListeners(signal, 'abort')).toHaveLength(1)
  })

  it('ends the members of the signal that fired and no others', () => {
    const ended: Pending[] = []
    const listeners = new AbortListeners(
      (request) => ended.push(request),
      () => undefined,
    )
    const one = new AbortController()
    const other = new AbortController()
    const [a, b, c] = [pending(), pending(), pending()] as [Pending, Pending, Pending]
    listeners.add(one.signal, a)
    listeners.add(other.signal, b)
    listeners.add(one.signal, c)
    one.abort('enough')
    expect(ended).toEqual([a, c])
    expect(getEventListeners(one.signal, 'abort')).toHaveLength(0)
  })

  it('takes the listener off when the turn in which the last request ended is over', () => {
    const later: (() => void)[] = []
    const listeners = new AbortListeners(
      () => undefined,
      (task) => later.push(task),
    )
    const { signal } = new AbortController()
    const [a, b] = [pending(), pending()] as [Pending, Pending]
    listeners.add(signal, a)
    listeners.remove(signal, a)
    listeners.add(signal, b)
    for (const task of later.splice(0)) task()
    expect(getEventListeners(signal, 'abort')).toHaveLength(1)
    listeners.remove(signal, b)
    for (const task of later.splice(0)) task()
    expect(getEventListeners(signal, 'abort')).toHaveLength(0)
  })
})
