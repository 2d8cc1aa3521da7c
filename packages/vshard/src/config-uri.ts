/* Addresses of instances in a configuration. Whoever dials them checks their parts; here it only matters that they are
 * addresses at all, and what login they carry. */
import { fieldOf } from './lua-map.js'

/** An address, and the login in front of it. */
export interface ConfigUri {
  /** As text, whatever form it was given in. */
  readonly uri: string
  readonly user: string | undefined
  readonly password: string | undefined
}

/**
 * An address in one of the forms vshard takes: a text, a port number, or a map with `uri` (and perhaps `login` and
 * `password`).
 * @returns undefined when it is none of them
 */
export function decodeUri(value: unknown): ConfigUri | undefined {
  if (typeof value === 'number') return Number.isSafeInteger(value) && value >= 0 ? plain(String(value)) : undefined
  if (typeof value === 'string') return decodeText(value)
  const inner = decodeInner(fieldOf(value, 'uri'))
  const [login, password] = [fieldOf(value, 'login'), fieldOf(value, 'password')]
  if (inner === undefined || typeof login !== 'string' || inner.user !== undefined) return inner
  const secret = typeof password === 'string' ? password : ''
  const credentials = `${encodeURIComponent(login)}:${encodeURIComponent(secret)}`
  return { uri: `${credentials}@${inner.uri}`, user: login, password: secret }
}

function decodeInner(value: unknown): ConfigUri | undefined {
  return typeof value === 'string' || typeof value === 'number' ? decodeUri(value) : undefined
}

function decodeText(uri: string): ConfigUri | undefined {
  const match = /^(?:[a-z][\w+.-]*:\/\/)?(?:([^@/\s]*)@)?([^\s@]+)$/i.exec(uri)
  if (match === null) return undefined
  const [, login] = match
  if (login === undefined) return plain(uri)
  const colon = login.indexOf(':')
  const user = decodeEscapes(colon < 0 ? login : login.slice(0, colon))
  const password = decodeEscapes(colon < 0 ? '' : login.slice(colon + 1))
  return user === undefined || password === undefined || user === '' ? undefined : { uri, user, password }
}

function plain(uri: string): ConfigUri {
  return { uri, user: undefined, password: undefined }
}

/** A text whose escapes are no text makes the whole address none. */
function decodeEscapes(part: string): string | undefined {
  try {
    return decodeURIComponent(part)
  } catch (error) {
    if (error instanceof URIError) return undefined
    throw error
  }
}
