/* What a connection does to the process around it: exit, signals, the processor, sockets left behind. */
import { type ChildProcess, spawn } from 'node:child_process'
import {
  connect,
  createConnection,
  listen,
  type SocketListener,
  systemClock,
  type Transport,
} from '@orbweaver/connection'
import type { Address } from '@orbweaver/connection'
import { ScriptedPeer } from '@orbweaver/connection/testing'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'

/** A scripted peer behind a real socket. */
async function serve(peer: ScriptedPeer): Promise<SocketListener> {
  return listen({ host: '127.0.0.1', port: 0 }, (outside) => {
    if (!('connect' in peer.address)) throw new Error('A scripted peer is reached in memory')
    bridge(outside, peer.address.connect())
  })
}

function bridge(outside: Transport, inside: Transport): void {
  const pass = (from: Transport, to: Transport): void => {
    from.attach({
      data: (chunk) => to.write([chunk]),
      drain: () => undefined,
      end: () => to.end(),
      closed: () => to.destroy(),
    })
  }
  pass(outside, inside)
  pass(inside, outside)
}

interface Run {
  readonly child: ChildProcess
  /** Standard output and error together. */
  output: () => string
  readonly exited: Promise<number | string>
}

const connectionUrl = new URL('../../../connection/dist/index.js', import.meta.url).href

