import { createHash, timingSafeEqual } from 'node:crypto'
import { InvalidArgumentError } from '../errors.js'

/* chap-sha1. Source: Tarantool src/scramble.c
 *   hash1 = sha1(password), hash2 = sha1(hash1) (what a server stores), scramble = hash1 XOR sha1(salt[0..20) ++ hash2)
 * Who holds hash2 can check a scramble and learns hash1 from it, with which it can log in elsewhere under another salt. */

/** Bytes of a hash, of a scramble, and of the salt that counts. */
const HASH_BYTES = 20

/** The scramble for AUTH. @param salt - of the greeting, at least 20 bytes */
export function chapSha1(salt: Uint8Array, password: string): Uint8Array {
  return chapSha1FromHash1(salt, hash1Of(password))
}

/** The scramble from sha1(password), which a proxy may know instead of the password. */
export function chapSha1FromHash1(salt: Uint8Array, hash1: Uint8Array): Uint8Array {
  return xor(hash1, saltedHash(salt, sha1(hash1)))
}

/** sha1 of the password's UTF-8 bytes: as good as the password itself. */
export function hash1Of(password: string): Uint8Array {
  return sha1(Buffer.from(password, 'utf8'))
}

/** sha1(sha1(password)): what a server stores. */
export function hash2Of(password: string): Uint8Array {
  return sha1(hash1Of(password))
}

/**
 * Checks a scramble against what is stored, in a time that does not depend on the bytes.
 * @returns hash1 of the password, or undefined when the scramble is wrong
 */
export function verifyChapSha1(salt: Uint8Array, hash2: Uint8Array, proof: Uint8Array): Uint8Array | undefined {
  if (proof.length !== HASH_BYTES || hash2.length !== HASH_BYTES) return undefined
  const hash1 = xor(proof, saltedHash(salt, hash2))
  return timingSafeEqual(sha1(hash1), hash2) ? hash1 : undefined
}

function saltedHash(salt: Uint8Array, hash2: Uint8Array): Uint8Array {
  if (salt.length < HASH_BYTES) throw new InvalidArgumentError(`A salt has at least 20 bytes, not ${salt.length}`)
  return createHash('sha1').update(salt.subarray(0, HASH_BYTES)).update(hash2).digest()
}

function sha1(bytes: Uint8Array): Uint8Array {
  return createHash('sha1').update(bytes).digest()
}

function xor(a: Uint8Array, b: Uint8Array): Uint8Array {
  if (a.length !== HASH_BYTES) throw new InvalidArgumentError(`A hash has 20 bytes, not ${a.length}`)
  return a.map((byte, i) => byte ^ b[i]!)
}
