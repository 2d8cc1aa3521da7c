import { BoxError, ByteString, ErrorCode, Key, verifyChapSha1 } from '@orbweaver/iproto'
import type { BodyReader } from '@orbweaver/iproto'

/** Where passwords are looked up: sha1(sha1(password)), what Tarantool keeps in `_user` as base64. undefined: no such user, or no password. */
export interface UserSource {
  hash2(user: string): Uint8Array | undefined
}

const WRONG_LOGIN = 'User not found or supplied credentials are invalid'
const PROOF_BYTES = 20

/**
 * Judges an AUTH body: `TUPLE: [method, proof]`, or `[]` for guest.
 * @returns the refusal, or undefined when the login is right
 * @throws BoxError 69 without a TUPLE, 20 when it has no method and proof
 */
export function authRules(user: string, body: BodyReader, salt: Uint8Array, users: UserSource): BoxError | undefined {
  const tuple = body.requireArray(Key.tuple, { strings: 'bytes' })
  if (tuple.length === 0) return user === 'guest' ? undefined : BoxError.of(ErrorCode['credsMismatch'], WRONG_LOGIN)
  if (tuple.length < 2) throw BoxError.of(ErrorCode['invalidMsgpack'], 'Invalid MsgPack - authentication request body')
  const method = Buffer.from(bytesOf(tuple[0])).toString()
  if (method !== 'chap-sha1')
    return BoxError.of(UNKNOWN_AUTH_METHOD, `Unknown authentication method '${method.slice(0, 64)}'`)
  const proof = bytesOf(tuple[1])
  // Guest has the empty password's rights without a proof; clients of pools send either form.
  if (user === 'guest' && proof.length === 0) return undefined
  if (proof.length !== PROOF_BYTES) {
    return BoxError.of(
      INVALID_AUTH_DATA,
      `Authentication request to 'chap-sha1': invalid scramble size ${proof.length}, expected ${PROOF_BYTES}`,
    )
  }
  // The same work for an unknown user: the time of an answer must not tell who exists.
  const hash2 = users.hash2(user)
  const hash1 = verifyChapSha1(salt, hash2 ?? NOBODY, proof)
  return hash2 !== undefined && hash1 !== undefined ? undefined : BoxError.of(ErrorCode['credsMismatch'], WRONG_LOGIN)
}

function bytesOf(value: unknown): Uint8Array {
  if (value instanceof ByteString) return value.bytes
  if (value instanceof Uint8Array) return value
  throw BoxError.of(ErrorCode['invalidMsgpack'], 'Invalid MsgPack - authentication request body')
}

const NOBODY = new Uint8Array(20)
const UNKNOWN_AUTH_METHOD = 249
const INVALID_AUTH_DATA = 251
