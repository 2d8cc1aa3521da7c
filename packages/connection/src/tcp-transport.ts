/** The one file of this package that touches sockets: dialling, accepting, and a socket as a `Transport`. */
import { connect as connectSocket, createServer, type Server, type Socket } from 'node:net'
import { lstat, unlink } from 'node:fs/promises'
import { InvalidArgumentError } from '@orbweaver/iproto'
import { addressProblem, formatAddress } from './address.js'
import type { Address, Transport, TransportSink } from './transport.js'

/**
 * The default `Dial`. A host name is resolved and all its addresses are tried (RFC 8305, Node's `autoSelectFamily`).
 * Rejects with the system's error; for several addresses with an `AggregateError` of them.
 */
export function dialSocket(address: Address, signal: AbortSignal): Promise<Transport> {
  if ('connect' in address) return Promise.resolve().then(() => address.connect())
  return new Promise((resolve, reject) => {
    if (signal.aborted) {
      reject(signal.reason as Error)
      return
    }
    const common = { noDelay: true, keepAlive: true, keepAliveInitialDelay: KEEP_ALIVE_MS, allowHalfOpen: true }
    const socket =
      'path' in address
        ? connectSocket({ path: address.path, allowHalfOpen: true })
        : connectSocket({
            ...common,
            host: address.host,
            port: address.port,
            autoSelectFamily: true,
            autoSelectFamilyAttemptTimeout: ADDRESS_ATTEMPT_MS,
          })
    const settle = (): void => {
      socket.off('connect', onConnect)
      socket.off('error', onError)
      signal.removeEventListener('abort', onAbort)
    }
    const onConnect = (): void => {
      settle()
      resolve(socketTransport(socket, formatAddress(address)))
    }
    const onError = (error: Error): void => {
      settle()
      reject(error)
    }
    const onAbort = (): void => {
      settle()
      socket.on('error', ignoreAfterAbort)
      socket.destroy()
      reject(signal.reason as Error)
    }
    socket.once('connect', onConnect)
    socket.once('error', onError)
    signal.addEventListener('abort', onAbort, { once: true })
  })
}

/** An accepting socket made by `listen`. */
export interface SocketListener {
  /** The address that is listened on; the port is the real one when 0 was asked for. */
  readonly address: Address
  /** Stops accepting and frees the address. Transports handed out before stay open. */
  close(): Promise<void>
}

/**
 * Accepts on a TCP address (port 0: any free one) or a unix socket path. A stale socket file nobody listens on is replaced.
 * Each accepted socket is given to `onTransport`, which must attach a sink to it or destroy it.
 * @throws the system's error (`EADDRINUSE`, `EACCES`) when the address cannot be taken, TypeError for a `connect` address
 */
export async function listen(address: Address, onTransport: (transport: Transport) => void): Promise<SocketListener> {
  const problem = addressProblem(address, 0)
  if (problem !== undefined) throw new InvalidArgumentError(`Nothing to listen on: ${problem}`)
  if ('connect' in address) throw new InvalidArgumentError('A connect function cannot be listened on')
  try {
    return await listenOnce(address, onTransport)
  } catch (error) {
    if (!('path' in address) || !hasCode(error, 'EADDRINUSE') || !(await isStaleSocket(address.path))) throw error
    await unlink(address.path)
    return listenOnce(address, onTransport)
  }
}

function listenOnce(
  address: { readonly host: string; readonly port: number } | { readonly path: string },
  onTransport: (transport: Transport) => void,
): Promise<SocketListener> {
  return new Promise((resolve, reject) => {
    const server: Server = createServer({ allowHalfOpen: true, noDelay: true, keepAlive: true }, (socket) => {
      onTransport(socketTransport(socket, peerOf(socket, address)))
    })
    server.once('error', reject)
    server.listen('path' in address ? { path: address.path } : { host: address.host, port: address.port }, () => {
      server.off('error', reject)
      const bound = server.address()
      const actual: Address =
        'host' in address && bound !== null && typeof bound === 'object'
          ? { host: address.host, port: bound.port }
          : address
      resolve({ address: actual, close: () => closeServer(server) })
    })
  })
}

