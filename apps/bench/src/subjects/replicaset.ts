/** A replicaset of one instance beside the bare connection: what master discovery and holding cost when nothing happens. */
import { connect } from '@orbweaver/connection'
import { createReplicaset } from '@orbweaver/replicaset'
import type { WireCase } from '../cases/wire.js'
import { promiseRound } from '../round.js'
import type { Subject } from './subject.js'

export async function replicasetSubject({ inFlight }: WireCase, port: number): Promise<Subject> {
  const replicaset = createReplicaset({
    definition: { id: 'bench', instances: [{ id: 'only', uri: `127.0.0.1:${port}` }] },
  })
  const callOne = (index: number): Promise<unknown> => replicaset.callrw('bench_add', [index, 1])
  await callOne(0)
  return { round: (seconds, patienceMs) => promiseRound(callOne, { inFlight, seconds, patienceMs }) }
}

export async function connectionSubject({ inFlight }: WireCase, port: number): Promise<Subject> {
  const connection = await connect({ uri: `127.0.0.1:${port}`, reconnect: false })
  const callOne = (index: number): Promise<unknown> => connection.call('bench_add', [index, 1])
  return { round: (seconds, patienceMs) => promiseRound(callOne, { inFlight, seconds, patienceMs }) }
}
