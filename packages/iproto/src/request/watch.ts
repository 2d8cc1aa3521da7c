import { Key, RequestType } from '../constants.js'
import { assertText, type Request } from './request.js'

/* Subscriptions to keys. Source: Tarantool 2.10+ (WATCH_ONCE 3.0+) src/box/xrow.c, xrow_decode_watch
 *   WATCH (74), UNWATCH (75), WATCH_ONCE (77)  0x57 EVENT_KEY str
 *   EVENT (76), from the server                0x57 EVENT_KEY str, 0x58 EVENT_DATA any, absent when the key has no value
 * WATCH and UNWATCH are answered only when they fail. */

/** WATCH: subscribes, and acknowledges an event (one that is not answered with another WATCH is the last). */
export function watchRequest(key: string): Request {
  return keyRequest(RequestType.watch, key)
}

/** UNWATCH. */
export function unwatchRequest(key: string): Request {
  return keyRequest(RequestType.unwatch, key)
}

/** WATCH_ONCE: a request with a reply, `[value]` or `[]`. */
export function watchOnceRequest(key: string): Request {
  return keyRequest(RequestType.watchOnce, key)
}

function keyRequest(type: number, key: string): Request {
  assertText(key, 'key')
  return {
    type,
    requestClass: 'watch',
    writeBody(out) {
      out.mapHeader(1)
      out.uint(Key.eventKey)
      out.text(key)
    },
  }
}
