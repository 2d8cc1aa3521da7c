import { Key, RequestType } from '../constants.js'
import { assertArray, assertText, assertUint32, type Request } from './request.js'

/* SQL. Source: Tarantool 2.0+ (PREPARE 2.3+) src/box/xrow.c, xrow_decode_sql
 *   EXECUTE (11)  0x40 SQL_TEXT str | 0x43 STMT_ID uint, 0x41 SQL_BIND array
 *   PREPARE (13)  0x40 SQL_TEXT str; with 0x43 STMT_ID uint instead it forgets the statement */

/**
 * EXECUTE.
 * @param statement - the text, or the id that PREPARE gave in this session
 * @param binds - positional values, and objects of one entry for named ones (`{':name': value}`); at most 65000. Never bind a
 * decimal, uuid or datetime on a server older than 2.10: 2.6 crashes
 */
export function executeRequest(statement: string | number, binds?: readonly unknown[]): Request {
  if (typeof statement === 'number') assertUint32(statement, 'statement')
  else assertText(statement, 'statement')
  if (binds !== undefined) assertArray(binds, 'binds')
  return {
    type: RequestType.execute,
    requestClass: 'sql',
    writeBody(out) {
      out.mapHeader(binds === undefined ? 1 : 2)
      if (typeof statement === 'number') {
        out.uint(Key.stmtId)
        out.uint(statement)
      } else {
        out.uint(Key.sqlText)
        out.text(statement)
      }
      if (binds === undefined) return
      out.uint(Key.sqlBind)
      out.value(binds, 'binds')
    },
  }
}

/** PREPARE: the id in the reply is valid in this session and until the schema changes. */
export function prepareRequest(text: string): Request {
  assertText(text, 'text')
  return {
    type: RequestType.prepare,
    requestClass: 'sql',
    writeBody(out) {
      out.mapHeader(1)
      out.uint(Key.sqlText)
      out.text(text)
    },
  }
}

/** Forgets a prepared statement of this session. */
export function unprepareRequest(id: number): Request {
  assertUint32(id, 'id')
  return {
    type: RequestType.prepare,
    requestClass: 'sql',
    writeBody(out) {
      out.mapHeader(1)
      out.uint(Key.stmtId)
      out.uint(id)
    },
  }
}
