import { pingRequest } from '@orbweaver/iproto'
import { describe, expect, it } from 'vitest'
import { Pending } from '../src/pending.js'
import { Pipeline } from '../src/pipeline.js'
import { CountingSink, seeded } from './rig.js'

const LIMITS = { maxInFlight: 10, maxInFlightBytes: 1_000, maxQueued: 5, maxQueuedBytes: 500 }
const owner = { abandon: () => undefined }

function pending(): Pending {
  return new Pending(owner, pingRequest(), { deadline: 0 }, new CountingSink())
}

function sent(pipeline: Pipeline, bytes = 10): Pending {
  const request = pending()
  pipeline.occupy(request, pipeline.nextSync(), bytes)
  return request
}

describe('Pipeline', () => {
  it('numbers requests from 1 and finds them by number', () => {
    const pipeline = new Pipeline(LIMITS)
    const first = sent(pipeline)
    const second = sent(pipeline)
    expect([first.sync, second.sync]).toEqual([1, 2])
    expect(pipeline.find(2)).toBe(second)
    expect(pipeline.find(3)).toBeUndefined()
    expect(pipeline.find(2 ** 32 + 2)).toBeUndefined()
  })

  it('passes over the number whose slot a long-running request holds, instead of growing for it', () => {
    const pipeline = new Pipeline(LIMITS)
    const slow = sent(pipeline)
    for (let i = 0; i < 20_000; i += 1) {
      const quick = sent(pipeline)
      expect(pipeline.find(quick.sync)).toBe(quick)
      pipeline.release(quick)
    }
    expect(pipeline.find(slow.sync)).toBe(slow)
    expect(pipeline.inFlight).toBe(1)
  })

  it('grows when many are in flight, and finds all of them', () => {
    const pipeline = new Pipeline({ ...LIMITS, maxInFlight: 10_000, maxInFlightBytes: 1e9 })
    const all = Array.from({ length: 5_000 }, () => sent(pipeline))
    expect(all.every((request) => pipeline.find(request.sync) === request)).toBe(true)
    for (const request of all) pipeline.release(request)
    expect([pipeline.inFlight, pipeline.inFlightBytes]).toEqual([0, 0])
  })

  it('has room up to its limits of requests and of bytes', () => {
    const pipeline = new Pipeline(LIMITS)
    const some = Array.from({ length: 10 }, () => sent(pipeline))
    expect(pipeline.hasRoom).toBe(false)
    pipeline.release(some[3] as Pending)
    expect(pipeline.hasRoom).toBe(true)
    const large = sent(new Pipeline(LIMITS), 5_000)
    expect(large.sync).toBe(1)
  })

  it('lets one request larger than the byte limit go alone', () => {
    const pipeline = new Pipeline(LIMITS)
    expect(pipeline.hasRoom).toBe(true)
    sent(pipeline, 5_000)
    expect(pipeline.hasRoom).toBe(false)
  })

  it('keeps number and room of a request that ended early until its answer comes', () => {
    const pipeline = new Pipeline({ ...LIMITS, maxInFlight: 1 })
    const request = sent(pipeline)
    pipeline.retire(request)
    expect([pipeline.inFlight, pipeline.late, pipeline.hasRoom, pipeline.isLate(1), pipeline.find(1)]).toEqual([
      0,
      1,
      false,
      true,
      undefined,
    ])
    pipeline.releaseLate(1)
    expect([pipeline.late, pipeline.hasRoom, pipeline.inFlightBytes]).toEqual([0, true, 0])
  })

  it('gives waiting requests back in order, whoever left meanwhile', () => {
    const pipeline = new Pipeline(LIMITS)
    const [a, b, c, d] = [pending(), pending(), pending(), pending()] as [Pending, Pending, Pending, Pending]
    for (const request of [a, b, c]) expect(pipeline.enqueue(request, 10)).toBe(true)
    pipeline.unqueue(b)
    expect(pipeline.dequeue()).toBe(a)
    expect(pipeline.enqueue(d, 10)).toBe(true)
    expect(pipeline.dequeue()).toBe(c)
    expect(pipeline.dequeue()).toBe(d)
    expect(pipeline.dequeue()).toBeUndefined()
    expect(pipeline.enqueue(a, 10)).toBe(true)
    expect(pipeline.dequeue()).toBe(a)
    expect([pipeline.queued, pipeline.queuedBytes]).toEqual([0, 0])
  })

  it('refuses more waiting requests or bytes than allowed, but takes a single large one', () => {
    const pipeline = new Pipeline(LIMITS)
    expect(pipeline.enqueue(pending(), 9_999)).toBe(true)
    expect(pipeline.enqueue(pending(), 1)).toBe(false)
    const other = new Pipeline(LIMITS)
    for (let i = 0; i < 5; i += 1)
      expect(i % 2 === 0 ? other.enqueue(pending(), 1) : other.park(pending(), 1)).toBe(true)
    expect(other.enqueue(pending(), 1)).toBe(false)
    expect(other.park(pending(), 1)).toBe(false)
  })

  it('hands over everything in flight in the order it was sent when the connection ends', () => {
    const pipeline = new Pipeline({ ...LIMITS, maxInFlight: 1_000, maxInFlightBytes: 1e9 })
    const all = Array.from({ length: 500 }, () => sent(pipeline))
    pipeline.retire(all.shift() as Pending)
    expect(pipeline.takeInFlight()).toEqual(all)
    expect([pipeline.inFlight, pipeline.late, pipeline.inFlightBytes]).toEqual([0, 0, 0])
    expect(pipeline.nextSync()).toBe(501)
  })

  it('keeps its books like a ten-line model, whatever happens in whatever order', () => {
    const random = seeded(7)
    const pipeline = new Pipeline({ maxInFlight: 40, maxInFlightBytes: 4_000, maxQueued: 30, maxQueuedBytes: 3_000 })
    const inFlight: Pending[] = []
    const late = new Map<number, number>()
    let waiting: Pending[] = []
    const pick = <T>(list: T[]): T | undefined => list.splice(Math.floor(random() * list.length), 1)[0]
    for (let step = 0; step < 20_000; step += 1) {
      const act = Math.floor(random() * 8)
      const bytes = 1 + Math.floor(random() * 200)
      if (act <= 1 && pipeline.hasRoom) inFlight.push(sent(pipeline, bytes))
      else if (act === 2) {
        const request = pick(inFlight)
        if (request !== undefined) pipeline.release(request)
      } else if (act === 3) {
        const request = pick(inFlight)
        if (request !== undefined) {
          pipeline.retire(request)
          late.set(request.sync, request.bytes)
        }
      } else if (act === 4) {
        const [sync] = pick([...late.keys()].map((key) => [key])) ?? []
        if (sync !== undefined) {
          pipeline.releaseLate(sync)
          late.delete(sync)
        }
      } else if (act === 5) {
        const request = pending()
        if (pipeline.enqueue(request, bytes)) waiting.push(request)
      } else if (act === 6) {
        expect(pipeline.dequeue()).toBe(waiting.shift())
      } else if (random() < 0.01) {
        expect(new Set(pipeline.takeInFlight())).toEqual(new Set(inFlight.splice(0)))
        late.clear()
      } else {
        const request = pick(waiting)
        if (request !== undefined) pipeline.unqueue(request)
        waiting = waiting.filter((other) => other !== request)
      }
      const heldBytes =
        inFlight.reduce((sum, request) => sum + request.bytes, 0) + [...late.values()].reduce((sum, n) => sum + n, 0)
      expect([pipeline.inFlight, pipeline.late, pipeline.inFlightBytes, pipeline.queued]).toEqual([
        inFlight.length,
        late.size,
        heldBytes,
        waiting.length,
      ])
    }
  })
})
