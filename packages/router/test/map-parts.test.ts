/* What maps write and read by hand, against the general encoder and decoder; and the timer they share. */
import { VirtualClock } from '@orbweaver/connection/testing'
import { callRequest, encodeValue, FrameWriter, InvalidArgumentError } from '@orbweaver/iproto'
import type { BodyWriter, Reply } from '@orbweaver/iproto'
import { SERVICES, storageMapCall, storageRefCall } from '@orbweaver/vshard'
import { describe, expect, it } from 'vitest'
import { firstValueAt, onlyUint } from '../src/map/first-value.js'
import { MapArguments } from '../src/map/map-arguments.js'
import { WHOLE_STORAGE } from '../src/map/ref-request.js'
import { serviceHead } from '../src/map/service-head.js'
import { TimeSweep } from '../src/map/time-sweep.js'

const written = (write: (out: BodyWriter) => void): string => {
  const writer = new FrameWriter()
  writer.beginFrame()
  write(writer)
  writer.end()
  return Buffer.concat(writer.take()).subarray(5).toString('hex')
}

const replyOf = (data: Uint8Array): Reply => {
  const frame = Buffer.concat([Buffer.of(1, 2, 3), data, Buffer.of(0xff)])
  return { frame, dataStart: 3, dataEnd: 3 + data.length, schemaVersion: 0 }
}

describe('requests written by hand', () => {
  const ID = 99_999_999_999_999

  it.each([0.5, 10_000, 12_345, Infinity])('ask for a reference of %s ms as vshard does', (timeoutMs) => {
    const { name, args } = storageRefCall(ID, timeoutMs)
    expect(written((out) => WHOLE_STORAGE.writeBody(out, ID, timeoutMs))).toBe(
      written((out) => callRequest(name, args).writeBody(out)),
    )
  })

  it.each([
    [[]],
    [[1, 'two', { three: [4n] }]],
    [Array.from({ length: 20 }, (_, i) => i)],
    [Array.from({ length: 70_000 }, () => 0)],
  ])('give the function its arguments (case %#)', (args: readonly unknown[]) => {
    const { name, args: all } = storageMapCall(ID, 'f', args)
    const map = new MapArguments(args, undefined)
    const body = written((out) => {
      out.raw(serviceHead(SERVICES.storageMap, 3))
      out.uint(ID)
      out.text('f')
      map.write(out, [])
    })
    expect(body).toBe(written((out) => callRequest(name, all).writeBody(out)))
  })

  it.each([0, 1, 14, 15, 16, 65_535])('put the arguments of buckets behind %i others', (count) => {
    const args = Array.from({ length: count }, (_, i) => i)
    const map = new MapArguments(
      args,
      new Map<number, unknown>([
        [1, ['one']],
        [2, null],
        [3, { x: 3 }],
      ]),
    )
    const expected = encodeValue([
      ...args,
      new Map<number, unknown>([
        [3, { x: 3 }],
        [1, ['one']],
      ]),
    ]).toString('hex')
    expect(written((out) => map.write(out, [3, 1]))).toBe(expected)
  })

  it('have the arguments as they were when the map began', () => {
    const args = ['before', { list: [1] }]
    const map = new MapArguments(args, undefined)
    const before = encodeValue(args).toString('hex')
    for (let i = 0; i < 10_000; i++) expect(new MapArguments([i], undefined)).not.toBe(map)
    args[0] = 'after'
    ;(args[1] as { list: number[] }).list.push(2)
    expect(written((out) => map.write(out, []))).toBe(before)
  })

  it('refuse what cannot be encoded by its place, and harm nobody after it', () => {
    expect(() => new MapArguments([1, { f: () => 1 }], undefined)).toThrow(InvalidArgumentError)
    expect(() => new MapArguments([1, { f: () => 1 }], undefined)).toThrow(/args\[1\]\.f is a function/)
    expect(() => new MapArguments([], new Map([[7, Symbol('x')]]))).toThrow(/bucketArgs of bucket 7 is a symbol/)
    expect(written((out) => new MapArguments(['fine'], undefined).write(out, []))).toBe(
      encodeValue(['fine']).toString('hex'),
    )
  })
})

