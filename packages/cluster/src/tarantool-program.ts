/* Which Tarantool there is on this machine, and whether it has vshard. */
import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { join } from 'node:path'

export interface TarantoolProgram {
  /** Path or name of the program. */
  readonly program: string
  /** `[3, 2]`. */
  readonly version: readonly [major: number, minor: number]
  /** The folder that holds `vshard/`; undefined: Tarantool finds the module by itself. */
  readonly vshardPath: string | undefined
  /** False: masters by read-only flags also where there are elections. */
  readonly elections?: boolean
}

export interface TarantoolPlaces {
  /** Default: the environment's `TARANTOOL`, else `tarantool` of the PATH. */
  readonly program?: string
  /** The folder that holds vshard's Lua sources (`vshard/init.lua`). Default: the environment's `VSHARD_LUA`, else Tarantool's own search. */
  readonly vshardPath?: string
  /** Default: where the server has them. False beside instances that have none: masters are made by read-only flags then. */
  readonly elections?: boolean
}

/** The program, or why it cannot be used, as a sentence that says what to do. */
export function findTarantool(places: TarantoolPlaces = {}, needsVshard = true): TarantoolProgram | string {
  const program = places.program ?? process.env['TARANTOOL'] ?? 'tarantool'
  const { stdout, status } = spawnSync(program, ['--version'], { encoding: 'utf8', timeout: 10_000 })
  const found = status === 0 ? /^Tarantool(?: Enterprise)? (\d+)\.(\d+)\./m.exec(stdout) : null
  if (found === null) {
    return `"${program}" cannot be run as a Tarantool: install one (Debian: apt-get install tarantool) or set TARANTOOL to its path`
  }
  const version = [Number(found[1]), Number(found[2])] as const
  const vshardPath = places.vshardPath ?? process.env['VSHARD_LUA']
  const what = {
    program,
    version,
    vshardPath,
    ...(places.elections === undefined ? {} : { elections: places.elections }),
  }
  if (!needsVshard) return what
  if (vshardPath !== undefined) {
    if (existsSync(join(vshardPath, 'vshard', 'init.lua'))) return what
    return `${vshardPath} holds no vshard/init.lua: set VSHARD_LUA to the folder with the sources of tarantool/vshard`
  }
  // Whatever happens it must end by itself: after an error in `-e`, Tarantool 2.6.0 stays with its event loop.
  const look = "os.exit(pcall(require, 'vshard') and 0 or 1)"
  const own = spawnSync(program, ['-e', look], { stdio: 'ignore', timeout: 10_000, killSignal: 'SIGKILL' })
  if (own.status === 0) return what
  return 'Tarantool has no module vshard here: set VSHARD_LUA to the folder with the sources of tarantool/vshard'
}

/** Whether the server has elections with terms (`box.ctl.promote`), instead of read-only flags alone. */
export function hasElections({ version: [major, minor], elections = true }: TarantoolProgram): boolean {
  return elections && (major > 2 || (major === 2 && minor >= 10))
}

/** Whether it must be told how a replicaset begins (`bootstrap_strategy`). */
export function hasStrategies({ version: [major, minor] }: TarantoolProgram): boolean {
  return major > 2 || (major === 2 && minor >= 11)
}
