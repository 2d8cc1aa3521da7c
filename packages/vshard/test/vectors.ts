import { readFileSync } from 'node:fs'
import { BoxError, type BoxErrorEntry, decodeValue, Decimal, Tuple, Uuid } from '@orbweaver/iproto'

/** A file of vectors, recorded from vshard 0.1.42 on Tarantool 3.2.1. */
export function readVectors<T>(name: string): T {
  return JSON.parse(readFileSync(new URL(`./vectors/${name}.json`, import.meta.url), 'utf8')) as T
}

/** The value that the notation of the vectors stands for, in the form in which it comes out of a decoded reply. */
export function valueOf(json: unknown): unknown {
  if (Array.isArray(json)) return json.map(valueOf)
  if (typeof json !== 'object' || json === null) return json
  const [[key, inner] = [undefined, undefined], ...others] = Object.entries(json)
  if (key?.startsWith('$') !== true) return mapValues(json)
  if (key === '$tuple') return new Tuple(valueOf(inner) as unknown[], [])
  if (others.length > 0) throw new Error(`unexpected parts beside ${key}`)
  switch (key) {
    case '$int':
      return BigInt(inner as string)
    case '$double':
      return Number(inner)
    case '$bin':
      return Buffer.from(inner as string, 'hex')
    case '$map':
      return new Map((inner as [unknown, unknown][]).map(([k, v]) => [valueOf(k), valueOf(v)]))
    case '$uuid':
      return Uuid.from(inner as string)
    case '$decimal':
      return Decimal.from(inner as string)
    case '$ext':
      return extension(...(inner as [number, string]))
    case '$error':
      return new BoxError((inner as BoxErrorEntry[]).map(entryOf), { executed: 'yes' })
    default:
      throw new Error(`unknown notation ${key}`)
  }
}

function mapValues(json: object): Record<string, unknown> {
  return Object.fromEntries(Object.entries(json).map(([key, value]) => [key, valueOf(value)]))
}

function entryOf(entry: BoxErrorEntry): BoxErrorEntry {
  return { ...entry, fields: new Map(Object.entries(mapValues(entry.fields ?? {}))) }
}

/** The value behind an extension of 8 or 16 bytes. */
function extension(type: number, hex: string): unknown {
  const payload = Buffer.from(hex, 'hex')
  const header = payload.length === 8 ? 0xd7 : 0xd8
  return decodeValue(Buffer.concat([Buffer.of(header, type), payload]))
}
