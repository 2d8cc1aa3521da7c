import { describe, expect, it } from 'vitest'
import { transportPair, type TransportSink } from '../src/index.js'
import { VirtualClock } from '../src/testing/index.js'

class Log implements TransportSink {
  readonly events: string[] = []
  chunks: Buffer[] = []
  onData: (() => void) | undefined

  data(chunk: Buffer): void {
    this.chunks.push(chunk)
    this.events.push(`data ${chunk.toString()}`)
    this.onData?.()
  }

  drain(): void {
    this.events.push('drain')
  }

  end(): void {
    this.events.push('end')
  }

  closed(cause: Error | undefined): void {
    this.events.push(cause === undefined ? 'closed' : `closed ${'code' in cause ? String(cause.code) : cause.message}`)
  }
}

function pair(): {
  clock: VirtualClock
  left: ReturnType<typeof transportPair>[0]
  right: ReturnType<typeof transportPair>[1]
  atLeft: Log
  atRight: Log
} {
  const clock = new VirtualClock()
  const [left, right] = transportPair(clock)
  const atLeft = new Log()
  const atRight = new Log()
  left.attach(atLeft)
  right.attach(atRight)
  return { clock, left, right, atLeft, atRight }
}

describe('transportPair', () => {
  it('delivers in order, later, and the same memory', async () => {
    const { clock, left, atRight } = pair()
    const chunk = Buffer.from('one')
    expect(left.write([chunk, Buffer.from('two')])).toBe(true)
    expect(atRight.events).toEqual([])
    expect(left.pendingBytes).toBe(6)
    await clock.settle()
    expect(atRight.events).toEqual(['data one', 'data two'])
    expect(atRight.chunks[0]).toBe(chunk)
    expect(left.pendingBytes).toBe(0)
  })

  it('keeps what comes before a sink is attached', async () => {
    const clock = new VirtualClock()
    const [left, right] = transportPair(clock)
    left.write([Buffer.from('early')])
    left.end()
    await clock.settle()
    const late = new Log()
    right.attach(late)
    expect(late.events).toEqual([])
    await clock.settle()
    expect(late.events).toEqual(['data early', 'end'])
  })

  it('tells a writer to wait while the reader is paused, and to go on when everything is gone', async () => {
    const { clock, left, right, atLeft, atRight } = pair()
    right.pauseReading()
    expect(left.write([Buffer.alloc(200_000)])).toBe(true)
    expect(left.write([Buffer.alloc(200_000)])).toBe(false)
    await clock.settle()
    expect([atLeft.events, atRight.chunks.length, left.pendingBytes]).toEqual([[], 0, 400_000])
    right.resumeReading()
    await clock.settle()
    expect([atLeft.events, atRight.chunks.length, left.pendingBytes]).toEqual([['drain'], 2, 0])
  })

  it('half-closes behind the data and lets the other direction go on', async () => {
    const { clock, left, right, atLeft, atRight } = pair()
    left.write([Buffer.from('last')])
    left.end()
    left.write([Buffer.from('ignored')])
    await clock.settle()
    expect(atRight.events).toEqual(['data last', 'end'])
    right.write([Buffer.from('answer')])
    await clock.settle()
    expect(atLeft.events).toEqual(['data answer'])
    right.end()
    await clock.settle()
    expect(atLeft.events).toEqual(['data answer', 'end', 'closed'])
    expect(atRight.events).toEqual(['data last', 'end', 'closed'])
  })

  it('reports a destroyed end as a reset to the other, and its own cause to itself', async () => {
    const { clock, left, right, atLeft, atRight } = pair()
    left.write([Buffer.from('lost')])
    left.destroy(new Error('mine'))
    left.destroy(new Error('twice'))
    right.write([Buffer.from('void')])
    await clock.settle()
    expect(atLeft.events).toEqual(['closed mine'])
    expect(atRight.events).toEqual(['closed ECONNRESET'])
  })

  it('is never re-entrant: an answer written inside data arrives in a later task', async () => {
    const { clock, left, right, atLeft, atRight } = pair()
    let isInside = false
    atRight.onData = () => {
      isInside = true
      right.write([Buffer.from('pong')])
      isInside = false
    }
    atLeft.onData = () => expect(isInside).toBe(false)
    left.write([Buffer.from('ping')])
    await clock.settle()
    expect(atLeft.events).toEqual(['data pong'])
  })

  it('stops delivering at once when a sink pauses or destroys in the middle', async () => {
    const { clock, left, right, atRight } = pair()
    atRight.onData = () => right.pauseReading()
    left.write([Buffer.from('a'), Buffer.from('b')])
    await clock.settle()
    expect(atRight.events).toEqual(['data a'])
    atRight.onData = () => right.destroy()
    right.resumeReading()
    await clock.settle()
    expect(atRight.events).toEqual(['data a', 'data b', 'closed'])
  })

  it('takes one sink only', () => {
    const { left, atLeft } = pair()
    expect(() => left.attach(atLeft)).toThrow(/already/)
  })
})
