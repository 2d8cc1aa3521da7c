/**
 * A two-way stream of bytes: a socket, one end of a `transportPair`, or anything a caller brings. Chunks passed in
 * either direction belong to the receiver from then on and nobody writes to them again: that makes memory transports
 * copy-free and slices of received chunks safe to keep.
 */
export interface Transport {
  /** Connects the events; called once. No event comes before it, none inside `write`. */
  attach(sink: TransportSink): void
  /**
   * Hands bytes over, in one system call where there is one.
   * @returns false: stop and wait for `drain`; the bytes were taken nevertheless
   */
  write(chunks: readonly Uint8Array[]): boolean
  /** Bytes taken by `write` that have not left yet. */
  readonly pendingBytes: number
  pauseReading(): void
  resumeReading(): void
  /** Half-closes behind what was written; the peer's answers still arrive. */
  end(): void
  /** Closes now, dropping what was not written yet. `closed` follows with this cause. Harmless when repeated. */
  destroy(cause?: Error): void
  /** The other end for people: `127.0.0.1:3301`, `unix/:/run/a.sock`, `in-process`. */
  readonly peer: string
  /** Whether eavesdroppers are kept out; a password in clear is never sent over a transport that says false. */
  readonly encrypted: boolean
  /** Lets the open transport keep the process alive again (the default). Absent where there is nothing to hold. */
  ref?(): void
  /** Stops the open transport from keeping the process alive. */
  unref?(): void
}

/** Who listens to a transport. */
export interface TransportSink {
  /** Received bytes, in order, in pieces of any size. */
  data(chunk: Buffer): void
  /** After a `write` that returned false: everything taken has left. */
  drain(): void
  /** The peer will send no more. The own direction stays open until `end` or `destroy` is called. */
  end(): void
  /** The last event. `cause` is undefined after an orderly end. */
  closed(cause: Error | undefined): void
}

/** Where to connect: TCP, a unix socket, or a function that makes the transport (loopback, TLS, tests). */
export type Address =
  | { readonly host: string; readonly port: number }
  | { readonly path: string }
  | { readonly connect: () => Transport }

/**
 * Opens a transport. Rejects with the system's error, or with the signal's reason after an abort; the caller wraps it.
 * A transport that becomes ready after the abort is destroyed, not returned.
 */
export type Dial = (address: Address, signal: AbortSignal) => Promise<Transport>
