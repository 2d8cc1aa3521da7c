/* Frames that come from elsewhere: in order with all others, and in few writes. */
import type { Transport, TransportSink } from '@orbweaver/connection'
import { FrameWriter, RequestType } from '@orbweaver/iproto'
import { expect, it } from 'vitest'
import type { ClientSession } from '../src/index.js'
import { KeepingHandler, startServer } from './harness.js'

/** A peer that notes when it is written to. */
class NotingTransport implements Transport {
  readonly pendingBytes = 0
  readonly peer = 'noting'
  readonly encrypted = false
  readonly written: Buffer[] = []
  readonly #log: string[]
  sink: TransportSink | undefined

  constructor(log: string[]) {
    this.#log = log
  }

  attach(sink: TransportSink): void {
    this.sink = sink
  }

  write(chunks: readonly Uint8Array[]): boolean {
    this.#log.push('write')
    this.written.push(Buffer.concat(chunks))
    return true
  }

  pauseReading(): void {}
  resumeReading(): void {}
  end(): void {}
  destroy(): void {
    this.sink?.closed(undefined)
  }
}

function reply(sync: number, bytes = 0): Buffer {
  const writer = new FrameWriter()
  writer.beginReply(RequestType.ok, 0, sync, 1)
  writer.bytes(Buffer.alloc(bytes, sync))
  writer.end()
  return Buffer.concat(writer.take())
}

/** What happens in which turn of the loop when a handler does this for a request. */
async function turnsOf(act: (session: ClientSession) => void): Promise<{ log: string[]; written: Buffer }> {
  const handler = new KeepingHandler()
  const { clock, server } = startServer(handler)
  const log: string[] = []
  const transport = new NotingTransport(log)
  server.accept(transport)
  await clock.settle()
  transport.written.length = log.length = 0
  handler.onFrame = (session) => {
    act(session)
    clock.soon(() => {
      log.push('first turn')
      clock.soon(() => log.push('second turn'))
    })
  }
  const ping = new FrameWriter()
  ping.beginRequest(RequestType.ping, 0, 1)
  ping.end()
  transport.sink?.data(Buffer.concat(ping.take()))
  await clock.settle()
  return { log, written: Buffer.concat(transport.written) }
}

it('a frame is written behind the input of its turn, unless more are on their way', async () => {
  const frame = reply(1)
  const alone = await turnsOf((session) => void session.forward(frame, 0, frame.length, false))
  expect(alone.log).toEqual(['write', 'first turn', 'second turn'])
  const awaited = await turnsOf((session) => void session.forward(frame, 0, frame.length, true))
  expect(awaited.log).toEqual(['first turn', 'write', 'second turn'])
})

it('much does not wait for more', async () => {
  const frame = reply(1, 3_000)
  const { log, written } = await turnsOf((session) => {
    for (let i = 0; i < 8; i++) session.forward(frame, 0, frame.length, true)
  })
  expect(log).toEqual(['write', 'first turn', 'second turn'])
  expect(written).toHaveLength(8 * frame.length)
})

it('frames keep their order, whichever way they come', async () => {
  const frames = Array.from({ length: 9 }, (_, i) => reply(i + 1, i === 4 ? 5_000 : 20))
  const memory = Buffer.concat(frames)
  const startOf = (i: number): number => frames.slice(0, i).reduce((sum, { length }) => sum + length, 0)
  const { written } = await turnsOf((session) => {
    for (const [i, frame] of frames.entries()) {
      if (i % 3 === 2) session.reply([frame])
      else if (i === 3 || i === 7) {
        const writer = session.writer()
        writer.beginReply(RequestType.ok, 0, i + 1, 1)
        writer.bytes(Buffer.alloc(20, i + 1))
        session.written(writer.end())
      } else session.forward(memory, startOf(i), startOf(i + 1), true)
    }
  })
  expect(written.equals(memory)).toBe(true)
})
