import { ConfigError } from '@orbweaver/iproto'
import { expect, it } from 'vitest'
import { createRouter } from '../src/index.js'
import type { RouterOptions } from '../src/index.js'

it.each<[string, unknown, RegExp]>([
  ['no options', undefined, /expected an object with config/],
  ['no configuration', {}, /cluster configuration/],
  [
    'all that is wrong, at once',
    { config: {}, callTimeoutMs: -5, discoveryMode: 'sometimes', foo: 1 },
    /foo[\s\S]*discoveryMode[\s\S]*sometimes[\s\S]*callTimeoutMs[\s\S]*-5/,
  ],
])('createRouter refuses %s', (_what, options, message) => {
  expect(() => createRouter(options as RouterOptions)).toThrow(ConfigError)
  expect(() => createRouter(options as RouterOptions)).toThrow(message)
})
