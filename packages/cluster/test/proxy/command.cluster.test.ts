/* orbweaver-proxy as somebody types it: files, signals, exit codes, and what it writes. */
import { type ChildProcess, spawn } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type Connection, connect } from '@orbweaver/connection'
import { createStorage, type Storage } from '@orbweaver/storage'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'

const MAIN = fileURLToPath(new URL('../../../proxy/dist/cli.js', import.meta.url))

let dir: string
let storages: Storage[]
let ports: number[]
const running: ChildProcess[] = []
const clients: Connection[] = []

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), 'orbweaver proxy é '))
  storages = ['a', 'b'].map((name) => {
    const storage = createStorage({ name, users: { guest: { rights: 'super' } } })
    storage.define('where', () => name)
    return storage
  })
  ports = []
  for (const storage of storages) {
    const address = await storage.listen('127.0.0.1:0')
    if ('port' in address) ports.push(address.port)
  }
})

afterEach(async () => {
  for (const client of clients.splice(0)) client.destroy()
  for (const child of running.splice(0)) child.kill('SIGKILL')
  for (const storage of storages) await storage.close({ graceMs: 0 })
  await rm(dir, { recursive: true, force: true })
})

interface Record {
  readonly event: string
  readonly level: string
  readonly [field: string]: unknown
}

interface Run {
  readonly child: ChildProcess
  readonly errors: () => string
  readonly said: () => string
  readonly ended: Promise<number | null>
  /** The first record of an event. */
  record(event: string): Promise<Record>
}

function run(...args: string[]): Run {
  const child = spawn(process.execPath, [MAIN, ...args], { cwd: dir, stdio: ['ignore', 'pipe', 'pipe'] })
  running.push(child)
  let said = ''
  let errors = ''
  child.stdout.on('data', (chunk: Buffer) => (said += chunk.toString()))
  child.stderr.on('data', (chunk: Buffer) => (errors += chunk.toString()))
  const records = (): Record[] =>
    said
      .split('\n')
      .filter((line) => line.startsWith('{'))
      .map((line) => JSON.parse(line) as Record)
  return {
    child,
    said: () => said,
    errors: () => errors,
    ended: new Promise((resolve) => child.once('close', resolve)),
    record: async (event) => {
      await expect.poll(() => records().some((record) => record.event === event), { timeout: 10_000 }).toBe(true)
      return records().find((record) => record.event === event)!
    },
  }
}

function file(rw: string, more = ''): Promise<void> {
  return writeFile(
    join(dir, 'proxy.yaml'),
    `listen: ['127.0.0.1:0']
targets:
  a: { uri: '127.0.0.1:${ports[0]}' }
  b: { uri: '127.0.0.1:${ports[1]}' }
rw: ${rw}
${more}
`,
  )
}

async function clientOf(listening: Record): Promise<Connection> {
  const addresses = listening['addresses'] as string[]
  const client = await connect({ uri: addresses[0]! })
  clients.push(client)
  return client
}

describe('orbweaver-proxy', () => {
  it('serves, reads its file again on SIGHUP without losing clients, and ends on SIGTERM', async () => {
    await file('a', 'admin: { port: 0 }')
    const proxy = run('--config', 'proxy.yaml')
    const listening = await proxy.record('listening')
    expect(listening).toMatchObject({ level: 'info', rw: 'a' })
    expect(typeof listening['ts']).toBe('string')
    const client = await clientOf(listening)
    expect(await client.call('where')).toEqual(['a'])

    await file('b', 'admin: { port: 0 }')
    proxy.child.kill('SIGHUP')
    expect((await proxy.record('reloaded'))['changes']).toEqual(['rw'])
    expect(await client.call('where')).toEqual(['b'])

    await file('c', 'admin: { port: 0 }')
    proxy.child.kill('SIGHUP')
    const failed = await proxy.record('reload_failed')
    expect(failed['problems']).toMatchObject([{ path: 'rw' }])
    expect(await client.call('where')).toEqual(['b'])

    await file('a', 'admin: { port: 0 }')
    const { status } = await fetch(`http://${String(listening['admin'])}/reload`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
    })
    expect(status).toBe(200)
    expect(await client.call('where')).toEqual(['a'])

    client.destroy()
    proxy.child.kill('SIGTERM')
    expect(await proxy.ended).toBe(0)
  })

  it('only checks a file with --check, and says what is wrong and where', async () => {
    await file('a')
    const right = run('--config', 'proxy.yaml', '--check')
    expect(await right.ended).toBe(0)
    expect(right.said()).toMatch(/is right/)

    await file('a', 'limitz: { maxClients: 5 }\nadmin: { port: x }')
    const wrong = run('--config', 'proxy.yaml', '--check')
    expect(await wrong.ended).toBe(2)
    expect(wrong.errors()).toMatch(/limitz is not known here; did you mean limits\? \(line 6\)/)
    expect(wrong.errors()).toMatch(/admin\.port is 'x', expected a number \(line 7\)/)
  })

  it.each([
    [['--help'], 0, /Usage: orbweaver-proxy/, /^$/],
    [[], 2, /^$/, /--config/],
    [['--config', 'nowhere.yaml'], 2, /^$/, /nowhere\.yaml/],
    [['--colour'], 2, /^$/, /--colour/],
  ] as const)('answers %j with exit code %i', async (args, code, said, errors) => {
    const command = run(...args)
    expect(await command.ended).toBe(code)
    expect(command.said()).toMatch(said)
    expect(command.errors()).toMatch(errors)
  })

  it('ends with a sentence when its port is taken', async () => {
    await writeFile(
      join(dir, 'proxy.json'),
      JSON.stringify({ listen: [`127.0.0.1:${ports[0]}`], targets: { b: { uri: `127.0.0.1:${ports[1]}` } }, rw: 'b' }),
    )
    const command = run('--config', 'proxy.json')
    expect(await command.ended).toBe(2)
    expect(command.errors()).toMatch(/EADDRINUSE/)
  })
})
