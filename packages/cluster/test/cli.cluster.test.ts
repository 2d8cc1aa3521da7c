/* orbweaver-cluster as somebody types it: processes, exit codes, what is printed and what is left behind. */
import { spawn } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { connect } from '@orbweaver/connection'
import { readTopology } from '@orbweaver/vshard'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { describeEngines } from './engines.js'

const MAIN = fileURLToPath(new URL('../dist/cli/main.js', import.meta.url))

interface Run {
  readonly child: ChildProcess
  readonly said: () => string
  readonly errors: () => string
  readonly ended: Promise<number | null>
}

let dir: string
const running: ChildProcess[] = []

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), 'orbweaver cli é '))
})

afterEach(async () => {
  for (const child of running.splice(0)) child.kill('SIGKILL')
  await rm(dir, { recursive: true, force: true })
})

function run(...args: string[]): Run {
  const child = spawn(process.execPath, [MAIN, ...args], { cwd: dir, stdio: ['ignore', 'pipe', 'pipe'] })
  running.push(child)
  let said = ''
  let errors = ''
  child.stdout.on('data', (chunk: Buffer) => (said += chunk.toString()))
  child.stderr.on('data', (chunk: Buffer) => (errors += chunk.toString()))
  return {
    child,
    said: () => said,
    errors: () => errors,
    ended: new Promise((resolve) => child.once('close', resolve)),
  }
}

/** One that ends by itself. */
async function ask(...args: string[]): Promise<{ code: number | null; said: string; errors: string }> {
  const asked = run(...args)
  const code = await asked.ended
  return { code, said: asked.said().trim(), errors: asked.errors().trim() }
}

describeEngines('orbweaver-cluster', (engine) => {
  it('starts a cluster, obeys, shows it, and ends it without a trace', async () => {
    const up = run('up', '--engine', engine.name, '--replicasets', '2', '--instances', '2', '--buckets', '20')
    await expect.poll(() => up.said() + up.errors(), { timeout: 30_000 }).toContain('The cluster is up')
    expect((await ask('status')).said.split('\n').map((line) => line.split(/ {2,}/))).toEqual([
      ['replicaset', 'instance', 'uri', 'buckets', 'state'],
      ['a', 'a1', expect.any(String), '10', 'master'],
      ['a', 'a2', expect.any(String), 'replica'],
      ['b', 'b1', expect.any(String), '10', 'master'],
      ['b', 'b2', expect.any(String), 'replica'],
    ])
    expect(await ask('promote', 'a2')).toMatchObject({ code: 0, said: 'a2 is the master' })
    expect(await ask('kill', 'b2')).toMatchObject({ code: 0, said: 'b2 is killed' })
    expect((await ask('status')).said).toMatch(/a2 .* master\n[^]* b2 .* away: Cannot connect/)
    expect(await ask('restart', 'b2')).toMatchObject({ code: 0, said: 'b2 is up' })

    expect(await ask('add')).toMatchObject({ code: 0, said: 'Replicaset c is up: c1, c2' })
    expect(await ask('drain', 'b')).toMatchObject({ code: 0, said: 'Replicaset b is being emptied' })
    const topology = readTopology(JSON.parse(await readFile(join(dir, 'orbweaver-cluster.json'), 'utf8')))
    expect(topology.replicasets.map(({ name }) => name)).toEqual(['a', 'b', 'c'])
    const { user, password } = topology
    const b1 = await connect({ uri: topology.replicasets[1]!.instances[0]!.uri, user, password })
    await expect.poll(() => b1.call('vshard.storage.buckets_count'), { timeout: 60_000, interval: 200 }).toEqual([0])
    b1.destroy()

    expect(await ask('promote', 'x9')).toMatchObject({
      code: 1,
      errors: expect.stringContaining("no instance 'x9'") as string,
    })
    expect(await ask('weight', 'b', 'much')).toMatchObject({
      code: 1,
      errors: expect.stringContaining('The weight is') as string,
    })
    expect(await ask('up')).toMatchObject({ code: 2, errors: expect.stringContaining('runs already') as string })
    expect(await ask('down')).toMatchObject({ code: 0, said: 'The cluster ends' })
    expect(await up.ended).toBe(0)
    expect(await readdir(dir)).toEqual([])
  }, 120_000)
})

describe('orbweaver-cluster', () => {
  it.each<[string, string[], RegExp]>([
    ['an unknown command', ['upp'], /^'upp' is no command: expected up, status/],
    ['an unknown option', ['up', '--replicaset', '2'], /^Unknown option '--replicaset'/],
    ['a number that is none', ['up', '--buckets', 'many'], /^--buckets is 'many', expected a whole number$/],
    ['options that cannot be right', ['up', '--instances', '0'], /instances: is 0, expected a positive integer/],
    ['an unknown engine', ['up', '--engine', 'redis'], /^--engine is 'redis', expected embedded or tarantool$/],
    ['a missing argument', ['promote'], /^'promote' takes INSTANCE behind it, got nothing$/],
    ['too many arguments', ['status', 'a1'], /^'status' takes nothing behind it, got a1$/],
    ['a file that is not there', ['status'], /^There is no orbweaver-cluster\.json: start a cluster/],
  ])('%s is one sentence and exit code 2', async (_what, args, sentence) => {
    const { code, said, errors } = await ask(...args)
    expect({ code, said }).toEqual({ code: 2, said: '' })
    expect(errors).toMatch(sentence)
  })

  it('takes over the file of a cluster that was killed, and says that it does not run', async () => {
    const first = run('up', '--replicasets', '1', '--instances', '1', '--buckets', '2')
    await expect.poll(() => first.said(), { timeout: 30_000 }).toContain('The cluster is up')
    first.child.kill('SIGKILL')
    await first.ended
    expect(await ask('promote', 'a1')).toMatchObject({
      code: 1,
      errors: expect.stringContaining('does not run any more') as string,
    })
    const second = run('up', '--replicasets', '1', '--instances', '1', '--buckets', '2')
    await expect.poll(() => second.said(), { timeout: 30_000 }).toContain('The cluster is up')
    second.child.kill('SIGINT')
    expect(await second.ended).toBe(0)
    expect(await readdir(dir)).toEqual([])
  }, 60_000)

  it('leaves a file alone that is no cluster’s', async () => {
    await writeFile(join(dir, 'mine.json'), '{"name": "mine"}')
    expect(await ask('up', '--file', 'mine.json')).toMatchObject({ code: 2 })
    expect(await readFile(join(dir, 'mine.json'), 'utf8')).toBe('{"name": "mine"}')
  })

  it('ends what it started when it is interrupted while it starts', async () => {
    const up = run('up', '--replicasets', '2', '--instances', '3')
    await expect.poll(() => up.said(), { timeout: 30_000 }).toContain('is up (1 of 6)')
    up.child.kill('SIGINT')
    expect(await up.ended).toBe(130)
    expect(await readdir(dir)).toEqual([])
  }, 60_000)

  it('--help prints the help', async () => {
    expect(await ask('--help')).toMatchObject({
      code: 0,
      said: expect.stringContaining('Usage: orbweaver-cluster') as string,
    })
    expect(await ask('up', '--help')).toMatchObject({ code: 0 })
  })
})
