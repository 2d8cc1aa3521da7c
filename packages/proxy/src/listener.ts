/*
 * The one file of this package with node:net and node:tls: listeners that are more than a plain socket, and dialling with TLS.
 * A header of the PROXY protocol comes first, then TLS, then the greeting. It says who the client is, so it is believed only to
 * those who are named as trusted.
 */
import { BlockList, createServer, isIP, type Server, type Socket } from 'node:net'
import {
  connect as connectTls,
  createSecureContext,
  createServer as createTlsServer,
  type Server as TlsServer,
  type TLSSocket,
} from 'node:tls'
import {
  type Address,
  type Clock,
  listen,
  type SocketListener,
  socketTransport,
  type Transport,
} from '@orbweaver/connection'
import { readProxyHeader } from './proxy-header.js'

/** TLS of a listener. Certificates and keys as PEM. */
export interface ListenTls {
  readonly cert: string
  readonly key: string
  /** Who signs certificates of clients: given, clients have to show one, as a further factor beside their login. */
  readonly ca?: string
}

/** TLS towards a target. */
export interface TargetTls {
  /** Who signs the target's certificate, as PEM. Default: the authorities that Node.js knows. */
  readonly ca?: string
  /** What the target's certificate must be for. Default: the host of its address. */
  readonly serverName?: string
  /** A certificate of the proxy's own, as PEM. */
  readonly cert?: string
  readonly key?: string
}

/** Where clients are accepted. */
export type ListenOptions = Address & {
  readonly tls?: ListenTls
  /** Addresses and networks (`10.0.0.0/8`) that put a header of the PROXY protocol, v1 or v2, in front: load balancers. */
  readonly proxyProtocol?: { readonly trusted: readonly string[] }
  /** Whether calls of its clients are never bounced, nor answered by a served router: for those that are routers. Default false. */
  readonly isDirect?: boolean
}

export interface Listener extends SocketListener {
  /** For connections to come: other certificates, others to trust. Absent: there are none. */
  renew?(options: ListenOptions): void
}

/** Whose listeners they are. */
export interface ListenerOwner {
  readonly clock: Clock
  accept(transport: Transport, from: ListenOptions): void
  /** A connection that did not come as far as that. */
  refused(peer: string, cause: Error): void
}

/** @throws the system's error when the address cannot be taken, and Node's for a certificate that is none */
export function openListener(options: ListenOptions, owner: ListenerOwner): Promise<Listener> {
  if (options.tls === undefined && options.proxyProtocol === undefined)
    return listen(options, (transport) => owner.accept(transport, options))
  return new Door(options, owner).open()
}

/** An address that is dialled with TLS. */
export function tlsAddress(address: Address, tls: TargetTls): Address {
  if ('connect' in address) return address
  const { serverName, ca, cert, key } = tls
  const at = 'path' in address ? { path: address.path } : { host: address.host, port: address.port }
  const host = 'host' in address && isIP(address.host) === 0 ? address.host : undefined
  const servername = serverName ?? host
  return {
    connect: () =>
      socketTransport(
        connectTls({
          ...at,
          minVersion: MIN_VERSION,
          ...(servername === undefined ? {} : { servername }),
          ...(ca === undefined ? {} : { ca }),
          ...(cert === undefined ? {} : { cert }),
          ...(key === undefined ? {} : { key }),
        }),
        'path' in address ? `tls+unix/:${address.path}` : `tls://${address.host}:${address.port}`,
      ),
  }
}

/** What is wrong with a certificate and its key, in words, or undefined. */
export function certificateProblem(tls: ListenTls): string | undefined {
  try {
    createSecureContext({ ...tls })
    return undefined
  } catch (error) {
    return `holds no certificate with its key: ${(error as Error).message}`
  }
}

/** Networks as Node knows them. @returns undefined when one of them is none */
export function networksOf(texts: readonly string[]): BlockList | undefined {
  const list = new BlockList()
  for (const text of texts) {
    const [address = '', prefix] = text.split('/')
    const family = isIP(address)
    const bits = prefix === undefined ? (family === 4 ? 32 : 128) : Number(prefix)
    if (family === 0 || !Number.isInteger(bits) || bits < 0 || bits > (family === 4 ? 32 : 128)) return undefined
    list.addSubnet(address, bits, family === 4 ? 'ipv4' : 'ipv6')
  }
  return list
}

class Door {
  #options: ListenOptions
  readonly #owner: ListenerOwner
  #trusted: BlockList | undefined
  #secure: TlsServer | undefined
  /** Who is agreeing on TLS, by its address. */
  readonly #securing = new Map<string, string>()
  /** Sockets whose client is not known yet. */
  readonly #arriving = new Set<Socket>()

  constructor(options: ListenOptions, owner: ListenerOwner) {
    this.#options = options
    this.#owner = owner
    this.#renew(options)
  }

