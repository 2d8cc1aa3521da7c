/* Tarantool itself as a client: a Lua script with net.box, whose printed JSON lines a test reads. */
import { execFile, spawnSync } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'

/** `TARANTOOL`, or the one on the path. */
const BINARY: string = process.env['TARANTOOL'] ?? 'tarantool'

/** Why there is no Lua client here, in words for a skipped test; undefined when there is one. */
export function missingLuaClient(): string | undefined {
  const found = spawnSync(BINARY, ['-v'], { encoding: 'utf8' })
  return found.error === undefined && found.status === 0 ? undefined : `no tarantool to run as a client (${BINARY})`
}

/**
 * Runs a script; what it gives to `show(...)` comes back, one list per call. `net` is net.box.
 * @throws Error with the script's output when it fails or takes longer than 20 seconds
 */
export async function runLua(script: string): Promise<unknown[][]> {
  const dir = await mkdtemp(join(tmpdir(), 'orbweaver-lua-'))
  try {
    const file = join(dir, 'client.lua')
    await writeFile(file, `${PRELUDE}\n${script}\nos.exit(0)\n`)
    const { stdout } = await promisify(execFile)(BINARY, [file], { cwd: dir, timeout: 20_000 })
    return stdout
      .split('\n')
      .filter((line) => line.startsWith(MARK))
      .map((line) => JSON.parse(line.slice(MARK.length)) as unknown[])
  } finally {
    await rm(dir, { recursive: true, force: true })
  }
}

const MARK = '##'
const PRELUDE = `
local json = require('json')
net = require('net.box')
function show(...) print('${MARK}' .. json.encode({...})) end
-- what a failing call says: false, code, message
function try(f, ...)
  local ok, result = pcall(f, ...)
  if ok then return true, result end
  return false, type(result) == 'cdata' and result.code or 0, tostring(result)
end`
