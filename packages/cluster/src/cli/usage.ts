/* The command line of orbweaver-cluster. Whatever is wrong with it is one sentence and exit code 2. */
import { parseArgs } from 'node:util'
import type { ParseArgsConfig } from 'node:util'

/** Wrong use: said in one sentence, exit code 2. */
export class UsageError extends Error {}

export const HELP = `Usage: orbweaver-cluster COMMAND [options]

A sharded cluster on this machine. \`up\` starts it and stays until Ctrl-C; the other commands,
from another terminal, talk to it through its file.

  up                    start a cluster
    --replicasets N     default 2
    --instances N       instances of each replicaset, default 2
    --buckets N         default 3000
    --engine NAME       embedded (default: nothing to install) or tarantool (TARANTOOL and VSHARD_LUA say where)
    --identification I  uuid (default) or name: what errors and results call instances
    --first-port N      the first of a row of ports; default: free ones
    --set-up FILE       a module that exports setUp(storage, instance): functions of embedded storages
    --lua FILE          Lua that every Tarantool runs once it is configured
  status                instances, masters, buckets
  promote INSTANCE      make it the master of its replicaset
  kill INSTANCE         end it as kill -9 does
  stop INSTANCE         end it in order
  restart INSTANCE      start it again
  freeze INSTANCE       stop it from doing anything, its sockets stay open
  thaw INSTANCE         let it go on
  add                   start one more replicaset, which the rebalancer gives its share of buckets
  weight REPLICASET N   how many buckets it gets beside the others
  drain REPLICASET      weight 0: the rebalancer empties it
  down                  end the cluster

  --file PATH           where the cluster is written down, default ./orbweaver-cluster.json
  --help                this text`

const DEFAULT_FILE = 'orbweaver-cluster.json'

/** What each command takes behind its name. */
const ARGUMENTS: Readonly<Record<string, readonly string[]>> = {
  up: [],
  status: [],
  promote: ['INSTANCE'],
  kill: ['INSTANCE'],
  stop: ['INSTANCE'],
  restart: ['INSTANCE'],
  freeze: ['INSTANCE'],
  thaw: ['INSTANCE'],
  add: [],
  weight: ['REPLICASET', 'N'],
  drain: ['REPLICASET'],
  down: [],
}

const COMMON: ParseArgsConfig['options'] = { file: { type: 'string' }, help: { type: 'boolean', short: 'h' } }
const OF_UP: ParseArgsConfig['options'] = {
  replicasets: { type: 'string' },
  instances: { type: 'string' },
  buckets: { type: 'string' },
  engine: { type: 'string' },
  identification: { type: 'string' },
  'first-port': { type: 'string' },
  'set-up': { type: 'string' },
  lua: { type: 'string' },
}

export interface Usage {
  readonly command: string
  /** Behind the command. */
  readonly args: readonly string[]
  readonly file: string
  /** Of `up`, by their names on the command line. */
  readonly options: Readonly<Record<string, string>>
}

/** @throws UsageError */
export function readUsage(args: readonly string[]): Usage | 'help' {
  const [command, ...rest] = args
  if (command === undefined || command === '--help' || command === '-h') return 'help'
  const wanted = ARGUMENTS[command]
  if (wanted === undefined)
    throw new UsageError(`'${command}' is no command: expected ${Object.keys(ARGUMENTS).join(', ')}; see --help`)
  const { values, positionals } = parse(rest, { ...COMMON, ...(command === 'up' ? OF_UP : {}) })
  if (values['help'] === true) return 'help'
  if (positionals.length !== wanted.length) {
    const expected = wanted.length === 0 ? 'nothing' : wanted.join(' ')
    throw new UsageError(`'${command}' takes ${expected} behind it, got ${positionals.join(' ') || 'nothing'}`)
  }
  const { file = DEFAULT_FILE, ...options } = values as Record<string, string>
  return { command, args: positionals, file, options }
}

function parse(args: readonly string[], options: ParseArgsConfig['options']): ReturnType<typeof parseArgs> {
  try {
    return parseArgs({ args: [...args], strict: true, allowPositionals: true, options: options ?? {} })
  } catch (error) {
    if (!(error instanceof TypeError)) throw error
    throw new UsageError(`${error.message.split('\n')[0]!.replace(/\.$/, '')}; see --help`, { cause: error })
  }
}

/** A whole number of an option; undefined when it is not given. @throws UsageError */
export function wholeNumber(options: Usage['options'], name: string): number | undefined {
  const text = options[name]
  if (text === undefined) return undefined
  if (!/^\d{1,9}$/.test(text)) throw new UsageError(`--${name} is '${text}', expected a whole number`)
  return Number(text)
}
