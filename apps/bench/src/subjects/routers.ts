/** Routers as subjects: ours in this process, the one in Lua in a Tarantool of its own. */
import { connect } from '@orbweaver/connection'
import { createRouter, type Router } from '@orbweaver/router'
import { type ClusterConfig, writeVshardConfig } from '@orbweaver/vshard'
import type { SubjectName } from '../cases/bench-case.js'
import type { RouterCase } from '../cases/router.js'
import { promiseRound, type Round, Stopwatch } from '../round.js'
import { startLuaRouter } from '../servers/lua-router.js'
import type { Subject } from './subject.js'

type Maker = (benchCase: RouterCase, config: ClusterConfig) => Promise<Subject>

const MAKERS: Partial<Record<SubjectName, Maker>> = {
  router: (benchCase, config) =>
    benchCase.operation === 'discovery' ? discoverySubject(config) : ownRouter(benchCase, config),
  'Lua router': luaRouter,
  connection: bareConnections,
}

/** @throws Error for a subject that is no router */
export function routerSubject(name: SubjectName, benchCase: RouterCase, config: ClusterConfig): Promise<Subject> {
  const make = MAKERS[name]
  if (make === undefined) throw new Error(`${name} has no part in ${benchCase.id}`)
  return make(benchCase, config)
}

async function ownRouter({ operation, inFlight }: RouterCase, config: ClusterConfig): Promise<Subject> {
  const router = createRouter({ config })
  await router.ready()
  const { bucketCount } = config
  const request =
    operation === 'map'
      ? (index: number): Promise<unknown> => router.mapCallrw('bench_add', [index, 1])
      : (index: number): Promise<unknown> => router.callrw((index % bucketCount) + 1, 'bench_add', [index, 1])
  return { round: (seconds, patienceMs) => promiseRound(request, { inFlight, seconds, patienceMs }) }
}

/** As many new routers as fit into the time, one behind the other; a request is one of them. */
function discoverySubject(config: ClusterConfig): Promise<Subject> {
  const round = async (seconds: number): Promise<Round> => {
    const stopwatch = new Stopwatch()
    const samplesMs: number[] = []
    const endMs = performance.now() + seconds * 1_000
    do {
      const startedMs = performance.now()
      const router: Router = createRouter({ config })
      await router.ready({ timeout: 60_000 })
      samplesMs.push(performance.now() - startedMs)
      await router.close({ timeout: 0 })
    } while (performance.now() < endMs)
    return stopwatch.stop(samplesMs.length, samplesMs, 0)
  }
  return Promise.resolve({ round })
}

async function luaRouter({ operation, inFlight }: RouterCase, config: ClusterConfig): Promise<Subject> {
  const { port } = await startLuaRouter(writeVshardConfig(config))
  const connection = await connect({ uri: `127.0.0.1:${port}`, reconnect: false, requestTimeoutMs: 60_000 })
  while (!(await connection.call<[boolean]>('bench_ready'))[0]) await new Promise((resolve) => setTimeout(resolve, 50))
  return {
    round: async (seconds) => {
      const [round] = await connection.call<[Round]>('bench_round', [operation, inFlight, seconds])
      return round
    },
  }
}

/** What a call costs without a router: the function itself, on the storages in turn. */
async function bareConnections(
  { inFlight }: RouterCase,
  { user, password, replicasets }: ClusterConfig,
): Promise<Subject> {
  const connections = await Promise.all(
    replicasets.map(({ instances }) => connect({ uri: instances[0]!.uri, user, password, reconnect: false })),
  )
  const request = (index: number): Promise<unknown> =>
    connections[index % connections.length]!.call('bench_add', [index, 1])
  return { round: (seconds, patienceMs) => promiseRound(request, { inFlight, seconds, patienceMs }) }
}
