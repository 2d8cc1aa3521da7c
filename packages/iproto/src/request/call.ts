import { Key, RequestType } from '../constants.js'
import type { FieldFormat } from '../ext/tuple.js'
import type { BodyWriter } from '../msgpack/body-writer.js'
import { RawValue } from '../msgpack/wrappers.js'
import { assertArray, assertText, type Request } from './request.js'

/* Running code. Source: Tarantool src/box/xrow.c, xrow_decode_call
 *   CALL    (10)  0x22 FUNCTION_NAME str, 0x21 TUPLE array of arguments, 0x60 TUPLE_FORMATS map (feature 9)
 *   CALL_16 (6)   0x22 FUNCTION_NAME str, 0x21 TUPLE array; each result value is wrapped into an array
 *   EVAL    (8)   0x27 EXPR str, 0x21 TUPLE array
 * TUPLE may be left out: no arguments. */

/** Formats of the tuples (extension 7) among the arguments, by the id that is in their payload. */
export type TupleFormatMap = ReadonlyMap<number, readonly FieldFormat[]>

/**
 * CALL of a stored function: `f`, `a.b.f` or `object:method`.
 * @param args - undefined leaves them out, which servers take for none
 * @param tupleFormats - needed when an Extension of type 7 is among the arguments
 */
export function callRequest(
  name: string,
  args?: readonly unknown[] | RawValue,
  tupleFormats?: TupleFormatMap,
): Request {
  return codeRequest(RequestType.call, Key.functionName, name, args, tupleFormats)
}

/** CALL of servers before 1.7 in its old shape: every result value comes wrapped into an array. */
export function call16Request(name: string, args?: readonly unknown[]): Request {
  return codeRequest(RequestType.call16, Key.functionName, name, args)
}

/** EVAL of a Lua chunk; `...` in it are the arguments. */
export function evalRequest(expression: string, args?: readonly unknown[]): Request {
  return codeRequest(RequestType.eval, Key.expr, expression, args)
}

function codeRequest(
  type: number,
  textKey: number,
  text: string,
  args: readonly unknown[] | RawValue | undefined,
  tupleFormats?: TupleFormatMap,
): Request {
  assertText(text, textKey === Key.expr ? 'expression' : 'name')
  if (args !== undefined && !(args instanceof RawValue)) assertArray(args, 'args')
  const size = 1 + (args === undefined ? 0 : 1) + (tupleFormats === undefined ? 0 : 1)
  return {
    type,
    requestClass: 'code',
    writeBody(out) {
      out.mapHeader(size)
      out.uint(textKey)
      out.text(text)
      if (args !== undefined) {
        out.uint(Key.tuple)
        out.value(args, 'args')
      }
      if (tupleFormats !== undefined) writeTupleFormats(out, tupleFormats)
    },
  }
}

function writeTupleFormats(out: BodyWriter, formats: TupleFormatMap): void {
  out.uint(Key.tupleFormats)
  out.mapHeader(formats.size)
  for (const [id, fields] of formats) {
    out.uint(id)
    out.value(
      fields.map(({ name, type, isNullable }) => (isNullable ? { name, type, is_nullable: true } : { name, type })),
      'tupleFormats',
    )
  }
}
