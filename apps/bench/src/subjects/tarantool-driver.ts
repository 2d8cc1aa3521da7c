import TarantoolConnection from 'tarantool-driver'
import type { WireCase, WireOperation } from '../cases/wire.js'
import { keyAt, SPACE_ID } from '../fixture.js'
import { promiseRound } from '../round.js'
import { someRows } from './orbweaver.js'
import type { Subject } from './subject.js'

/** The npm package tarantool-driver: it pipelines what is called in parallel, with one write per request. */
export async function tarantoolDriverSubject({ operation, inFlight }: WireCase, port: number): Promise<Subject> {
  const connection = new TarantoolConnection({ host: '127.0.0.1', port, lazyConnect: true, retryStrategy: () => false })
  await connection.connect()
  const request = REQUESTS[operation](connection)
  return { round: (seconds, patienceMs) => promiseRound(request, { inFlight, seconds, patienceMs }) }
}

type MakeRequest = (connection: TarantoolConnection) => (index: number) => Promise<unknown>

const REQUESTS: Readonly<Record<WireOperation, MakeRequest>> = {
  select: (connection) => (index) => connection.select(SPACE_ID, 0, 1, 0, 'eq', [keyAt(index)]),
  replace: (connection) => {
    const rows = someRows()
    return (index) => connection.replace(SPACE_ID, rows[index % rows.length]!)
  },
  call: (connection) => (index) => connection.call('bench_add', index, 1),
  rows100: (connection) => (index) => connection.select(SPACE_ID, 0, 100, 0, 'ge', [keyAt(index)]),
  rows300: (connection) => (index) => connection.select(SPACE_ID, 0, 300, 0, 'ge', [keyAt(index)]),
}
