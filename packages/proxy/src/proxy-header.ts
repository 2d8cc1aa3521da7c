/*
 * The header that load balancers put in front of a connection to say whose it is: PROXY protocol, versions 1 and 2.
 * Source: proxy-protocol.txt of HAProxy.
 *   v1  PROXY TCP4 <source> <destination> <source port> <destination port>\r\n, at most 107 bytes; PROXY UNKNOWN …\r\n
 *   v2  0d 0a 0d 0a 00 0d 0a 51 55 49 54 0a <version 2, command> <family, protocol> <u16 length> <addresses, then TLVs>
 */
export interface ProxyHeader {
  /** What it takes at the front. */
  readonly bytes: number
  /** undefined: the connection is the balancer's own (a health check), or of a family without addresses. */
  readonly source: { readonly host: string; readonly port: number } | undefined
}

export function readProxyHeader(received: Buffer): ProxyHeader | 'incomplete' | 'malformed' {
  const length = Math.min(received.length, SIGNATURE.length)
  if (received.subarray(0, length).equals(SIGNATURE.subarray(0, length)))
    return length < SIGNATURE.length ? 'incomplete' : readBinary(received)
  const start = received.toString('latin1', 0, Math.min(received.length, V1_START.length))
  if (!V1_START.startsWith(start)) return 'malformed'
  const end = received.indexOf('\r\n')
  if (end < 0) return received.length >= MAX_V1_BYTES ? 'malformed' : 'incomplete'
  return end + 2 > MAX_V1_BYTES ? 'malformed' : readText(received.toString('latin1', 0, end), end + 2)
}

function readText(line: string, bytes: number): ProxyHeader | 'malformed' {
  const [, family, host = '', , port] = line.split(' ')
  if (family === 'UNKNOWN') return { bytes, source: undefined }
  const isRight = (family === 'TCP4' && IPV4.test(host)) || (family === 'TCP6' && IPV6.test(host))
  const number = Number(port)
  if (!isRight || !Number.isInteger(number) || number < 0 || number > 65_535) return 'malformed'
  return { bytes, source: { host, port: number } }
}

function readBinary(received: Buffer): ProxyHeader | 'incomplete' | 'malformed' {
  if (received.length < V2_FIXED_BYTES) return 'incomplete'
  const command = received[12]!
  const family = received[13]! >> 4
  const length = received.readUInt16BE(14)
  if (command >> 4 !== 2 || (command & 0x0f) > 1 || length > MAX_V2_BYTES) return 'malformed'
  const bytes = V2_FIXED_BYTES + length
  if (received.length < bytes) return 'incomplete'
  const isLocal = (command & 0x0f) === 0
  if (isLocal || (family !== INET && family !== INET6)) return { bytes, source: undefined }
  const size = family === INET ? 4 : 16
  if (length < 2 * size + 4) return 'malformed'
  const address = received.subarray(V2_FIXED_BYTES, V2_FIXED_BYTES + size)
  const port = received.readUInt16BE(V2_FIXED_BYTES + 2 * size)
  return { bytes, source: { host: family === INET ? [...address].join('.') : textOfIpv6(address), port } }
}

function textOfIpv6(address: Buffer): string {
  return Array.from({ length: 8 }, (_, i) => address.readUInt16BE(2 * i).toString(16)).join(':')
}

const SIGNATURE = Buffer.from('0d0a0d0a000d0a515549540a', 'hex')
const IPV4 = /^\d{1,3}(\.\d{1,3}){3}$/
const IPV6 = /^(?=.*:)[\da-f:.]{2,45}$/i
const V1_START = 'PROXY '
const MAX_V1_BYTES = 107
const V2_FIXED_BYTES = 16
/** Addresses and the TLVs behind them. */
const MAX_V2_BYTES = 4_096
const INET = 1
const INET6 = 2