describe('answers read by hand', () => {
  const long = (bytes: readonly number[], count: number): Buffer => Buffer.from([0xdd, 0, 0, 0, count, ...bytes])

  it.each([0, 1, 127, 128, 255, 256, 65_535, 65_536, 4_294_967_295])(
    'are the number %i, in either form of a list',
    (number) => {
      expect(onlyUint(replyOf(encodeValue([number])))).toBe(number)
      expect(onlyUint(replyOf(long([...encodeValue(number)], 1)))).toBe(number)
    },
  )

  it.each([
    ['nothing', Buffer.of()],
    ['an empty list', encodeValue([])],
    ['no list', encodeValue(5)],
    ['nil and an error', encodeValue([null, { code: 1 }])],
    ['two numbers', encodeValue([1, 2])],
    ['a negative number', encodeValue([-1])],
    ['a text', encodeValue(['ab'])],
    ['a number of 64 bits', encodeValue([4_294_967_296])],
    ['a list cut short', Buffer.of(0xdd, 0, 0)],
  ])('are no number where there is %s', (_what, data) => {
    expect(onlyUint(replyOf(data))).toBeUndefined()
  })

  it('begin behind the head of the list', () => {
    expect(firstValueAt(replyOf(encodeValue([true, 1])))).toBe(4)
    expect(firstValueAt(replyOf(long([0xc3], 1)))).toBe(8)
    expect(firstValueAt(replyOf(Buffer.of(0xdc, 0, 1, 0xc3)))).toBe(6)
    expect(firstValueAt(replyOf(Buffer.of()))).toBe(3)
    expect(firstValueAt(replyOf(Buffer.of(0xdd, 0)))).toBe(5)
  })
})

describe('the shared timer', () => {
  const scene = (): {
    clock: VirtualClock
    sweep: TimeSweep
    told: string[]
    add: (name: string, dueMs: number) => { dueMs: number; due(): void }
  } => {
    const clock = new VirtualClock()
    const sweep = new TimeSweep(clock)
    const told: string[] = []
    const add = (name: string, dueMs: number): { dueMs: number; due(): void } => {
      const waiting = { dueMs: clock.now() + dueMs, due: () => void told.push(`${name} ${clock.now()}`) }
      sweep.add(waiting)
      return waiting
    }
    return { clock, sweep, told, add }
  }

  it('tells each when its time has come, whatever the order in which they came', async () => {
    const { add, clock, told } = scene()
    const began = clock.now()
    add('late', 300)
    add('early', 100)
    add('middle', 200)
    await clock.advance(1_000)
    expect(told).toEqual([`early ${began + 100}`, `middle ${began + 200}`, `late ${began + 300}`])
  })

  it('forgets who is deleted, and goes on with those who come later', async () => {
    const { add, clock, sweep, told } = scene()
    const began = clock.now()
    sweep.delete(add('gone', 100))
    await clock.advance(500)
    add('next', 50)
    await clock.advance(500)
    expect(told).toEqual([`next ${began + 550}`])
  })

  it('looks at most every ten milliseconds', async () => {
    const { add, clock, told } = scene()
    const began = clock.now()
    for (const dueMs of [100, 101, 102, 109]) add(`${dueMs}`, dueMs)
    await clock.advance(1_000)
    expect(told).toEqual([`100 ${began + 100}`, `101 ${began + 110}`, `102 ${began + 110}`, `109 ${began + 110}`])
  })

  it('tells all at once when it is closed, each once', async () => {
    const { add, clock, sweep, told } = scene()
    const again = add('again', 100)
    again.due = () => {
      told.push('again')
      sweep.add({ dueMs: clock.now() + 10, due: () => void told.push('later') })
    }
    add('other', 200)
    sweep.close()
    expect(told).toEqual(['again', `other ${clock.now()}`])
    await clock.advance(1_000)
    expect(told).toEqual(['again', expect.stringMatching('other'), 'later'])
  })
})
