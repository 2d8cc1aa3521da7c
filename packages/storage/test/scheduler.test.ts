import { readFileSync } from 'node:fs'
import { VirtualClock } from '@orbweaver/connection/testing'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { Scheduler } from '../src/vshard/scheduler.js'
import type { TurnKind } from '../src/vshard/scheduler.js'
import { TurnReservations } from '../src/vshard/turn-reservations.js'

interface Step {
  readonly op: string
  readonly arg: unknown
  readonly label?: string
  readonly finished: readonly { readonly op: string; readonly result: string }[]
  readonly state: Readonly<Record<string, number>>
}

interface Case {
  readonly name: string
  readonly ref_quota: number
  readonly move_quota: number
  readonly steps: readonly Step[]
}

const { cases } = JSON.parse(readFileSync(new URL('vectors/scheduler.json', import.meta.url), 'utf8')) as {
  cases: readonly Case[]
}

/** Traces that show a waiter of the original sleeping on: ours is granted as soon as the obstacle is gone. */
const LOST_WAKEUPS: ReadonlySet<string> = new Set([
  'ref-not-woken-when-move-gives-up',
  'move-not-woken-when-ref-gives-up',
])

/** The scheduler under the operations of a trace; a start with a short timeout gives up at the next sleep. */
class Replay {
  readonly scheduler: Scheduler
  finished: string[] = []
  readonly #giveUp = new Map<string, () => void>()

  constructor({ ref_quota: ref, move_quota: move }: Case) {
    this.scheduler = new Scheduler({ ref, move })
  }

