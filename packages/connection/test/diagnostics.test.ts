import { subscribe, tracingChannel, unsubscribe } from 'node:diagnostics_channel'
import { RequestType } from '@orbweaver/iproto'
import { afterEach, describe, expect, it } from 'vitest'
import { CHANNELS, type ConnectTrace, type LogRecord, type RequestTrace } from '../src/index.js'
import { connected, dialling, failure } from './rig.js'

const undo: (() => void)[] = []
afterEach(() => {
  for (const end of undo.splice(0)) end()
})

function trace<T extends object>(name: string): { event: string; message: T }[] {
  const events: { event: string; message: T }[] = []
  const on = (event: string) => (message: object) => void events.push({ event, message: message as T })
  const handlers = {
    start: on('start'),
    end: on('end'),
    asyncStart: on('asyncStart'),
    asyncEnd: on('asyncEnd'),
    error: on('error'),
  }
  tracingChannel(name).subscribe(handlers)
  undo.push(() => tracingChannel(name).unsubscribe(handlers))
  return events
}

describe('orbweaver:connection:request', () => {
  it('tells the start and the end of each request, with one object and without its data', async () => {
    const { clock, peer, connection } = await connected()
    peer.handle(RequestType.call, (request) => request.reply(['secret']))
    const events = trace<RequestTrace>(CHANNELS.request)
    await clock.run(connection.call('f', ['secret']))
    expect(events.map(({ event }) => event)).toEqual(['start', 'end', 'asyncStart', 'asyncEnd'])
    expect(new Set(events.map(({ message }) => message)).size).toBe(1)
    expect(events[0]?.message).toEqual({ peer: 'in-process', type: RequestType.call, streamId: 0, executed: 'yes' })
    expect(JSON.stringify(events)).not.toContain('secret')
  })

  it('tells failures with their error, and passes pushes on', async () => {
    const { clock, peer, connection } = await connected()
    peer.handle(RequestType.call, (request) => {
      request.push(1)
      request.error(7, 'read-only')
    })
    const events = trace<RequestTrace>(CHANNELS.request)
    const pushed: unknown[] = []
    const error = await clock.run(failure(connection.call('f', [], { onPush: (value) => pushed.push(value) })))
    expect(pushed).toEqual([1])
    expect(events.map(({ event }) => event)).toEqual(['start', 'end', 'error', 'asyncStart', 'asyncEnd'])
    expect(events.at(-1)?.message).toMatchObject({ error, executed: 'unknown' })
  })
})

describe('orbweaver:connection:connect', () => {
  it('tells each attempt and how it ended', async () => {
    const events = trace<ConnectTrace>(CHANNELS.connect)
    const { clock, peer, connection } = dialling({ version: '2.11.0' }, {}, (refusing) => {
      refusing.refusal = new Error('nobody home')
    })
    await clock.run(failure(connection.connect()))
    peer.refusal = undefined
    await clock.run(connection.connect())
    expect(events.map(({ event, message }) => [event, message.attempt])).toEqual([
      ['start', 0],
      ['end', 0],
      ['error', 0],
      ['asyncStart', 0],
      ['asyncEnd', 0],
      ['start', 1],
      ['end', 1],
      ['asyncStart', 1],
      ['asyncEnd', 1],
    ])
    expect(events[2]?.message.error).toMatchObject({ code: 'ORB_CONNECT' })
    expect(events.at(-1)?.message.version).toBe('2.11.0')
    connection.destroy()
  })

  it('tells the end of an attempt that a close cut short', async () => {
    const events = trace<ConnectTrace>(CHANNELS.connect)
    const { clock, connection } = dialling({}, {}, (silent) => {
      silent.silentFrom = 'greeting'
    })
    await clock.settle()
    connection.destroy()
    await clock.settle()
    expect(events.map(({ event }) => event)).toEqual(['start', 'end', 'error', 'asyncStart', 'asyncEnd'])
  })
})

describe('orbweaver:log', () => {
  it('carries states and failed attempts as records', async () => {
    const records: LogRecord[] = []
    const listener = (message: unknown): void => {
      records.push(message as LogRecord)
    }
    subscribe(CHANNELS.log, listener)
    undo.push(() => unsubscribe(CHANNELS.log, listener))
    const { clock, connection } = dialling({}, { reconnect: false }, (refusing) => {
      refusing.refusal = new Error('nobody home')
    })
    await clock.run(failure(connection.connect()))
    expect(records.map(({ level, package: name, event }) => [level, name, event])).toEqual([
      ['warn', 'connection', 'connect failed'],
      ['debug', 'connection', 'state'],
    ])
  })
})
