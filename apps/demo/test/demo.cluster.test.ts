/* The demo as a visitor starts it: a process of its own, its exit code, what it prints and what it leaves behind. */
import { spawn } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises'
import { createServer } from 'node:net'
import type { Server } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { tarantoolEngine } from '@orbweaver/cluster'
import { connect } from '@orbweaver/connection'
import { createRouter } from '@orbweaver/router'
import { readTopology } from '@orbweaver/vshard'
import { afterEach, describe, expect, it } from 'vitest'
import { computeTotals, loadPlaces } from '../src/places.js'

const MAIN = fileURLToPath(new URL('../dist/main.js', import.meta.url))
const SMALL = ['--replicasets', '2', '--instances', '2', '--buckets', '100']

interface Run {
  readonly child: ChildProcess
  readonly output: () => string
  readonly errors: () => string
  readonly ended: Promise<number | null>
}

const running: ChildProcess[] = []
afterEach(() => {
  for (const child of running.splice(0)) child.kill('SIGKILL')
})

function demo(...args: string[]): Run {
  return demoIn(tmpdir(), ...args)
}

/** With a directory of its own for temporary files: what is left in it is left behind. */
function demoIn(directory: string, ...args: string[]): Run {
  const env = { ...process.env, TMPDIR: directory }
  const child = spawn(process.execPath, [MAIN, ...args], { stdio: ['ignore', 'pipe', 'pipe'], env })
  running.push(child)
  let output = ''
  let errors = ''
  child.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()))
  child.stderr.on('data', (chunk: Buffer) => (errors += chunk.toString()))
  const ended = new Promise<number | null>((resolve) => child.once('close', resolve))
  return { child, output: () => output, errors: () => errors, ended }
}

/** Waits for the thing, or says what the demo said when it ended before. */
async function waitFor(run: Run, condition: () => boolean | Promise<boolean>): Promise<void> {
  let code: number | null | undefined
  void run.ended.then((ended) => {
    code = ended
  })
  while (!(await condition())) {
    if (code !== undefined) throw new Error(`The demo ended with ${code}: ${run.errors()}${run.output()}`)
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
}

/** Processes whose parent is `pid`. */
async function childrenOf(pid: number): Promise<number[]> {
  const children: number[] = []
  for (const entry of await readdir('/proc')) {
    if (!/^\d+$/.test(entry)) continue
    // A process may end while it is looked at.
    const stat = await readFile(`/proc/${entry}/stat`, 'utf8').catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT' || error.code === 'ESRCH') return ''
      throw error
    })
    if (stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1] === String(pid)) children.push(Number(entry))
  }
  return children
}

describe('npm start -- --once', () => {
  it('tells its story on the real data, every answer checked, and leaves nothing behind', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'demo-'))
    const run = demoIn(directory, '--once', '--json')
    const code = await run.ended
    expect(run.errors()).toContain('Every answer was checked and right')
    expect(code).toBe(0)
    const result = JSON.parse(run.output().trim().split('\n').at(-1)!) as Record<string, unknown>
    const totals = computeTotals(await loadPlaces())
    expect(result).toMatchObject({
      ok: true,
      rows: totals.places,
      mapReduce: { countries: totals.populationOf.size, totalPopulation: totals.population },
      merge: { top: totals.largest.map(({ id, name, population }) => ({ id, name, population })) },
      failover: { oldMaster: 'c1', newMaster: 'c2', failedWrites: 0, lostWrites: 0 },
      proxy: { clients: 8, requests: 1_600 },
    })
    expect(await readdir(directory)).toEqual([])
    await rm(directory, { recursive: true })
  }, 240_000)
})

