import type { BenchCase } from '../cases.js'
import type { SubjectName } from '../cases/bench-case.js'
import type { Stage } from '../subject-messages.js'
import type { CodecCase } from '../cases/codec.js'
import type { WireCase } from '../cases/wire.js'
import { msgpackLiteCodec, msgpackrCodec, orbweaverCodec, ownBufferCodec } from './codec.js'
import { orbweaverSubject } from './orbweaver.js'
import { rawSocketSubject } from './raw-socket.js'
import { connectionSubject, replicasetSubject } from './replicaset.js'
import { proxySubject } from './proxies.js'
import { routerSubject } from './routers.js'
import { memorySubject, serverSubject } from './servers.js'
import type { Subject } from './subject.js'
import { tarantoolDriverSubject } from './tarantool-driver.js'

const CLIENTS: Partial<Record<SubjectName, (benchCase: WireCase, port: number) => Promise<Subject>>> = {
  orbweaver: (benchCase, port) => orbweaverSubject(benchCase, port, 'default'),
  'orbweaver, no timeout': (benchCase, port) => orbweaverSubject(benchCase, port, 'none'),
  'orbweaver, a timeout each': (benchCase, port) => orbweaverSubject(benchCase, port, 'each'),
  'tarantool-driver': tarantoolDriverSubject,
  'raw socket': rawSocketSubject,
  replicaset: replicasetSubject,
  connection: connectionSubject,
}

const CODECS: Partial<Record<SubjectName, (benchCase: CodecCase) => Promise<Subject>>> = {
  orbweaver: orbweaverCodec,
  'orbweaver, own buffer': ownBufferCodec,
  msgpackr: msgpackrCodec,
  'msgpack-lite': msgpackLiteCodec,
}

/**
 * Sets a subject up for a case.
 * @throws Error for a case it has no part in
 */
export function makeSubject(name: SubjectName, benchCase: BenchCase, { port, cluster }: Stage): Promise<Subject> {
  switch (benchCase.kind) {
    case 'server':
      return serverSubject(name, benchCase)
    case 'memory':
      return memorySubject(name, benchCase)
    case 'proxy':
      return proxySubject(name, benchCase, port)
    case 'router':
      return cluster === undefined ? noPart(name, benchCase) : routerSubject(name, benchCase, cluster)
    case 'wire':
      return CLIENTS[name]?.(benchCase, port) ?? noPart(name, benchCase)
    case 'codec':
      return CODECS[name]?.(benchCase) ?? noPart(name, benchCase)
  }
}

function noPart(name: SubjectName, { id }: BenchCase): never {
  throw new Error(`${name} has no part in ${id}`)
}
