#!/usr/bin/env node
/* orbweaver-proxy --config FILE: a proxy from a configuration file, which SIGHUP reads again; ended by SIGTERM or SIGINT. */
import { subscribe } from 'node:diagnostics_channel'
import { readFileSync } from 'node:fs'
import { dirname, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { formatAddress, type LogRecord } from '@orbweaver/connection'
import { ConfigError } from '@orbweaver/iproto'
import { type Logger, pino } from 'pino'
import { type FileConfig, readConfig } from './config.js'
import { CHANNELS } from './diagnostics.js'
import { createProxy, type Proxy } from './proxy.js'
import type { ReconfigurationReport } from './reconfiguration.js'

const USAGE = `Usage: orbweaver-proxy --config FILE [--check]

  --config FILE   configuration in YAML or JSON: listen, targets, rw, ro, credentials, admin, …
  --check         only check the configuration, and say what is wrong with it
  --help          this text

SIGHUP (or POST /reload on the admin port) reads the file again: what differs is changed without dropping clients, and a file
that is not right changes nothing. SIGTERM or SIGINT ends the proxy when its clients have finished, a second one at once.`

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
  const file = values.config
  if (file === undefined) throw new UsageError(`Give a configuration file with --config\n\n${USAGE}`)
  const { options, logLevel } = read(file)
  const logger = pino({ level: logLevel, ...LOG_FORM })
  const reload = async (): Promise<ReconfigurationReport> => {
    const next = read(file)
    const report = await proxy.reconfigure(withReload(next, reload).options)
    logger.level = next.logLevel
    return report
  }
  const proxy = createProxy(withReload({ options, logLevel }, reload).options)
  if (values.check === true) {
    console.log(`${file} is right`)
    return 0
  }
  writeLog(logger)
  await proxy.listen()
  const { adminAddress } = proxy
  const admin = adminAddress === undefined ? undefined : formatAddress(adminAddress)
  logger.info({ event: 'listening', addresses: proxy.addresses.map(formatAddress), admin, rw: options.rw })
  process.on('SIGHUP', () => reloadInPassing(reload, logger))
  endOnSignals(proxy, logger)
  return undefined
}

class UsageError extends Error {}

function read(file: string): FileConfig {
  return readConfig(readFileSync(file, 'utf8'), (path) => readFileSync(resolve(dirname(file), path), 'utf8'))
}

function withReload(config: FileConfig, reload: () => Promise<ReconfigurationReport>): FileConfig {
  const { options } = config
  return options.admin === undefined
    ? config
    : { ...config, options: { ...options, admin: { ...options.admin, reload } } }
}

/** A file that is not right is told, and everything stays as it is. */
function reloadInPassing(reload: () => Promise<ReconfigurationReport>, logger: Logger): void {
  reload().then(
    ({ changes }) => logger.info({ event: 'reloaded', changes }),
    (error: unknown) => {
      const problems = error instanceof ConfigError ? error.problems : undefined
      logger.error({ event: 'reload_failed', why: error instanceof Error ? error.message : String(error), problems })
    },
  )
}

/** The first signal lets clients finish, the second does not. */
function endOnSignals(proxy: Proxy, logger: Logger): void {
  let isEnding = false
  const end = (signal: NodeJS.Signals): void => {
    if (isEnding) process.exit(1)
    isEnding = true
    logger.info({ event: 'ending', signal })
    proxy.close().then(
      () => process.exit(0),
      (error: unknown) => fail(error),
    )
  }
  process.on('SIGTERM', end)
  process.on('SIGINT', end)
}

/** One JSON object a line: `ts`, `level`, `event`, and what belongs to the event. */
const LOG_FORM = {
  base: null,
  timestamp: (): string => `,"ts":"${new Date().toISOString()}"`,
  formatters: { level: (level: string): object => ({ level }) },
}

function writeLog(logger: Logger): void {
  subscribe(CHANNELS.log, (message) => {
    const { level, ...details } = message as LogRecord
    logger[level](details)
  })
}

function fail(error: unknown): void {
  const isUsage = error instanceof UsageError || error instanceof ConfigError || isSystemError(error)
  console.error(error instanceof ConfigError ? describe(error) : error instanceof Error ? error.message : String(error))
  process.exit(isUsage ? EXIT_USAGE : 1)
}

function describe(error: ConfigError): string {
  const lines = error.problems.map(({ path, message }) => `  ${path === '' ? 'the file' : path} ${message}`)
  return ['The configuration is not right:', ...lines].join('\n')
}

/** A file that cannot be read, a port in use, an option that does not exist. */
function isSystemError(error: unknown): boolean {
  return error instanceof Error && 'code' in error
}

main().then((code) => {
  if (code !== undefined) process.exitCode = code
}, fail)
