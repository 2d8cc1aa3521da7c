import type { InstanceView } from './instance-view.js'

/** Something an operator should see, as long as it lasts. */
export interface Alert {
  readonly code:
    | 'conflict'
    | 'stale_claim_accepted'
    | 'configured_master_read_only'
    | 'misidentified'
    | 'claims_and_refuses'
    | 'role_unknown'
  readonly message: string
  readonly instances: readonly string[]
}

export interface AlertContext {
  readonly conflict: readonly string[]
  readonly maxTerm: number
  readonly configured: string | undefined
  readonly nowMs: number
}

/** What an operator should see now. */
export function lastingAlerts(
  instances: readonly { readonly id: string; readonly view: InstanceView }[],
  { conflict, maxTerm, configured, nowMs }: AlertContext,
): Alert[] {
  const alerts: Alert[] = []
  if (conflict.length > 0) alerts.push(conflictAlert(conflict))
  for (const { id, view } of instances) {
    const { misidentified, liesUntilMs, state, sinceMs, ro, staleAccepted, unknownReason } = view
    if (staleAccepted) alerts.push(staleAlert(id, view.term, maxTerm))
    if (id === configured && ro === true) alerts.push(readOnlyAlert(id))
    if (misidentified !== undefined) {
      alerts.push({ code: 'misidentified', message: `${id} ${misidentified}`, instances: [id] })
    }
    if (nowMs < liesUntilMs) alerts.push(liarAlert(id))
    if (state === 'up' && ro === undefined && nowMs - sinceMs > UNKNOWN_ALERT_MS) {
      const message = `The role of ${id} is not known: ${unknownReason ?? 'it says nothing'}`
      alerts.push({ code: 'role_unknown', message, instances: [id] })
    }
  }
  return alerts
}

export function conflictAlert(ids: readonly string[]): Alert {
  return {
    code: 'conflict',
    message: `Several instances are writable with the same right: ${ids.join(', ')}`,
    instances: ids,
  }
}

export function staleAlert(id: string, term: number | undefined, maxTerm: number): Alert {
  const message = `${id} is the only writable instance although its term ${String(term)} is older than ${String(maxTerm)}, which somebody has seen`
  return { code: 'stale_claim_accepted', message, instances: [id] }
}

function readOnlyAlert(id: string): Alert {
  return { code: 'configured_master_read_only', message: `The configured master ${id} is read-only`, instances: [id] }
}

export function liarAlert(id: string): Alert {
  return { code: 'claims_and_refuses', message: `${id} says that it is writable and refuses writes`, instances: [id] }
}

const UNKNOWN_ALERT_MS = 5_000