  #renew(options: ListenOptions): void {
    this.#options = options
    const { tls, proxyProtocol } = options
    this.#trusted = proxyProtocol === undefined ? undefined : networksOf(proxyProtocol.trusted)
    this.#secure = tls === undefined ? undefined : this.#tlsServer(tls)
  }

  /** It listens nowhere: sockets are handed to it when their client is known. */
  #tlsServer(tls: ListenTls): TlsServer {
    const isCertain = tls.ca !== undefined
    const server = createTlsServer({
      ...tls,
      minVersion: MIN_VERSION,
      requestCert: isCertain,
      rejectUnauthorized: isCertain,
      handshakeTimeout: HANDSHAKE_MS,
      allowHalfOpen: true,
    })
    server.on('secureConnection', (socket) => this.#secured(socket))
    server.on('tlsClientError', (_error, socket) => socket.destroy())
    return server
  }

  open(): Promise<Listener> {
    const options = this.#options
    if ('connect' in options) throw new TypeError('A connect function cannot be listened on')
    return new Promise((resolve, reject) => {
      const server: Server = createServer({ allowHalfOpen: true, noDelay: true, keepAlive: true }, (socket) =>
        this.#arrived(socket),
      )
      server.once('error', reject)
      server.listen('path' in options ? { path: options.path } : { host: options.host, port: options.port }, () => {
        server.off('error', reject)
        const bound = server.address()
        const isPort = 'host' in options && bound !== null && typeof bound === 'object'
        const address: Address = isPort ? { host: options.host, port: bound.port } : options
        resolve({ address, close: () => this.#close(server), renew: (next) => this.#renew(next) })
      })
    })
  }

  #close(server: Server): Promise<void> {
    if (server.listening) server.close()
    for (const socket of this.#arriving) socket.destroy()
    return Promise.resolve()
  }

  #arrived(socket: Socket): void {
    const host = socket.remoteAddress
    const peer = host === undefined ? 'unix socket' : peerText(host, socket.remotePort ?? 0)
    // An IPv4 peer of a listener for both families is written as a part of IPv6.
    const plain = host?.replace(/^::ffff:/, '') ?? ''
    const isTrusted = this.#trusted?.check(plain, isIP(plain) === 6 ? 'ipv6' : 'ipv4') === true
    this.#arriving.add(socket)
    const leave = (cause: Error): void => {
      this.#arriving.delete(socket)
      this.#owner.refused(peer, cause)
      socket.destroy()
    }
    const onError = (error: Error): void => leave(error)
    socket.on('error', onError)
    const goOn = (known: string): void => {
      this.#arriving.delete(socket)
      socket.off('error', onError)
      this.#admit(socket, known)
    }
    if (isTrusted) readHeader(socket, this.#owner.clock, (source) => goOn(source ?? peer), leave)
    else goOn(peer)
  }

  #admit(socket: Socket, peer: string): void {
    if (this.#secure === undefined) {
      this.#owner.accept(socketTransport(socket, peer), this.#options)
      // Reading the header has stopped it.
      socket.resume()
      return
    }
    const key = keyOf(socket)
    this.#securing.set(key, peer)
    this.#arriving.add(socket)
    socket.once('close', () => {
      this.#arriving.delete(socket)
      if (this.#securing.delete(key))
        this.#owner.refused(peer, new Error('TLS was not agreed on, or it showed no certificate that is accepted here'))
    })
    this.#secure.emit('connection', socket)
  }

  #secured(socket: TLSSocket): void {
    const key = keyOf(socket)
    const peer = this.#securing.get(key) ?? 'unix socket'
    this.#securing.delete(key)
    this.#owner.accept(socketTransport(socket, peer), this.#options)
  }
}

function keyOf(socket: Socket): string {
  return `${socket.remoteAddress ?? ''} ${socket.remotePort ?? ''}`
}

/** Takes the header off the front; what comes behind it stays in the socket. */
function readHeader(
  socket: Socket,
  clock: Clock,
  onRead: (source: string | undefined) => void,
  onBad: (cause: Error) => void,
): void {
  let received = Buffer.alloc(0)
  const cancel = clock.schedule(HEADER_MS, () =>
    finish(() => onBad(new Error('No header of the PROXY protocol came in time'))),
  )
  const finish = (then: () => void): void => {
    cancel()
    socket.off('data', onData)
    socket.off('end', onEnd)
    socket.pause()
    then()
  }
  const onEnd = (): void => finish(() => onBad(new Error('It left before its header of the PROXY protocol was whole')))
  const onData = (chunk: Buffer): void => {
    received = Buffer.concat([received, chunk])
    const header = readProxyHeader(received)
    if (header === 'incomplete') return
    if (header === 'malformed') {
      finish(() => onBad(new Error('It begins with no header of the PROXY protocol')))
      return
    }
    finish(() => {
      if (received.length > header.bytes) socket.unshift(received.subarray(header.bytes))
      onRead(header.source === undefined ? undefined : peerText(header.source.host, header.source.port))
    })
  }
  socket.on('data', onData)
  socket.on('end', onEnd)
}

function peerText(host: string, port: number): string {
  return `${host.includes(':') ? `[${host}]` : host}:${port}`
}

const MIN_VERSION = 'TLSv1.2'
const HEADER_MS = 3_000
const HANDSHAKE_MS = 10_000
