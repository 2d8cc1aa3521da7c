import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import {
  ByteString,
  Datetime,
  Decimal,
  decodeValue,
  Double,
  encodeValue,
  Extension,
  Float,
  Interval,
  Uuid,
} from '../src/index.js'

/** A frame captured from a real server, or one that was sent to it. */
export interface Vector {
  readonly name: string
  readonly case: string
  readonly server_version: string
  readonly direction: 'request' | 'response' | 'event' | 'greeting'
  readonly hex: string
  readonly decoded: DecodedFrame
  readonly inputs?: {
    readonly user: string
    readonly password: string
    readonly method: string
    readonly salt_hex: string
  }
}

/** What a frame says, in the words of the vectors: keys by name, values as {@link Json}. */
export interface DecodedFrame {
  readonly size?: number
  readonly header?: Record<string, Json>
  readonly body?: Record<string, Json> | null
  readonly undecodable?: string
  readonly trailing?: number
  readonly [greeting: string]: unknown
}

export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json }

const VECTOR_FILES: readonly string[] = readdirSync(new URL('./vectors/', import.meta.url))
  .filter((file) => file !== 'timezones.json')
  .sort()

export function loadVectors(file: string): Vector[] {
  return JSON.parse(readFileSync(new URL(`./vectors/${file}`, import.meta.url), 'utf8')) as Vector[]
}

/** Every frame of every file, with the file's name in front of the frame's. */
export function allFrames(): { readonly title: string; readonly vector: Vector }[] {
  return VECTOR_FILES.flatMap((file) =>
    loadVectors(file).map((vector) => ({ title: `${file} ${vector.name}`, vector })),
  ).filter(({ vector }) => vector.direction !== 'greeting')
}

/** The value a vector describes, written so that our encoder gives exactly the form it names. */
export function valueOf(json: Json): unknown {
  if (json === null || typeof json !== 'object') return json
  if (Array.isArray(json)) return json.map(valueOf)
  const tagged = json as { readonly [key: string]: Json }
  if ('$int' in tagged) return BigInt(tagged['$int'] as string)
  if ('$double' in tagged) return new Double(Number(tagged['$double']))
  if ('$float' in tagged) return new Float(Number(tagged['$float']))
  if ('$bin' in tagged) return Buffer.from(tagged['$bin'] as string, 'hex')
  if ('$strhex' in tagged) return new ByteString(Buffer.from(tagged['$strhex'] as string, 'hex'))
  if ('$map' in tagged)
    return new Map((tagged['$map'] as [Json, Json][]).map(([key, value]) => [valueOf(key), valueOf(value)]))
  if ('$ext' in tagged) return extensionOf(tagged)
  return Object.fromEntries(Object.entries(tagged).map(([key, value]) => [key, valueOf(value)]))
}

function extensionOf(tagged: { readonly [key: string]: Json }): unknown {
  const opaque = new Extension(tagged['$ext'] as number, Buffer.from(tagged['hex'] as string, 'hex'))
  if (typeof tagged['decimal'] === 'string') {
    // The text does not tell 1e10 from 10000000000, so the value comes from the payload.
    const decimal = decodeValue(encodeValue(opaque))
    assert.ok(decimal instanceof Decimal && decimal.equals(Decimal.from(tagged['decimal'])))
    return decimal
  }
  if (typeof tagged['uuid'] === 'string') return Uuid.from(tagged['uuid'])
  if (tagged['datetime'] !== undefined) {
    const { seconds, nsec, tzoffset, tzindex } = valueOf(tagged['datetime']) as {
      seconds: number | bigint
      nsec: number
      tzoffset: number
      tzindex: number
    }
    return new Datetime({ seconds, nsec, tzoffset, tzindex })
  }
  if (tagged['interval'] !== undefined) {
    const { adjust = 0, ...units } = valueOf(tagged['interval']) as Record<string, number>
    return new Interval({ ...units, adjust: (['excess', 'none', 'last'] as const)[adjust]! })
  }
  return opaque
}
