/* Tarantool's own client through the proxy, in front of a server of its own version: what it gets is what it gets directly. */
import { hash2Of } from '@orbweaver/iproto'
import { createProxy, type Proxy } from '@orbweaver/proxy'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { runLua } from '../lua-client.js'
import { isAtLeast, missingTarantool, startTarantool, tarantoolVersion, type TarantoolServer } from '../tarantool.js'

const SETUP = `
box.schema.user.create('alice', {password = 'secret', if_not_exists = true})
box.schema.user.grant('alice', 'super', nil, nil, {if_not_exists = true})
box.schema.user.create('bob', {password = 'b', if_not_exists = true})
local city = box.schema.space.create('city', {if_not_exists = true})
city:format({{name = 'id', type = 'unsigned'}, {name = 'name', type = 'string'}, {name = 'people', type = 'unsigned'}})
city:create_index('id', {parts = {{1, 'unsigned'}}, if_not_exists = true})
city:create_index('people', {parts = {{3, 'unsigned'}, {1, 'unsigned'}}, if_not_exists = true})
function echo(...) return ... end
function pushes(n) for i = 1, n do box.session.push(i) end return 'done' end
function refuse() box.error({code = 4711, reason = 'said so'}) end
`

/** The same program, told only where to connect. */
const PROGRAM = (uri: string): string => `
local c = net.connect('alice:secret@${uri}')
show(c.state)
show(c.space.city:replace({1, 'Helsinki', 658864}))
show(c.space.city:replace({2, 'Tampere', 244000}))
show(c.space.city:update({2}, {{'+', 'people', 1000}}))
show(c.space.city:upsert({2, 'Tampere', 1}, {{'+', 3, 1}}))
show(c.space.city:select({2}))
show(c.space.city.index.people:select({}, {iterator = 'REQ', limit = 1}))
show(c.space.city:get(1))
show(c:call('echo', {1, 'two', {3}, box.NULL, 5.5}))
show(c:eval('return ..., box.session.user()', {18446744073709551615ULL}))
show(c:execute('SELECT 1 AS "one", ? AS "two"', {'x'}).rows)
show(c:execute('UPDATE "city" SET "people" = 0 WHERE "id" = 3').row_count)
local pushed = {}
show(c:call('pushes', {3}, {on_push = function(_, message) table.insert(pushed, message) end}), pushed)
show(try(c.call, c, 'refuse'))
show(try(c.call, c, 'nobody'))
show(try(c.space.city.insert, c.space.city, {1, 'Turku', 6}))
show(try(c.space.city.insert, c.space.city, {'seven', 'Turku', 6}))
show(try(c.eval, c, 'error("it broke")'))
show(c.space.city:delete({1}))
show(c:ping())
local wrong = net.connect('alice:wrong@${uri}')
show(wrong.state:match('error') ~= nil)
local poor = net.connect('bob:b@${uri}')
show(poor.state)
show(try(poor.call, poor, 'echo'))
local guest = net.connect('${uri}')
show(guest.state)
show(try(guest.call, guest, 'echo'))
`

describe.skipIf(missingTarantool !== undefined)(
  `net.box through the proxy, Tarantool ${tarantoolVersion}${missingTarantool === undefined ? '' : ` (skipped: ${missingTarantool})`}`,
  () => {
    let server: TarantoolServer
    let proxy: Proxy
    let uri: string

    beforeAll(async () => {
      server = await startTarantool({ lua: SETUP })
      proxy = createProxy({
        targets: { one: { uri: server.uri } },
        rw: 'one',
        credentials: {
          mode: 'static',
          users: {
            alice: Buffer.from(hash2Of('secret')).toString('base64'),
            bob: Buffer.from(hash2Of('b')).toString('base64'),
          },
        },
      })
      const address = await proxy.listen({ host: '127.0.0.1', port: 0 })
      uri = 'port' in address ? `127.0.0.1:${address.port}` : ''
    })

    afterAll(async () => {
      await proxy.close({ graceMs: 0 })
      await server.stop()
    })

    it('connects, works on spaces by name, calls, evaluates, gets pushes and errors: all as directly', async () => {
      const direct = await runLua(PROGRAM(server.uri))
      const shown = await runLua(PROGRAM(uri))
      expect(direct.length).toBe(25)
      expect(shown).toEqual(direct)
    })

    it.skipIf(!isAtLeast(2, 10))('has streams and watchers', async () => {
      const shown = await runLua(`
      local c = net.connect('alice:secret@${uri}')
      local stream = c:new_stream()
      stream:begin()
      stream.space.city:replace({50, 'Oulu', 1})
      show(#c.space.city:select({50}))
      stream:commit()
      show(#c.space.city:select({50}))
      stream:begin()
      stream.space.city:delete({50})
      stream:rollback()
      show(#c.space.city:select({50}))
      local fiber = require('fiber')
      local seen = {}
      c:watch('key', function(_, value) table.insert(seen, value or 'nothing') end)
      c:eval("box.broadcast('key', 1)")
      for _ = 1, 100 do if seen[#seen] == 1 then break end fiber.sleep(0.01) end
      show(seen[#seen])
`)
      expect(shown).toEqual([[0], [1], [1], [1]])
    })

    it('prepares statements, executes them by number, and is told when one is gone', async () => {
      const shown = await runLua(`
      local c = net.connect('alice:secret@${uri}')
      local statement = c:prepare('SELECT ? AS "x"')
      show(c:execute(statement.stmt_id, {7}).rows)
      show(c:execute(statement.stmt_id, {8}).rows)
      c:unprepare(statement.stmt_id)
      show(try(c.execute, c, statement.stmt_id, {9}))`)
      expect(shown.slice(0, 2)).toEqual([[[[7]]], [[[8]]]])
      expect(shown[2]!.slice(0, 2)).toEqual([false, 211])
    })
  },
)
