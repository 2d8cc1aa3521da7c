/* What the proxy tells whoever listens. No object is made for a channel without subscribers; nothing is printed. */
import { channel } from 'node:diagnostics_channel'
import type { FailoverStep } from './failover.js'

/** One step of a change of the master. */
export interface FailoverMessage {
  readonly step: FailoverStep
  readonly from: string | undefined
  readonly to: string
  readonly epoch: number
}

const failovers = channel('orbweaver:proxy:failover')
const logs = channel('orbweaver:log')

export function publishFailover(message: FailoverMessage): void {
  if (failovers.hasSubscribers) failovers.publish(message)
  publishLog('info', 'failover', { ...message })
}

export function publishLog(
  level: 'debug' | 'info' | 'warn' | 'error',
  event: string,
  details: Readonly<Record<string, unknown>>,
): void {
  if (logs.hasSubscribers) logs.publish({ level, package: 'proxy', event, ...details })
}
