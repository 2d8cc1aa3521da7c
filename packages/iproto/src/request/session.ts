import { Key, RequestType } from '../constants.js'
import { assertText, assertUint32, bareRequest, type Request } from './request.js'

/* The session. Source: Tarantool src/box/xrow.c, xrow_decode_auth, xrow_decode_id
 *   PING (64)  nothing
 *   AUTH (7)   0x23 USER_NAME str, 0x21 TUPLE [method str, proof str]; [] makes the session guest's again
 *   ID   (73)  0x54 VERSION uint, 0x55 FEATURES array of uint, 0x5b AUTH_TYPE str; 2.10+, a map is mandatory */

/** PING. */
export function pingRequest(): Request {
  return bareRequest(RequestType.ping, 'read')
}

/** ID: says what we are able to do; the reply says what the server is. Servers before 2.10 answer error 48. */
export function idRequest(options: {
  readonly version: number
  readonly features: readonly number[]
  readonly authType?: string
}): Request {
  const { version, features, authType } = options
  assertUint32(version, 'version')
  for (const [i, feature] of features.entries()) assertUint32(feature, `features[${i}]`)
  return {
    type: RequestType.id,
    requestClass: 'session',
    writeBody(out) {
      out.mapHeader(authType === undefined ? 2 : 3)
      out.uint(Key.version)
      out.uint(version)
      out.uint(Key.features)
      out.value(features, 'features')
      if (authType === undefined) return
      out.uint(Key.authType)
      out.text(authType)
    },
  }
}

/**
 * AUTH.
 * @param proof - bytes of a chap-sha1 scramble (written as str with raw bytes, which every server takes), or the password of
 * pap-sha256, which must only go over an encrypted connection
 */
export function authRequest(user: string, method: 'chap-sha1' | 'pap-sha256', proof: Uint8Array | string): Request {
  assertText(user, 'user')
  return {
    type: RequestType.auth,
    requestClass: 'session',
    writeBody(out) {
      out.mapHeader(2)
      out.uint(Key.userName)
      out.text(user)
      out.uint(Key.tuple)
      out.arrayHeader(2)
      out.text(method)
      if (typeof proof === 'string') out.text(proof)
      else out.rawText(proof)
    },
  }
}

/** AUTH that makes the session guest's again. */
export function authGuestRequest(): Request {
  return {
    type: RequestType.auth,
    requestClass: 'session',
    writeBody(out) {
      out.mapHeader(2)
      out.uint(Key.userName)
      out.text('guest')
      out.uint(Key.tuple)
      out.arrayHeader(0)
    },
  }
}
