/* Tarantool's own client at an embedded storage: it must not be able to tell. */
import { createStorage, values } from '@orbweaver/storage'
import type { Storage } from '@orbweaver/storage'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { missingLuaClient, runLua } from '../lua-client.js'

const missing = missingLuaClient()

describe.skipIf(missing !== undefined)(
  `net.box at an embedded storage${missing === undefined ? '' : ` (skipped: ${missing})`}`,
  () => {
    let storage: Storage
    let uri: string

    beforeAll(async () => {
      storage = createStorage({
        name: 'one',
        users: { alice: { password: 'secret', rights: 'super' }, bob: { password: 'b' } },
      })
      storage.createSpace('city', {
        format: [
          { name: 'id', type: 'unsigned' },
          { name: 'name', type: 'string' },
          { name: 'people', type: 'unsigned' },
        ],
        indexes: [
          { name: 'id', parts: ['id'] },
          { name: 'people', parts: ['people', 'id'] },
        ],
      })
      storage.define('echo', (_context, ...args) => values(...args))
      storage.define('fail', () => {
        throw new Error('it broke')
      })
      const address = await storage.listen({ host: '127.0.0.1', port: 0 })
      uri = 'port' in address ? `127.0.0.1:${address.port}` : ''
    })

    afterAll(() => storage.close())

    it('connects, reads the schema, and works on spaces by name', async () => {
      const shown = await runLua(`
      local c = net.connect('alice:secret@${uri}')
      show(c.state, c.peer_uuid)
      show(c.space.city:insert({1, 'Helsinki', 658864}))
      show(c.space.city:replace({2, 'Tampere', 244000}))
      show(c.space.city:update({2}, {{'+', 'people', 1000}}))
      show(c.space.city:upsert({2, 'Tampere', 1}, {{'+', 3, 1}}))
      show(c.space.city:select({2}))
      show(c.space.city.index.people:select({}, {iterator = 'REQ', limit = 1}))
      show(c.space.city:get(1))
      show(c.space.city:delete({1}))
      show(#c.space.city:select({}))
      show(c:ping())`)
      expect(shown).toEqual([
        ['active', storage.uuid],
        [[1, 'Helsinki', 658_864]],
        [[2, 'Tampere', 244_000]],
        [[2, 'Tampere', 245_000]],
        [],
        [[[2, 'Tampere', 245_001]]],
        [[[1, 'Helsinki', 658_864]]],
        [[1, 'Helsinki', 658_864]],
        [[1, 'Helsinki', 658_864]],
        [1],
        [true],
      ])
    })

    it('calls functions and gets errors with their codes', async () => {
      const shown = await runLua(`
      local c = net.connect('alice:secret@${uri}')
      show(c:call('echo', {1, 'two', {3}}))
      show(try(c.call, c, 'fail'))
      show(try(c.call, c, 'nobody'))
      c.space.city:replace({7, 'Turku', 5})
      show(try(c.space.city.insert, c.space.city, {7, 'Turku', 6}))
      show(try(c.space.city.insert, c.space.city, {'seven', 'Turku', 6}))
      show(try(c.eval, c, 'return 1'))`)
      expect(shown[0]).toEqual([1, 'two', [3]])
      // An error of Lua's type has no code on this client; its text is what the function threw.
      expect([shown[1]![0], shown[1]![2]]).toEqual([false, 'it broke'])
      expect(shown.slice(2).map(([ok, code]) => [ok, code])).toEqual([
        [false, 33],
        [false, 3],
        [false, 23],
        [false, 5],
      ])
    })

    it('is refused with a wrong password, and without rights', async () => {
      const shown = await runLua(`
      local wrong = net.connect('alice:wrong@${uri}')
      show(wrong.state, wrong.error)
      local poor = net.connect('bob:b@${uri}')
      show(poor.state)
      show(try(poor.call, poor, 'echo'))
      show(try(poor.space.city.select, poor.space.city, {}))`)
      expect(shown[0]![0]).toMatch(/error/)
      expect(shown[1]).toEqual(['active'])
      expect(shown.slice(2).map(([ok, code]) => [ok, code])).toEqual([
        [false, 42],
        [false, 42],
      ])
    })

    it('sees a space made after it connected', async () => {
      storage.createSpace('late', { format: [{ name: 'id', type: 'unsigned' }] })
      const [first, second] = await runLua(`
      local c = net.connect('alice:secret@${uri}')
      show(c.space.late ~= nil)
      show(c.space.late:insert({1}))`)
      expect([first, second]).toEqual([[true], [[1]]])
    })
  },
)
