import type { Executed } from './errors.js'

/**
 * What kind of request it is, as far as retries are concerned: `read` (SELECT, PING), `dml` (INSERT …), `code` (CALL, EVAL),
 * `sql` (EXECUTE, PREPARE), `transaction` (BEGIN, COMMIT, ROLLBACK), `session` (ID, AUTH), `watch`.
 */
export type RequestClass = 'read' | 'dml' | 'code' | 'sql' | 'transaction' | 'session' | 'watch'

/** Refused before anything ran: malformed, unknown, wrong schema version, stream rules, login, not configured, shutting down. */
const NEVER_RAN: ReadonlySet<number> = new Set([20, 48, 69, 109, 229, 230, 258, 274, 279])

/** Refused by the instance or by rights, which for a single statement means that nothing happened. */
const STATEMENT_REFUSED: ReadonlySet<number> = new Set([7, 35, 36, 42, 116, 148, 226, 227, 228])

/** Codes that user code raises as well when a server it called refused, or when it lost one: they prove nothing. */
const CODE_UNSURE: ReadonlySet<number> = new Set([7, 77, 78, 116, 279])

/** A commit that failed in the synchronous queue, of a transaction or of a single statement: another instance may still confirm it. */
const COMMIT_UNSURE: ReadonlySet<number> = new Set([216, 217, 225])

/**
 * Whether a request answered by this error may have been executed: the one table for error answers.
 *
 * A proxy of this family says it itself, in the error field `proxy` (with `sent` beside it or inside it): that goes before the
 * code, except that user code may have met such an error from a proxy it called, so there `sent: false` proves nothing.
 * @param boxCode - code of the newest entry of the stack
 * @param fields - fields of that entry; foreign data, so types are checked
 */
export function executedOf(
  requestClass: RequestClass,
  boxCode: number,
  fields: ReadonlyMap<string, unknown>,
): Executed {
  const sent = sentByProxy(fields)
  if (sent === true) return 'unknown'
  if (sent === false) return requestClass === 'code' ? 'unknown' : 'no'
  if (requestClass === 'code') return CODE_UNSURE.has(boxCode) ? 'unknown' : 'yes'
  if (NEVER_RAN.has(boxCode)) return 'no'
  if (requestClass !== 'read' && COMMIT_UNSURE.has(boxCode)) return 'unknown'
  const isStatement = requestClass === 'read' || requestClass === 'dml' || requestClass === 'sql'
  return isStatement && STATEMENT_REFUSED.has(boxCode) ? 'no' : 'yes'
}

function sentByProxy(fields: ReadonlyMap<string, unknown>): boolean | undefined {
  const proxy = fields.get('proxy')
  if (proxy === undefined || proxy === null) return undefined
  let sent = fields.get('sent')
  if (proxy instanceof Map) sent = proxy.get('sent')
  else if (typeof proxy === 'object' && Object.hasOwn(proxy, 'sent')) sent = (proxy as { sent: unknown }).sent
  return typeof sent === 'boolean' ? sent : undefined
}
