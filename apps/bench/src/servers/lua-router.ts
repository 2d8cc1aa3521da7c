/** The router of vshard itself, in a Tarantool of its own. */
import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { announcedPort } from './announced-port.js'

/** @param config - as `vshard.router.cfg` takes it. It ends with this process. @throws Error with what it said */
export async function startLuaRouter(config: Record<string, unknown>): Promise<{ port: number }> {
  const dir = mkdtempSync(join(tmpdir(), 'orbweaver-bench-'))
  const file = join(dir, 'router.json')
  writeFileSync(file, JSON.stringify({ dir, config, vshard_path: process.env['VSHARD_LUA'] }))
  const script = fileURLToPath(new URL('../../src/lua/router.lua', import.meta.url))
  const child = spawn(process.env['TARANTOOL'] ?? 'tarantool', [script, file], { stdio: ['pipe', 'pipe', 'pipe'] })
  process.once('exit', () => {
    child.kill('SIGKILL')
    rmSync(dir, { recursive: true, force: true })
  })
  return { port: await announcedPort(child) }
}
