/*
 * Peers that speak another protocol. Their first bytes may well be a legal length of ours (`G` is 71), so that a server would
 * wait for a frame that never comes; who can be recognised is told apart at once, in words for the log.
 */
const STRANGERS: readonly (readonly [start: Buffer, what: string])[] = [
  [Buffer.of(0x16, 0x03), 'a TLS client'],
  ...['GET ', 'POST', 'PUT ', 'HEAD', 'OPTI', 'DELE', 'PATC', 'CONN'].map(
    (method) => [Buffer.from(method), 'an HTTP client'] as const,
  ),
  [Buffer.from('SSH-'), 'an SSH client'],
]

/** Who the first bytes of a connection come from, if not from a client of ours. */
export function strangerOf(beginning: Buffer): string | undefined {
  return STRANGERS.find(
    ([start]) => beginning.length >= start.length && start.equals(beginning.subarray(0, start.length)),
  )?.[1]
}
