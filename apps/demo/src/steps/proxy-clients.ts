import { connect } from '@orbweaver/connection'
import { duration, grouped, now } from '../printer.js'
import type { Printer } from '../printer.js'
import type { World } from '../world.js'

export interface ProxyResult {
  readonly clients: number
  readonly requests: number
}

const CLIENTS = 8
const REQUESTS = 100

/** Clients that know one address and nothing of instances, while the master behind it is changed by hand. */
export async function proxyClients(
  { cluster, proxy, proxyAddress }: World,
  printer: Printer,
): Promise<{ ok: boolean; result: ProxyResult }> {
  printer.title('Clients that know only the proxy')
  const { user, password } = cluster.config
  const [replicaset] = cluster.config.replicasets
  const clients = await Promise.all(
    Array.from({ length: CLIENTS }, () => connect({ uri: proxyAddress, user, password })),
  )
  try {
    const started = now()
    let wrong = 0
    let done = 0
    const run = async (client: (typeof clients)[number], number: number): Promise<void> => {
      for (let i = 0; i < REQUESTS; i++) {
        const id = 1_000_000_000 + number * REQUESTS + i
        const [answer] = await client.call<[unknown]>('visit.add', [id, 0, number])
        const [row] = await client.select<[number, number, number]>('visit', [id])
        if (answer !== true || row?.[2] !== number) wrong++
        done += 2
      }
    }
    const running = Promise.all(clients.map(run))
    const next = cluster.instances.find(
      (instance) => instance.replicasetId === replicaset!.id && instance !== cluster.masterOf(replicaset!.id),
    )
    if (next !== undefined) {
      const report = await proxy.failOverTo(next.name, { promote: () => next.promote() })
      printer.say(
        `In the middle of it: failOverTo('${next.name}') took ${duration(report.ms)}, requests waited and went on there`,
      )
    }
    await running
    printer.say(
      `${CLIENTS} clients sent ${grouped(done)} requests through ${proxy.stats().lanes} connections to the cluster: ${duration(now() - started)}, ${wrong} wrong answers`,
    )
    return { ok: wrong === 0, result: { clients: CLIENTS, requests: done } }
  } finally {
    for (const client of clients) client.destroy()
  }
}
