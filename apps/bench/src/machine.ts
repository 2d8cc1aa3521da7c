import { arch, cpus, loadavg, release } from 'node:os'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'

/** What a figure depends on beside the code. */
export interface Machine {
  readonly cpu: string
  readonly cores: number
  readonly system: string
  readonly node: string
  /** Of the last minute, when the run began and when it ended. */
  readonly load: readonly [before: number, after: number]
  /** Of what is compared with. */
  readonly versions: Readonly<Record<string, string>>
  /** undefined: there was none. */
  readonly server: string | undefined
}

export function describeMachine(loadBefore: number, server: string | undefined): Machine {
  const [first, ...others] = cpus()
  const megahertz = cpuMegahertz() ?? first?.speed ?? 0
  return {
    cpu: `${first?.model.trim() ?? 'unknown'}, ${(megahertz / 1_000).toFixed(1)} GHz`,
    cores: others.length + 1,
    system: `${process.platform} ${release()} ${arch()}`,
    node: process.version,
    load: [loadBefore, currentLoad()],
    versions: {
      'tarantool-driver': versionOf('tarantool-driver'),
      msgpackr: versionOf('msgpackr'),
    },
    server,
  }
}

export function currentLoad(): number {
  return loadavg()[0]!
}

/** Node reports 0 for some virtual machines. */
function cpuMegahertz(): number | undefined {
  try {
    const text = readFileSync('/proc/cpuinfo', 'utf8')
    const megahertz = /^cpu MHz\s*:\s*([\d.]+)/m.exec(text)?.[1]
    return megahertz === undefined ? undefined : Number(megahertz)
  } catch (error) {
    if (error instanceof Error && 'code' in error) return undefined // no such file: not Linux
    throw error
  }
}

/** Of the installed package. Its `package.json` may be closed to imports, so it is read as a file beside its entry. */
function versionOf(name: string): string {
  const entry = createRequire(import.meta.url).resolve(name)
  const folder = entry.slice(0, entry.lastIndexOf(join('node_modules', name)) + join('node_modules', name).length)
  return (JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as { version: string }).version
}