function closeServer(server: Server): Promise<void> {
  return new Promise((resolve) => {
    // The callback's error means "was not open": closing twice is fine. Open sockets are not waited for.
    if (!server.listening) {
      resolve()
      return
    }
    server.close()
    resolve()
  })
}

/**
 * A connected or connecting socket as a `Transport`; also the way to TLS:
 * `{ connect: () => socketTransport(tls.connect({ host, port, ca })) }` is an `Address`.
 * @param peer - the other end for people; by default taken from the socket
 */
export function socketTransport(socket: Socket, peer?: string): Transport {
  return new SocketTransport(socket, peer)
}

class SocketTransport implements Transport {
  readonly peer: string
  readonly encrypted: boolean
  readonly #socket: Socket
  #sink: TransportSink | undefined
  #cause: Error | undefined
  #drainOwed = false

  constructor(socket: Socket, peer: string | undefined) {
    this.#socket = socket
    this.encrypted = 'encrypted' in socket && socket.encrypted === true
    this.peer = peer ?? `${socket.remoteAddress ?? 'socket'}:${String(socket.remotePort ?? 0)}`
    // From the first moment: a socket without an error listener takes the process down.
    socket.on('error', (error) => {
      this.#cause ??= error
    })
  }

  get pendingBytes(): number {
    return this.#socket.writableLength
  }

  attach(sink: TransportSink): void {
    if (this.#sink !== undefined) throw new Error('This transport already has a sink')
    this.#sink = sink
    const socket = this.#socket
    if (socket.destroyed) {
      setImmediate(() => sink.closed(this.#cause))
      return
    }
    socket.on('data', (chunk: Buffer) => sink.data(chunk))
    socket.on('drain', () => {
      if (!this.#drainOwed) return
      this.#drainOwed = false
      sink.drain()
    })
    socket.on('end', () => sink.end())
    socket.on('close', () => sink.closed(this.#cause))
  }

  write(chunks: readonly Uint8Array[]): boolean {
    const socket = this.#socket
    const [first] = chunks
    if (first === undefined || !socket.writable) return true
    if (chunks.length === 1) {
      socket.write(first)
    } else {
      // Corked writes leave in one writev.
      socket.cork()
      for (const chunk of chunks) socket.write(chunk)
      socket.uncork()
    }
    // Not the stream's own answer: it says false for every write above 16 KiB, also when the kernel took all of it.
    if (socket.writableLength < HIGH_WATER_BYTES) return true
    this.#drainOwed = true
    return false
  }

  pauseReading(): void {
    this.#socket.pause()
  }

  resumeReading(): void {
    this.#socket.resume()
  }

  end(): void {
    this.#socket.end()
  }

  destroy(cause?: Error): void {
    if (this.#socket.destroyed) return
    this.#cause ??= cause
    // Without the cause: the socket would emit it as an error of its own; ours reaches the sink through `closed`.
    this.#socket.destroy()
  }

  ref(): void {
    this.#socket.ref()
  }

  unref(): void {
    this.#socket.unref()
  }
}

function peerOf(socket: Socket, address: { readonly host: string } | { readonly path: string }): string {
  if ('path' in address) return `unix/:${address.path}`
  const host = socket.remoteAddress ?? 'unknown'
  return `${host.includes(':') ? `[${host}]` : host}:${String(socket.remotePort ?? 0)}`
}

/** Whether a path is a socket on which nobody accepts: a dead process left it. Any other file stays where it is. */
async function isStaleSocket(path: string): Promise<boolean> {
  if (!(await lstat(path)).isSocket()) return false
  return new Promise((resolve) => {
    const probe = connectSocket({ path })
    probe.once('connect', () => {
      probe.destroy()
      resolve(false)
    })
    probe.once('error', (error) => resolve(hasCode(error, 'ECONNREFUSED')))
  })
}

function hasCode(error: unknown, code: string): boolean {
  return error instanceof Error && 'code' in error && error.code === code
}

/** A socket destroyed while connecting may still report; the caller has its answer already. */
function ignoreAfterAbort(): void {}

/** Bytes waiting inside Node from which a writer is told to wait. */
const HIGH_WATER_BYTES = 262_144
/** How long one of several addresses may take before the next is tried beside it. */
const ADDRESS_ATTEMPT_MS = 500
/** Silence after which the kernel asks a peer whether it still exists. */
const KEEP_ALIVE_MS = 30_000
