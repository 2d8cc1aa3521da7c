/* pap-sha256, Enterprise builds only. Source: Tarantool 2.11+ documentation of the method
 *   TUPLE ["pap-sha256", password as str]: the server hashes it; the salt is not used. */

/**
 * What AUTH sends: the password itself. Whoever calls this must have refused to go on over a connection that is not encrypted.
 */
export function papSha256(password: string): string {
  return password
}
