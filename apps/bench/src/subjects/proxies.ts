/** Proxies as subjects: each a process of its own before the shared server, with raw sockets as its clients. */
import type { SubjectName } from '../cases/bench-case.js'
import type { ProxyCase } from '../cases/proxy.js'
import { startFront, startHaproxy } from '../servers/front-process.js'
import { cpuOf } from '../servers/measured-server.js'
import { rawSubject } from './raw-socket.js'
import type { Subject } from './subject.js'

const FRONTS: Partial<Record<SubjectName, (serverPort: number) => Promise<{ pid: number; port: number } | undefined>>> =
  {
    proxy: (serverPort) => startFront(process.argv[1]!, 'proxy', serverPort),
    'socket pipe': (serverPort) => startFront(process.argv[1]!, 'pipe', serverPort),
    HAProxy: startHaproxy,
    'no proxy': () => Promise.resolve(undefined),
  }

/** @param port - of the server behind it. @throws Error for a subject that is no proxy */
export async function proxySubject(name: SubjectName, benchCase: ProxyCase, port: number): Promise<Subject> {
  const start = FRONTS[name]
  if (start === undefined) throw new Error(`${name} has no part in ${benchCase.id}`)
  const front = await start(port)
  const { sockets, depth } = benchCase
  if (front === undefined) return rawSubject({ operation: 'select', port, sockets, depth })
  return rawSubject({ operation: 'select', port: front.port, sockets, depth, cpuNow: () => cpuOf(front.pid) })
}
