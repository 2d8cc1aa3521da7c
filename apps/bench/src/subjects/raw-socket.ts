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
import type { WireCase, WireOperation } from '../cases.js'
import { keyAt, SPACE_ID, wideRow } from '../fixture.js'
import { type Round, SAMPLE_EVERY, Stopwatch } from '../round.js'
import { FrameCounter } from './frame-counter.js'
import type { Subject } from './subject.js'

/**
 * The least a client in Node.js can do: frames encoded before the round, replies counted by their length prefixes, all
 * that arrived in one read answered by one write. No promise, no decoding, no timeouts.
 */
export async function rawSocketSubject(benchCase: WireCase, port: number): Promise<Subject> {
  const socket = createConnection({ host: '127.0.0.1', port, noDelay: true })
  const greeting = once(socket, 'data') as Promise<[Buffer]>
  await once(socket, 'connect')
  const [first] = await greeting
  if (first.length !== GREETING_BYTES) throw new Error(`The greeting came in pieces: ${first.length} bytes`)
  const client = new RawClient(socket, readyFrames(benchCase.operation))
  return { round: (seconds, patienceMs) => client.round(benchCase.inFlight, seconds, patienceMs) }
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

class RawClient {
  readonly #socket: Socket
  readonly #frames: ReadyFrames
  readonly #counter = new FrameCounter()
  #onFrames: (count: number) => void = () => {}
  /** Index of the next frame to be sent. */
  #next = 0
  #failure: Error | undefined

  constructor(socket: Socket, frames: ReadyFrames) {
    this.#socket = socket
    this.#frames = frames
    socket.on('data', (chunk: Buffer) => this.#onFrames(this.#counter.count(chunk)))
    socket.on('error', (error) => {
      this.#failure = error
    })
  }

  round(inFlight: number, seconds: number, patienceMs: number): Promise<Round> {
    return new Promise((resolve, reject) => {
      const samplesMs: number[] = []
      /** When sampled requests left, oldest first: the server answers in order. */
      const askedMs: number[] = []
      let sent = 0
      let answered = 0
      let isOver = false
      const stopwatch = new Stopwatch()
      const finish = (): void => {
        clearTimeout(end)
        clearTimeout(patience)
        this.#onFrames = () => {}
        if (this.#failure === undefined) resolve(stopwatch.stop(answered, samplesMs, sent - answered))
        else reject(this.#failure)
      }
      const send = (count: number): void => {
        for (let passed = samplesIn(sent, count); passed > 0; passed -= 1) askedMs.push(performance.now())
        sent += count
        this.#send(count)
      }
      this.#onFrames = (count) => {
        for (let passed = samplesIn(answered, count); passed > 0; passed -= 1)
          samplesMs.push(performance.now() - askedMs.shift()!)
        answered += count
        if (!isOver) send(count)
        else if (answered === sent) finish()
      }
      const end = setTimeout(() => {
        isOver = true
        if (answered === sent) finish()
      }, seconds * 1_000)
      const patience = setTimeout(finish, seconds * 1_000 + patienceMs)
      send(inFlight)
    })
  }

  #send(count: number): void {
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

/** Sampled requests among `count`, the first of which is request number `from`. */
function samplesIn(from: number, count: number): number {
  return Math.ceil((from + count) / SAMPLE_EVERY) - Math.ceil(from / SAMPLE_EVERY)
}

const READY_COUNT = 8_192