describe('npm start -- --idle', () => {
  it('writes a topology by which other programs find the cluster, and ends everything on an interrupt', async () => {
    const dir = await mkdtemp(join(tmpdir(), 'topology with spaces é '))
    try {
      const file = join(dir, 'topology.json')
      const run = demo('--idle', '--topology', file, ...SMALL)
      await waitFor(run, async () => (await readdir(dir)).includes('topology.json'))
      expect(await readdir(dir)).toEqual(['topology.json'])
      const topology = readTopology(JSON.parse(await readFile(file, 'utf8')))
      expect(topology).toMatchObject({ bucketCount: 100, identification: 'name' })

      const router = createRouter({ config: topology })
      await router.ready()
      const counts = await router.mapCallrw<[number]>('place.count')
      expect([...counts.values()].reduce((sum, [count]) => sum + count, 0)).toBe((await loadPlaces()).length)
      await router.close()

      const { host, port, user, password } = topology.proxy!
      const client = await connect({ uri: { host, port }, user, password })
      expect(await client.call('place.count')).toEqual([counts.get('a')![0]])
      await client.close()

      const children = await childrenOf(run.child.pid!)
      expect(children).toHaveLength(4)
      run.child.kill('SIGINT')
      expect(await run.ended).toBe(0)
      for (const pid of children) expect(() => process.kill(pid, 0)).toThrow('ESRCH')
      // Nobody must look for the cluster where it was.
      expect(await readdir(dir)).toEqual([])
    } finally {
      await rm(dir, { recursive: true })
    }
  }, 240_000)

  it('says when an instance has ended that nobody ended', async () => {
    const run = demo('--idle', ...SMALL)
    await waitFor(run, () => run.output().includes('The cluster stays up until Ctrl-C'))
    const [child] = await childrenOf(run.child.pid!)
    process.kill(child!, 'SIGKILL')
    await waitFor(run, () => /Instance [ab][12] has ended \(SIGKILL\)/.test(run.output()))
    run.child.kill('SIGINT')
    expect(await run.ended).toBe(0)
  }, 120_000)

  it('leaves no process and no file when it is killed', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'demo-'))
    const run = demoIn(directory, '--idle', ...SMALL)
    await waitFor(run, () => run.output().includes('processes are up'))
    const children = await childrenOf(run.child.pid!)
    expect(children).toHaveLength(4)
    run.child.kill('SIGKILL')
    await run.ended
    await expect
      .poll(async () => (await Promise.all(children.map(isAlive))).filter(Boolean), { timeout: 10_000 })
      .toEqual([])
    expect(await readdir(directory)).toEqual([])
    await rm(directory, { recursive: true })
  }, 120_000)

  it('ends within seconds when it is interrupted while it starts or loads', async () => {
    const starting = demo('--idle', ...SMALL)
    await waitFor(starting, () => starting.output().includes('Starting'))
    starting.child.kill('SIGINT')
    expect(await starting.ended).toBe(130)

    const loading = demo('--idle', ...SMALL)
    await waitFor(loading, () => loading.output().includes('Sharding'))
    loading.child.kill('SIGTERM')
    expect(await loading.ended).toBe(130)
  }, 120_000)
})

async function isAlive(pid: number): Promise<boolean> {
  // A zombie waits for init only.
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT' || error.code === 'ESRCH') return ''
    throw error
  })
  return stat !== '' && !stat.includes(') Z ')
}

/** On a port among those no outgoing connection is given, so that its neighbours are most likely free. */
async function listenSomewhere(): Promise<{ server: Server; port: number }> {
  for (;;) {
    const port = 10_000 + Math.floor(Math.random() * 20_000)
    const server = createServer()
    const isListening = await new Promise<boolean>((resolve) => {
      server.once('error', () => resolve(false))
      server.listen(port, '127.0.0.1', () => resolve(true))
    })
    if (isListening) return { server, port }
  }
}

describe('wrong use', () => {
  it.each<[string, string[], RegExp]>([
    ['an unknown flag', ['--onze'], /^Unknown option '--onze'.*see --help$/],
    ['a bad number', ['--buckets', 'many'], /^--buckets is 'many', expected a whole number/],
    [
      'a port too high for all instances',
      ['--port', '65530'],
      /^--port is 65530, and the last instance would need port/,
    ],
    ['flags that exclude each other', ['--once', '--idle'], /^--once and --idle exclude each other/],
  ])('%s is one sentence and exit code 2', async (_what, args, sentence) => {
    const run = demo(...args)
    expect(await run.ended).toBe(2)
    expect(run.errors().trim()).toMatch(sentence)
    expect(run.output()).not.toContain('up')
  })

  it('a busy port is one sentence and exit code 2', async () => {
    const { server, port } = await listenSomewhere()
    for (const first of [port, port - 1]) {
      const run = demo('--once', ...SMALL, '--port', String(first))
      expect(await run.ended).toBe(2)
      expect(run.errors().trim()).toMatch(new RegExp(`^Port ${port} is in use: choose another one with --port`))
    }
    await new Promise((resolve) => server.close(resolve))
  }, 120_000)

  it('--help prints the help', async () => {
    const run = demo('--help')
    expect(await run.ended).toBe(0)
    expect(run.output()).toContain('--topology FILE')
  })
})

describe('npm start -- --engine tarantool', () => {
  const missing = tarantoolEngine().missing()

  it.skipIf(missing !== undefined)(
    `tells the same story on real servers${missing === undefined ? '' : ` (skipped: ${missing})`}`,
    async () => {
      const run = demo('--once', '--engine', 'tarantool', ...SMALL)
      expect([await run.ended, run.errors()]).toEqual([0, ''])
      expect(run.output()).toContain('Every answer was checked and right')
    },
  )

  it('says what to do where there is none', async () => {
    const env = { ...process.env, TARANTOOL: '/nowhere/tarantool' }
    const child = spawn(process.execPath, [MAIN, '--once', '--engine', 'tarantool'], { env })
    let errors = ''
    child.stderr.on('data', (chunk: Buffer) => (errors += chunk.toString()))
    const code = await new Promise((resolve) => child.once('close', resolve))
    expect(code).toBe(2)
    expect(errors).toMatch(/^--engine tarantool: "\/nowhere\/tarantool" cannot be run .* set TARANTOOL to its path\n$/)
  })
})
