import type { BenchCase, CodecCase, SubjectName, WireCase } from '../cases.js'
import { msgpackLiteCodec, msgpackrCodec, orbweaverCodec, ownBufferCodec } from './codec.js'
import { orbweaverSubject } from './orbweaver.js'
import { rawSocketSubject } from './raw-socket.js'
import type { Subject, SubjectMaker } from './subject.js'
import { tarantoolDriverSubject } from './tarantool-driver.js'

const CLIENTS: Partial<Record<SubjectName, (benchCase: WireCase, port: number) => Promise<Subject>>> = {
  orbweaver: (benchCase, port) => orbweaverSubject(benchCase, port, 'default'),
  'orbweaver, no timeout': (benchCase, port) => orbweaverSubject(benchCase, port, 'none'),
  'orbweaver, a timeout each': (benchCase, port) => orbweaverSubject(benchCase, port, 'each'),
  'tarantool-driver': tarantoolDriverSubject,
  'raw socket': rawSocketSubject,
}

const CODECS: Partial<Record<SubjectName, (benchCase: CodecCase) => Promise<Subject>>> = {
  orbweaver: orbweaverCodec,
  'orbweaver, own buffer': ownBufferCodec,
  msgpackr: msgpackrCodec,
  'msgpack-lite': msgpackLiteCodec,
}

/** Sets a subject up for a case. @throws Error for a case it has no part in */
export function makeSubject(name: SubjectName): SubjectMaker {
  return (benchCase: BenchCase, port: number): Promise<Subject> => {
    const made = benchCase.kind === 'wire' ? CLIENTS[name]?.(benchCase, port) : CODECS[name]?.(benchCase)
    if (made === undefined) throw new Error(`${name} has no part in ${benchCase.id}`)
    return made
  }
}
