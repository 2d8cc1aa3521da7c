/** The command line of the benchmarks. */
import { parseArgs } from 'node:util'

export interface BenchOptions {
  readonly cases: RegExp
  readonly rounds: number
  readonly seconds: number
  readonly json: boolean
  /** Folder for CPU profiles; undefined: none are taken. */
  readonly profile: string | undefined
  readonly help: boolean
}

/** A command line that cannot be understood; its message is for the user. */
export class UsageError extends Error {}

/** @throws UsageError naming the flag at fault */
export function parseOptions(args: readonly string[]): BenchOptions {
  let values
  try {
    values = parseArgs({
      args: [...args],
      options: {
        cases: { type: 'string' },
        rounds: { type: 'string' },
        seconds: { type: 'string' },
        json: { type: 'boolean', default: false },
        profile: { type: 'string' },
        help: { type: 'boolean', short: 'h', default: false },
      },
    }).values
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message : String(error))
  }
  const rounds = number('--rounds', values.rounds, DEFAULT_ROUNDS)
  if (!Number.isInteger(rounds) || rounds < 1)
    throw new UsageError(`--rounds is ${rounds}, expected a whole number from 1 on`)
  const seconds = number('--seconds', values.seconds, DEFAULT_SECONDS)
  if (!(seconds > 0 && seconds <= 600))
    throw new UsageError(`--seconds is ${seconds}, expected more than 0 and at most 600`)
  return {
    cases: pattern(values.cases ?? ''),
    rounds,
    seconds,
    json: values.json,
    profile: values.profile,
    help: values.help,
  }
}

function number(flag: string, text: string | undefined, otherwise: number): number {
  if (text === undefined) return otherwise
  const value = Number(text)
  if (text.trim() === '' || Number.isNaN(value)) throw new UsageError(`${flag} is "${text}", expected a number`)
  return value
}

function pattern(text: string): RegExp {
  try {
    return new RegExp(text)
  } catch (error) {
    throw new UsageError(
      `--cases is not a regular expression: ${error instanceof Error ? error.message : String(error)}`,
    )
  }
}

const DEFAULT_ROUNDS = 5
const DEFAULT_SECONDS = 0.8

/** @param caseLines - one line for each case */
export function helpText(caseLines: readonly string[]): string {
  return `Usage: npm run bench -- [options]

Measures the packages side by side with what they are to be compared with, in one run: the connection beside the npm
package tarantool-driver and a raw socket that sends ready-made frames and decodes nothing; the codec beside msgpackr and
msgpack-lite; a replicaset beside its connection; the embedded storage beside Tarantool; the router beside vshard's in Lua.

  --cases REGEX    only the cases whose name matches; all by default
  --rounds N       rounds of each subject, taken in turns (default ${DEFAULT_ROUNDS})
  --seconds S      length of a round (default ${DEFAULT_SECONDS}); from 7 rounds of 1.5 s on, ratios can be trusted to about 1.25
  --json           print one JSON object instead of tables
  --profile DIR    write a CPU profile of each subject and case into DIR (for the tools of a browser)
  --help           this text

TARANTOOL=/path names the server's program; without it, tarantool of the PATH. VSHARD_LUA=/dir holds vshard/init.lua for
the cases of routers. Cases that need what is not there are left out, and named.

Cases:
${caseLines.map((line) => `  ${line}`).join('\n')}
`
}
