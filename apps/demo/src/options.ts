/* The command line of the demo. Whatever is wrong with it is one sentence and exit code 2. */
import { parseArgs } from 'node:util'

export interface DemoOptions {
  /** `show` stays up after its story, `once` ends with it, `idle` brings the cluster up and waits. */
  readonly mode: 'show' | 'once' | 'idle'
  readonly isJson: boolean
  readonly engine: 'embedded' | 'tarantool'
  /** Where the topology file goes. */
  readonly topologyFile: string | undefined
  readonly replicasets: number
  readonly instances: number
  readonly bucketCount: number
  /** The proxy's port comes first, the instances' follow; undefined: whichever are free. */
  readonly port: number | undefined
}

/** Wrong use or a missing means: said in one sentence, exit code 2. */
export class UsageError extends Error {}

export const HELP = `Usage: npm start -- [options]

Starts a sharded cluster on this machine, spreads the places of the world over it, and shows
what it does: reads by bucket, consistent map-reduce, a proxy, a failover without errors.

  --once              run the story, check every answer, end with 0 when all were right, 1 otherwise
  --idle              bring the cluster up with its data and a proxy, and wait
  --json              the last line of standard output is one JSON object with the results
  --engine NAME       embedded (default, nothing to install) or tarantool: real Tarantool with vshard; TARANTOOL is the
                      path of the program, VSHARD_LUA the folder with vshard's sources
  --topology FILE     write where everything is, as JSON, once all is up
  --replicasets N     default 3
  --instances N       instances of each replicaset, default 3
  --buckets N         default 3000
  --port N            first of the ports to use: the proxy's, then the instances'; default: free ones
  --help

Without --once and --idle the cluster stays up after the story, until Ctrl-C.`

/** @throws UsageError */
export function readOptions(args: readonly string[]): DemoOptions | 'help' {
  const values = parse(args)
  if (values['help'] === true) return 'help'
  const isOnce = values['once'] === true
  const isIdle = values['idle'] === true
  if (isOnce && isIdle)
    throw new UsageError('--once and --idle exclude each other: --once ends by itself, --idle waits')
  const topologyFile = values['topology']
  if (topologyFile === '') throw new UsageError('--topology needs the path of a file')
  return {
    mode: isOnce ? 'once' : isIdle ? 'idle' : 'show',
    isJson: values['json'] === true,
    engine: engineNamed(values['engine']),
    topologyFile: typeof topologyFile === 'string' ? topologyFile : undefined,
    replicasets: count(values['replicasets'], '--replicasets', 3, 16),
    instances: count(values['instances'], '--instances', 3, 9),
    bucketCount: count(values['buckets'], '--buckets', 3_000, 1_000_000),
    port: values['port'] === undefined ? undefined : count(values['port'], '--port', 0, 65_535),
  }
}

function parse(args: readonly string[]): Record<string, string | boolean | undefined> {
  try {
    return parseArgs({
      args: [...args],
      strict: true,
      allowPositionals: false,
      options: {
        once: { type: 'boolean' },
        idle: { type: 'boolean' },
        json: { type: 'boolean' },
        engine: { type: 'string' },
        help: { type: 'boolean', short: 'h' },
        topology: { type: 'string' },
        replicasets: { type: 'string' },
        instances: { type: 'string' },
        buckets: { type: 'string' },
        port: { type: 'string' },
      },
    }).values
  } catch (error) {
    if (!(error instanceof TypeError)) throw error
    throw new UsageError(`${error.message.split('\n')[0]!.replace(/\.$/, '')}; see --help`, { cause: error })
  }
}

function engineNamed(given: string | boolean | undefined): DemoOptions['engine'] {
  if (given === undefined || given === 'embedded') return 'embedded'
  if (given === 'tarantool') return given
  throw new UsageError(`--engine is '${given}', expected embedded or tarantool`)
}

function count(given: string | boolean | undefined, option: string, otherwise: number, most: number): number {
  if (given === undefined) return otherwise
  const text = String(given)
  const value = Number(text)
  if (!/^\d+$/.test(text) || value < 1 || value > most) {
    throw new UsageError(`${option} is '${text}', expected a whole number from 1 to ${most}`)
  }
  return value
}
