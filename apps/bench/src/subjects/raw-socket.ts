import { once } from 'node:events'
import { createConnection, type Socket } from 'node:net'
import {
  callRequest,
  FrameWriter,
  GREETING_BYTES,
  replaceRequest,
  type Request,
  selectRequest,
} from '@orbweaver/iproto'
import type { WireCase, WireOperation } from '../cases/wire.js'
import { keyAt, SPACE_ID, wideRow } from '../fixture.js'
import { type CpuMeter, type Round, SAMPLE_EVERY, Stopwatch } from '../round.js'
import { FrameCounter } from './frame-counter.js'
import type { Subject } from './subject.js'

/**
 * The least a client in Node.js can do: frames encoded before the round, replies counted by their length prefixes, all
 * that arrived in one read answered by one write. No promise, no decoding, no timeouts.
 */
export async function rawSocketSubject({ operation, inFlight }: WireCase, port: number): Promise<Subject> {
  return rawSubject({ operation, port, sockets: 1, depth: inFlight })
}

export interface RawOptions {
  readonly operation: WireOperation
  readonly port: number
  readonly sockets: number
  /** In flight on each socket. */
  readonly depth: number
  /** Whose CPU time is counted. Default: this process's. */
  readonly cpuNow?: CpuMeter
}

export async function rawSubject({ operation, port, sockets, depth, cpuNow }: RawOptions): Promise<Subject> {
  const frames = readyFrames(operation)
  const lanes = await Promise.all(Array.from({ length: sockets }, (_, i) => RawLane.open(port, frames, i)))
  return {
    round: (seconds, patienceMs) => new RawRound(lanes, depth, cpuNow).run(seconds, patienceMs),
  }
}

interface ReadyFrames {
  /** Frame behind frame. */
  readonly bytes: Buffer
  /** Where each begins; one more at the end. */
  readonly starts: readonly number[]
}

function readyFrames(operation: WireOperation): ReadyFrames {
  const writer = new FrameWriter()
  const starts = [0]
  for (let i = 0; i < READY_COUNT; i += 1) starts.push(starts[i]! + writer.request(REQUESTS[operation](i), i))
  return { bytes: Buffer.concat(writer.take()), starts }
}

const REQUESTS: Readonly<Record<WireOperation, (index: number) => Request>> = {
  select: (index) => selectRequest({ space: SPACE_ID, key: [keyAt(index)] }),
  replace: (index) => replaceRequest(SPACE_ID, wideRow(keyAt(index))),
  call: (index) => callRequest('bench_add', [index, 1]),
  rows100: (index) => selectRequest({ space: SPACE_ID, key: [keyAt(index)], iterator: 'GE', limit: 100 }),
  rows300: (index) => selectRequest({ space: SPACE_ID, key: [keyAt(index)], iterator: 'GE', limit: 300 }),
}

/** One socket. */
class RawLane {
  readonly #socket: Socket
  readonly #frames: ReadyFrames
  readonly #counter = new FrameCounter()
  onFrames: (count: number) => void = () => {}
  failure: Error | undefined
  /** Index of the next frame to be sent. */
  #next: number

  private constructor(socket: Socket, frames: ReadyFrames, first: number) {
    this.#socket = socket
    this.#frames = frames
    this.#next = first
    socket.on('data', (chunk: Buffer) => this.onFrames(this.#counter.count(chunk)))
    socket.on('error', (error) => {
      this.failure = error
    })
  }

  static async open(port: number, frames: ReadyFrames, index: number): Promise<RawLane> {
    const socket = createConnection({ host: '127.0.0.1', port, noDelay: true })
    const greeting = once(socket, 'data') as Promise<[Buffer]>
    await once(socket, 'connect')
    const [first] = await greeting
    if (first.length !== GREETING_BYTES) throw new Error(`The greeting came in pieces: ${first.length} bytes`)
    return new RawLane(socket, frames, (index * FIRST_FRAME_STEP) % READY_COUNT)
  }

  send(count: number): void {
    const { bytes, starts } = this.#frames
    let left = count
    while (left > 0) {
      const now = Math.min(left, READY_COUNT - this.#next)
      this.#socket.write(bytes.subarray(starts[this.#next], starts[this.#next + now]))
      this.#next = (this.#next + now) % READY_COUNT
      left -= now
    }
  }
}

/** One round over all sockets. */
class RawRound {
  readonly #lanes: readonly RawLane[]
  readonly #depth: number
  readonly #cpuNow: CpuMeter | undefined
  readonly #samplesMs: number[] = []
  #sent = 0
  #answered = 0
  #isOver = false
  #finish: () => void = () => {}

  constructor(lanes: readonly RawLane[], depth: number, cpuNow: CpuMeter | undefined) {
    this.#lanes = lanes
    this.#depth = depth
    this.#cpuNow = cpuNow
  }

  run(seconds: number, patienceMs: number): Promise<Round> {
    return new Promise((resolve, reject) => {
      const stopwatch = new Stopwatch(this.#cpuNow)
      const end = setTimeout(() => {
        this.#isOver = true
        if (this.#answered === this.#sent) this.#finish()
      }, seconds * 1_000)
      const patience = setTimeout(() => this.#finish(), seconds * 1_000 + patienceMs)
      this.#finish = () => {
        clearTimeout(end)
        clearTimeout(patience)
        for (const lane of this.#lanes) lane.onFrames = () => {}
        const failure = this.#lanes.find((lane) => lane.failure !== undefined)?.failure
        if (failure !== undefined) reject(failure)
        else resolve(stopwatch.stop(this.#answered, this.#samplesMs, this.#sent - this.#answered))
      }
      for (const lane of this.#lanes) this.#begin(lane)
    })
  }

  #begin(lane: RawLane): void {
    /** When sampled requests left, oldest first: a socket's replies come in the order of its requests. */
    const askedMs: number[] = []
    let sent = 0
    let answered = 0
    const send = (count: number): void => {
      for (let passed = samplesIn(sent, count); passed > 0; passed -= 1) askedMs.push(performance.now())
      sent += count
      this.#sent += count
      lane.send(count)
    }
    lane.onFrames = (count) => {
      for (let passed = samplesIn(answered, count); passed > 0; passed -= 1)
        this.#samplesMs.push(performance.now() - askedMs.shift()!)
      answered += count
      this.#answered += count
      if (!this.#isOver) send(count)
      else if (this.#answered === this.#sent) this.#finish()
    }
    send(this.#depth)
  }
}

/** Sampled requests among `count`, the first of which is request number `from`. */
function samplesIn(from: number, count: number): number {
  return Math.ceil((from + count) / SAMPLE_EVERY) - Math.ceil(from / SAMPLE_EVERY)
}

const READY_COUNT = 8_192
/** Sockets begin at different frames. */
const FIRST_FRAME_STEP = 509