  run({ op, arg, label }: Step): void {
    switch (op) {
      case 'ref_start':
      case 'move_start': {
        const cancel = this.scheduler.start(op === 'ref_start' ? 'ref' : 'move', () => {
          this.finished.push(label!)
          this.#giveUp.delete(label!)
        })
        if (!this.finished.includes(label!) && typeof arg === 'number' && arg < 1) this.#giveUp.set(label!, cancel)
        break
      }
      case 'ref_end':
      case 'move_end':
        this.scheduler.end(op === 'ref_end' ? 'ref' : 'move', Number(arg))
        break
      case 'sleep':
        for (const cancel of this.#giveUp.values()) cancel()
        this.#giveUp.clear()
        break
      case 'cfg': {
        const { sched_ref_quota: ref, sched_move_quota: move } = arg as Record<string, number | undefined>
        this.scheduler.configure({
          ref: ref ?? this.scheduler.state('ref').quota,
          move: move ?? this.scheduler.state('move').quota,
        })
        break
      }
      default:
        throw new Error(`The trace has an unknown operation ${op}`)
    }
  }

  get state(): Record<string, number> {
    const [ref, move] = [this.scheduler.state('ref'), this.scheduler.state('move')]
    return {
      ref_count: ref.running,
      ref_queue: ref.waiting,
      ref_strike: ref.strike,
      ref_quota: ref.quota,
      move_count: move.running,
      move_queue: move.waiting,
      move_strike: move.strike,
      move_quota: move.quota,
    }
  }
}

describe('the traces of the original', () => {
  it.each(cases.filter(({ name }) => !LOST_WAKEUPS.has(name)))('$name: the same turns in the same order', (trace) => {
    const replay = new Replay(trace)
    for (const step of trace.steps) {
      replay.finished = []
      replay.run(step)
      const granted = step.finished.filter(({ result }) => result === 'granted').map((finished) => finished.op)
      expect({ op: step.op, granted: replay.finished.toSorted(), state: replay.state }).toEqual({
        op: step.op,
        granted: granted.toSorted(),
        state: step.state,
      })
    }
  })

  it('where it loses a wakeup, the waiter goes as soon as its obstacle is gone', () => {
    const refWaits = new Scheduler({ ref: 1, move: 1 })
    const log: string[] = []
    refWaits.start('ref', () => log.push('r1'))
    const giveUp = refWaits.start('move', () => log.push('m1'))
    refWaits.start('ref', () => log.push('r2'))
    expect(log).toEqual(['r1'])
    giveUp()
    expect(log).toEqual(['r1', 'r2'])

    const moveWaits = new Scheduler({ ref: 1, move: 1 })
    log.length = 0
    moveWaits.start('move', () => log.push('m1'))
    const refGivesUp = moveWaits.start('ref', () => log.push('r1'))
    moveWaits.start('move', () => log.push('m2'))
    expect(log).toEqual(['m1'])
    refGivesUp()
    expect(log).toEqual(['m1', 'm2'])
  })
})

describe('the scheduler under random use', () => {
  const operation = fc.oneof(
    fc.record({ op: fc.constant('start' as const), kind: fc.constantFrom<TurnKind>('ref', 'move') }),
    fc.record({ op: fc.constant('end' as const), kind: fc.constantFrom<TurnKind>('ref', 'move') }),
    fc.record({ op: fc.constant('giveUp' as const), which: fc.nat() }),
  )

  it('never runs both kinds, keeps the order within a kind, leaves no waiter that may start, and starves nobody', () => {
    fc.assert(
      fc.property(
        fc.record({ ref: fc.integer({ min: 0, max: 4 }), move: fc.integer({ min: 0, max: 3 }) }),
        fc.array(operation, { maxLength: 120 }),
        (quotas, operations) => {
          const scheduler = new Scheduler(quotas)
          const waiting: { id: number; kind: TurnKind; giveUp: () => void }[] = []
          const running = { ref: 0, move: 0 }
          let lastId = 0
          for (const action of operations) {
            if (action.op === 'start') {
              const id = ++lastId
              const { kind } = action
              let isGranted = false
              const giveUp = scheduler.start(kind, () => {
                isGranted = true
                running[kind]++
                const mine = waiting.findIndex((waiter) => waiter.id === id)
                if (mine >= 0) {
                  expect(waiting.findIndex((waiter) => waiter.kind === kind)).toBe(mine) // first come, first served
                  waiting.splice(mine, 1)
                }
              })
              if (!isGranted) waiting.push({ id, kind, giveUp })
            } else if (action.op === 'end') {
              if (running[action.kind] > 0) {
                running[action.kind]--
                scheduler.end(action.kind)
              }
            } else if (waiting.length > 0) {
              const [given] = waiting.splice(action.which % waiting.length, 1)
              given!.giveUp()
            }
            expect(Math.min(running.ref, running.move)).toBe(0)
            for (const kind of ['ref', 'move'] as const) {
              const state = scheduler.state(kind)
              expect(state.running).toBe(running[kind])
              expect(state.waiting).toBe(waiting.filter((waiter) => waiter.kind === kind).length)
            }
            // Law of no lost waiter: when nothing runs, nobody waits.
            if (running.ref + running.move === 0) expect(waiting).toEqual([])
          }
          // Whatever is left goes when the turns end one by one.
          for (let turns = 0; waiting.length > 0; turns++) {
            expect(turns).toBeLessThan(1_000)
            const kind = running.ref > 0 ? 'ref' : 'move'
            running[kind]--
            scheduler.end(kind)
          }
        },
      ),
    )
  })

  it('refuses to end more turns than run', () => {
    expect(() => new Scheduler({ ref: 1, move: 1 }).end('ref')).toThrow(/0 were running/)
  })
})

describe('a turn that joins', () => {
  it('starts beside one of its kind whatever the quota, so that two moves that need each other both go on', () => {
    const scheduler = new Scheduler({ ref: 300, move: 1 })
    const order: string[] = []
    scheduler.start('move', () => order.push('first move'))
    scheduler.start('ref', () => order.push('ref'))
    scheduler.start('move', () => order.push('second move'))
    scheduler.start('move', () => order.push('joining move'), { joins: true })
    expect(order).toEqual(['first move', 'joining move'])
    scheduler.end('move', 2)
    expect(order).toEqual(['first move', 'joining move', 'ref'])
    scheduler.end('ref')
    expect(order.at(-1)).toBe('second move')
  })

  it('never starts beside the other kind', () => {
    const scheduler = new Scheduler({ ref: 300, move: 1 })
    let isGranted = false
    scheduler.start('ref', () => undefined)
    scheduler.start('move', () => (isGranted = true), { joins: true })
    expect(isGranted).toBe(false)
    scheduler.end('ref')
    expect(isGranted).toBe(true)
  })
})

describe('a reservation of a turn', () => {
  it('is kept for the transfer it was made for, and ends by itself when that does not come', async () => {
    const clock = new VirtualClock()
    const scheduler = new Scheduler({ ref: 300, move: 1 })
    const reservations = new TurnReservations(clock, scheduler)
    await clock.run(reservations.reserve(3, 'a', 100))
    expect(reservations.claim(3, 'b')).toBe(false)
    expect(reservations.claim(3, 'a')).toBe(true)
    expect(reservations.claim(3, 'a')).toBe(false)
    expect(scheduler.state('move').running).toBe(1) // the claimer's to end
    scheduler.end('move')
    await clock.run(reservations.reserve(4, 'a', 100))
    await clock.run(reservations.reserve(4, 'a', 100)) // asked again: one turn all the same
    expect(scheduler.state('move').running).toBe(1)
    await clock.advance(1_001)
    expect([scheduler.state('move').running, reservations.size]).toEqual([0, 0])
    scheduler.start('ref', () => undefined)
    await expect(clock.run(reservations.reserve(5, 'a', 100))).rejects.toMatchObject({ boxCode: 78 })
    expect(scheduler.state('move')).toMatchObject({ running: 0, waiting: 0 })
  })
})
