import { connect, type Connection } from '@orbweaver/connection'
import type { WireCase, WireOperation } from '../cases/wire.js'
import { keyAt, SPACE_ID, wideRow } from '../fixture.js'
import { promiseRound } from '../round.js'
import type { Subject } from './subject.js'

/** Whether requests carry a timeout: the connection's own (10 s), one of each request, or none. */
export type Timeouts = 'default' | 'none' | 'each'

/** The connection of this project, as an application uses it. */
export async function orbweaverSubject(
  { operation, inFlight }: WireCase,
  port: number,
  timeouts: Timeouts,
): Promise<Subject> {
  const connection = await connect({ uri: `127.0.0.1:${port}`, reconnect: false })
  const request = timeouts === 'default' ? REQUESTS[operation](connection) : timedSelect(connection, timeouts)
  return { round: (seconds, patienceMs) => promiseRound(request, { inFlight, seconds, patienceMs }) }
}

type MakeRequest = (connection: Connection) => (index: number) => Promise<unknown>

const REQUESTS: Readonly<Record<WireOperation, MakeRequest>> = {
  select: (connection) => (index) => connection.select(SPACE_ID, [keyAt(index)]),
  replace: (connection) => {
    const rows = someRows()
    return (index) => connection.replace(SPACE_ID, rows[index % rows.length]!)
  },
  call: (connection) => (index) => connection.call('bench_add', [index, 1]),
  rows100: (connection) => (index) => connection.select(SPACE_ID, [keyAt(index)], { iterator: 'GE', limit: 100 }),
  rows300: (connection) => (index) => connection.select(SPACE_ID, [keyAt(index)], { iterator: 'GE', limit: 300 }),
}

function timedSelect(connection: Connection, timeouts: 'none' | 'each'): (index: number) => Promise<unknown> {
  return timeouts === 'none'
    ? (index) => connection.select(SPACE_ID, [keyAt(index)], { timeout: Number.POSITIVE_INFINITY })
    : (index) => connection.select(SPACE_ID, [keyAt(index)], { timeout: 20_000 + (index % 10_000) })
}

/** Rows made before the round: making them is not what is measured. */
export function someRows(): unknown[][] {
  return Array.from({ length: 1_024 }, (_, i) => wideRow(keyAt(i)))
}
