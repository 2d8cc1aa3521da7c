#!/usr/bin/env node
/* orbweaver-cluster: a sharded cluster on this machine, and commands to it. Exit codes: 0 done, 1 failed, 2 wrong use. */
import { ConfigError } from '@orbweaver/iproto'
import { readClusterFile } from './cluster-file.js'
import { askControl } from './control.js'
import { statusOf } from './status.js'
import { up } from './up.js'
import { HELP, readUsage, UsageError } from './usage.js'

const stop = new AbortController()

async function main(args: readonly string[]): Promise<void> {
  const usage = readUsage(args)
  if (usage === 'help') return say(HELP)
  if (usage.command === 'up') {
    for (const name of ['SIGINT', 'SIGTERM'] as const) process.on(name, () => stop.abort(new Error('Interrupted')))
    return up(usage, say, stop.signal)
  }
  const { topology, control } = await readClusterFile(usage.file)
  if (usage.command === 'status') return say(await statusOf(topology))
  if (control === undefined)
    throw new UsageError(
      `The cluster of ${usage.file} was not started by \`orbweaver-cluster up\`: it takes no commands`,
    )
  say(await askControl(control, usage))
}

function say(text: string): void {
  process.stdout.write(`${text}\n`)
}

try {
  await main(process.argv.slice(2))
} catch (error) {
  if (stop.signal.aborted) {
    process.exitCode = 130
  } else {
    process.stderr.write(`${(error as Error).message}\n`)
    process.exitCode = error instanceof UsageError || error instanceof ConfigError ? 2 : 1
  }
}
