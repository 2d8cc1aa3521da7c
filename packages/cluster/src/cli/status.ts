/* What the instances of a cluster say of themselves, as a table. Asked directly, so it works for any topology file. */
import { connect } from '@orbweaver/connection'
import { bucketsCountCall, infoCall, readBucketsCount, readInfo } from '@orbweaver/vshard'
import type { ClusterConfig, InstanceConfig } from '@orbweaver/vshard'

interface Line {
  readonly replicaset: string
  readonly instance: string
  readonly uri: string
  readonly state: string
  readonly buckets: string
}

export async function statusOf(config: ClusterConfig): Promise<string> {
  const lines = await Promise.all(
    config.replicasets.flatMap((set) => set.instances.map((instance) => lineOf(config, set.name ?? set.id, instance))),
  )
  return table(lines)
}

async function lineOf(config: ClusterConfig, replicaset: string, instance: InstanceConfig): Promise<Line> {
  const line = { replicaset, instance: instance.name ?? instance.id, uri: instance.uri }
  try {
    const { user, password } = config
    const connection = await connect({ uri: instance.uri, user, password, reconnect: false, connectTimeoutMs: ASK_MS })
    try {
      const info = infoCall()
      const reply = readInfo(await connection.call(info.name, info.args, { timeout: ASK_MS }))
      if (!reply.ok) return { ...line, state: reply.error.message, buckets: '' }
      if (!reply.value.isMaster) return { ...line, state: 'replica', buckets: '' }
      const count = bucketsCountCall()
      const counted = readBucketsCount(await connection.call(count.name, count.args, { timeout: ASK_MS }))
      return { ...line, state: 'master', buckets: counted.ok ? String(counted.value) : counted.error.message }
    } finally {
      connection.destroy()
    }
  } catch (error) {
    return { ...line, state: `away: ${(error as Error).message}`, buckets: '' }
  }
}

function table(lines: readonly Line[]): string {
  const titles: Line = {
    replicaset: 'replicaset',
    instance: 'instance',
    uri: 'uri',
    state: 'state',
    buckets: 'buckets',
  }
  const columns = ['replicaset', 'instance', 'uri', 'buckets', 'state'] as const
  const widths = columns.map((column) => Math.max(...[titles, ...lines].map((line) => line[column].length)))
  return [titles, ...lines]
    .map((line) =>
      columns
        .map((column, i) => line[column].padEnd(widths[i]!))
        .join('  ')
        .trimEnd(),
    )
    .join('\n')
}

const ASK_MS = 1_000
