/** Servers as subjects: each is started by the process of its subject, which then plays the clients. */
import { connect } from '@orbweaver/connection'
import type { SubjectName } from '../cases/bench-case.js'
import type { MemoryCase } from '../cases/memory.js'
import type { ServerCase } from '../cases/server.js'
import { rowOf127Bytes, SPACE_ID } from '../fixture.js'
import { promiseRound, type Round } from '../round.js'
import { fill, fillWide } from '../servers/filling.js'
import { cpuOf, type MeasuredServer, residentBytesOf } from '../servers/measured-server.js'
import { startStorageProcess } from '../servers/storage-process.js'
import { findServer, TarantoolServer } from '../servers/tarantool-server.js'
import { rawSubject } from './raw-socket.js'
import type { Subject } from './subject.js'

interface Kind {
  readonly isDurable?: boolean
  readonly hasSecondIndex?: boolean
}

const STARTERS: Partial<Record<SubjectName, (main: string, kind: Kind) => Promise<MeasuredServer>>> = {
  'embedded storage': startStorageProcess,
  Tarantool: (_main, { hasSecondIndex }) => startTarantool('none', hasSecondIndex),
  'Tarantool, wal_mode fsync': (_main, { hasSecondIndex }) => startTarantool('fsync', hasSecondIndex),
}

function startTarantool(walMode: 'none' | 'fsync', hasSecondIndex = false): Promise<MeasuredServer> {
  const found = findServer()
  if (typeof found === 'string') throw new Error(found)
  return TarantoolServer.start(found, { walMode, hasSecondIndex })
}

function start(name: SubjectName, kind: Kind): Promise<MeasuredServer> {
  const starter = STARTERS[name]
  if (starter === undefined) throw new Error(`${name} is no server`)
  return starter(process.argv[1]!, kind)
}

export async function serverSubject(name: SubjectName, benchCase: ServerCase): Promise<Subject> {
  const { operation, sockets, depth, isDurable } = benchCase
  const { pid, port } = await start(name, { isDurable })
  await fillWide(port)
  return rawSubject({ operation, port, sockets, depth, cpuNow: () => cpuOf(pid) })
}

/** Fills a server with a million rows, then writes and pings. */
export async function memorySubject(name: SubjectName, { rows }: MemoryCase): Promise<Subject> {
  const { pid, port } = await start(name, { hasSecondIndex: true })
  await fill(port, rows, rowOf127Bytes)
  const writer = await connect({ uri: `127.0.0.1:${port}`, reconnect: false })
  const pinger = await connect({ uri: `127.0.0.1:${port}`, reconnect: false })
  const replaceOne = (index: number): Promise<unknown> =>
    writer.replace(SPACE_ID, rowOf127Bytes(1 + ((index * 7_919) % rows)))
  const round = async (seconds: number, patienceMs: number): Promise<Round> => {
    let longestPauseMs = 0
    const pings = { areOver: false }
    const pinging = (async (): Promise<void> => {
      while (!pings.areOver) {
        const askedMs = performance.now()
        await pinger.ping()
        longestPauseMs = Math.max(longestPauseMs, performance.now() - askedMs)
        await new Promise((resolve) => setTimeout(resolve, 1))
      }
    })()
    const written = await promiseRound(replaceOne, { inFlight: WRITERS, seconds, patienceMs, cpuNow: () => cpuOf(pid) })
    pings.areOver = true
    await pinging
    return { ...written, residentBytes: residentBytesOf(pid), longestPauseMs }
  }
  return { round }
}

const WRITERS = 64
