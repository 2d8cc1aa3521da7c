#!/usr/bin/env node
/* orbweaver-proxy --config FILE: a proxy from a configuration file, ended by SIGTERM or SIGINT. */
import { subscribe } from 'node:diagnostics_channel'
import { readFile } from 'node:fs/promises'
import { parseArgs } from 'node:util'
import { formatAddress } from '@orbweaver/connection'
import { ConfigError } from '@orbweaver/iproto'
import { readConfig } from './config.js'
import { createProxy, type Proxy } from './proxy.js'

const USAGE = `Usage: orbweaver-proxy --config FILE [--check]

  --config FILE   configuration in JSON: listen, targets, rw, ro, credentials, …
  --check         only check the configuration, and say what is wrong with it
  --help          this text`

/** What was asked for makes no sense. */
const EXIT_USAGE = 2

async function main(): Promise<number | undefined> {
  const { values } = parseArgs({
    options: { config: { type: 'string' }, check: { type: 'boolean' }, help: { type: 'boolean' } },
  })
  if (values.help === true) {
    console.log(USAGE)
    return 0
  }
  if (values.config === undefined) throw new UsageError(`Give a configuration file with --config\n\n${USAGE}`)
  const options = readConfig(await readFile(values.config, 'utf8'))
  const proxy = createProxy(options)
  if (values.check === true) {
    console.log(`${values.config} is right`)
    return 0
  }
  writeLog()
  await proxy.listen()
  log('info', 'listening', { addresses: (options.listen ?? []).map(formatAddress), rw: options.rw })
  endOnSignals(proxy)
  return undefined
}

class UsageError extends Error {}

/** The first signal lets clients finish, the second does not. */
function endOnSignals(proxy: Proxy): void {
  let isEnding = false
  const end = (signal: NodeJS.Signals): void => {
    if (isEnding) process.exit(1)
    isEnding = true
    log('info', 'ending', { signal })
    proxy.close().then(
      () => process.exit(0),
      (error: unknown) => fail(error),
    )
  }
  process.on('SIGTERM', end)
  process.on('SIGINT', end)
}

/** One JSON object a line. */
function writeLog(): void {
  subscribe('orbweaver:log', (message) => {
    const { level, event, ...details } = message as { level: string; event: string }
    if (level !== 'debug') log(level, event, details)
  })
}

function log(level: string, event: string, details: Readonly<Record<string, unknown>>): void {
  console.log(JSON.stringify({ ts: new Date().toISOString(), level, event, ...details }))
}

function fail(error: unknown): void {
  const isUsage = error instanceof UsageError || error instanceof ConfigError || isSystemError(error)
  console.error(error instanceof ConfigError ? describe(error) : error instanceof Error ? error.message : String(error))
  process.exit(isUsage ? EXIT_USAGE : 1)
}

function describe(error: ConfigError): string {
  return ['The configuration is not right:', ...error.problems.map(({ path, message }) => `  ${path} ${message}`)].join(
    '\n',
  )
}

/** A file that cannot be read, a port in use, an option that does not exist. */
function isSystemError(error: unknown): boolean {
  return error instanceof Error && 'code' in error
}

main().then((code) => {
  if (code !== undefined) process.exitCode = code
}, fail)