/** Runs a program in a process of its own; it finds `connect`, `createConnection` and the address `uri`. */
function run(uri: string, program: string): Run {
  const script = `
    import { connect, createConnection } from ${JSON.stringify(connectionUrl)}
    const uri = ${JSON.stringify(uri)}
    ${program}`
  const child = spawn(process.execPath, ['--input-type=module', '--eval', script], {
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let output = ''
  for (const stream of [child.stdout, child.stderr]) stream?.on('data', (chunk: Buffer) => (output += chunk.toString()))
  const exited = new Promise<number | string>((resolve) => {
    child.once('exit', (code, signal) => resolve(code ?? signal ?? 'gone'))
  })
  return { child, output: () => output, exited }
}

describe('A process with a connection', () => {
  const peer = new ScriptedPeer({ clock: systemClock, version: '2.11.0' })
  let server: SocketListener
  let up = ''
  let down = ''
  beforeAll(async () => {
    server = await serve(peer)
    up = 'host' in server.address ? `127.0.0.1:${String(server.address.port)}` : ''
    const closed = await serve(peer)
    down = 'host' in closed.address ? `127.0.0.1:${String(closed.address.port)}` : ''
    await closed.close()
  })
  afterAll(async () => {
    peer.cut()
    await server.close()
  })

  it('that never got one, and listens to nothing, prints nothing and exits cleanly after close', async () => {
    const { exited, output } = run(
      down,
      `
      const connection = createConnection({ uri })
      const ends = await Promise.allSettled([connection.ping({ timeout: 400 }), connection.connect(), connection.call('f', [], { timeout: 300 })])
      if (ends.some((end) => end.status !== 'rejected')) throw new Error('reached nobody')
      await connection.close()`,
    )
    expect([await exited, output()]).toEqual([0, ''])
  })

  it('with abandoned requests and subscriptions exits cleanly after close', async () => {
    const { exited, output } = run(
      up,
      `
      const connection = await connect(uri)
      for (const key of ['a', '', 'missing', 'box.status']) connection.watch(key, () => {})
      connection.call('nobody answers').catch(() => {})
      connection.stream()
      await connection.close({ timeout: 100 })`,
    )
    expect([await exited, output()]).toEqual([0, ''])
  })

  it.each([
    ['open', () => up],
    ['waiting for its next attempt', () => down],
  ])('exits by itself when its connection is %s and was unrefed', async (_state, uri) => {
    const { exited, output } = run(
      uri(),
      `
      const connection = createConnection({ uri }).unref()
      connection.watch('key', () => {})
      connection.ping().catch(() => {})
      await connection.connect().catch(() => {})`,
    )
    expect([await exited, output()]).toEqual([0, ''])
  })

  it.each([
    ['open', () => up],
    ['waiting for its next attempt', () => down],
  ])('stays alive while its connection is %s, at rest, and ends by either signal', async (_state, uri) => {
    for (const signal of ['SIGINT', 'SIGTERM'] as const) {
      const { child, exited, output } = run(
        uri(),
        `
        const connection = createConnection({ uri })
        for (const key of ['a', '', 'missing', 'box.status']) connection.watch(key, () => {})
        await connection.connect().catch(() => {})
        const before = process.cpuUsage()
        setTimeout(() => {
          const { user, system } = process.cpuUsage(before)
          console.log(user + system < 300_000 ? 'at rest' : 'busy for ' + (user + system) + ' us')
        }, 600).unref()
        setTimeout(() => {}, 700).unref()`,
      )
      await expect.poll(output, { timeout: 20_000 }).toBe('at rest\n')
      child.kill(signal)
      expect(await exited).toBe(signal)
    }
  })
})

describe('Sockets', () => {
  const TIMES = 300
  const handles = (): number => process.getActiveResourcesInfo().filter((name) => /TCP|Timeout/.test(name)).length

  it('are gone after connecting, pinging and closing, and after refused attempts, however often', async () => {
    const peer = new ScriptedPeer({ clock: systemClock, version: '2.11.0' })
    const server = await serve(peer)
    const uri = 'host' in server.address ? `127.0.0.1:${String(server.address.port)}` : ''
    const cycle = async (): Promise<void> => {
      const connection = await connect(uri)
      await connection.ping()
      await connection.close()
      peer.sessions.length = 0
    }
    for (let i = 0; i < 20; i += 1) await cycle()
    await expect.poll(handles).toBeLessThanOrEqual(4)
    const before = handles()
    for (let i = 0; i < TIMES; i += 1) await cycle()
    await expect.poll(handles).toBeLessThanOrEqual(before)
    await server.close()
    for (let i = 0; i < TIMES; i += 1) await expect(connect(uri)).rejects.toMatchObject({ code: 'ORB_CONNECT' })
    await expect.poll(handles).toBeLessThanOrEqual(before)
  })

  it('carry what a slow reader takes later, with back-pressure in between', async () => {
    const received: Buffer[] = []
    let reader: Transport | undefined
    const server = await listen({ host: '127.0.0.1', port: 0 }, (transport) => {
      reader = transport
      transport.attach({
        data: (chunk) => received.push(chunk),
        drain: () => undefined,
        end: () => transport.end(),
        closed: () => undefined,
      })
      transport.pauseReading()
    })
    const { dialSocket } = await import('@orbweaver/connection')
    const writer = await dialSocket(server.address, new AbortController().signal)
    let drains = 0
    writer.attach({
      data: () => undefined,
      drain: () => (drains += 1),
      end: () => writer.end(),
      closed: () => undefined,
    })
    const chunk = Buffer.alloc(1_000_000, 7)
    let writes = 0
    while (writer.write([chunk, chunk])) writes += 1
    expect(writer.pendingBytes).toBeGreaterThan(0)
    await expect.poll(() => reader).toBeDefined()
    reader?.resumeReading()
    await expect.poll(() => drains).toBe(1)
    writer.end()
    await expect.poll(() => received.reduce((sum, piece) => sum + piece.length, 0)).toBe((writes + 1) * 2_000_000)
    await server.close()
  })

  it('that die report their error as the cause', async () => {
    const server = await listen({ host: '127.0.0.1', port: 0 }, (transport) => {
      transport.attach({
        data: () => transport.destroy(),
        drain: () => undefined,
        end: () => undefined,
        closed: () => undefined,
      })
    })
    const connection = createConnection({ uri: server.address, reconnect: false, connectTimeoutMs: 2_000 })
    await expect(connection.connect()).rejects.toMatchObject({ code: 'ORB_CONNECT' })
    await connection.close()
    await server.close()
  })
})

describe('listen', () => {
  it('replaces a socket file that a dead process left, but not one that is in use', async () => {
    const { mkdtemp, rm, writeFile } = await import('node:fs/promises')
    const { tmpdir } = await import('node:os')
    const { join } = await import('node:path')
    const dir = await mkdtemp(join(tmpdir(), 'orbweaver-listen-'))
    const path = join(dir, 'a.sock')
    const dead = spawn(process.execPath, [
      '--eval',
      `require('net').createServer().listen(${JSON.stringify(path)}, () => process.kill(process.pid, 'SIGKILL'))`,
    ])
    await new Promise((resolve) => dead.once('exit', resolve))
    const ignore = (transport: Transport): void => transport.destroy()
    const first = await listen({ path }, ignore)
    await expect(listen({ path }, ignore)).rejects.toMatchObject({ code: 'EADDRINUSE' })
    await first.close()
    const file = join(dir, 'no-socket')
    await writeFile(file, 'data')
    await expect(listen({ path: file }, ignore)).rejects.toMatchObject({ code: 'EADDRINUSE' })
    await rm(dir, { recursive: true })
  })

  it('refuses a connect function and a port that is taken', async () => {
    const ignore = (transport: Transport): void => transport.destroy()
    await expect(
      listen(
        {
          connect: () => {
            throw new Error('no')
          },
        },
        ignore,
      ),
    ).rejects.toMatchObject({ code: 'ORB_INVALID_ARGUMENT' })
    await expect(listen(5 as unknown as Address, ignore)).rejects.toMatchObject({ code: 'ORB_INVALID_ARGUMENT' })
    const taken = await listen({ host: '127.0.0.1', port: 0 }, ignore)
    await expect(listen(taken.address, ignore)).rejects.toMatchObject({ code: 'EADDRINUSE' })
    await taken.close()
    await taken.close()
  })
})
