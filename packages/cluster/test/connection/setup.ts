/** Lua that the suites of one connection run on a real server. */

/** Spaces, users and functions; may run again after a restart. */
export const SETUP = `
box.schema.user.grant('guest', 'super', nil, nil, {if_not_exists = true})
for name, password in pairs({alice = 'secret', ['пользователь'] = '✓:@/?#%', odd = '?', odder = '}p{', empty = ''}) do
  box.schema.user.create(name, {password = password, if_not_exists = true})
  box.schema.user.grant(name, 'read,write,execute', 'universe', nil, {if_not_exists = true})
end
box.schema.user.create('nopassword', {if_not_exists = true})
box.schema.user.create('limited', {password = 'limited', if_not_exists = true})
local users = box.schema.space.create('users', {if_not_exists = true})
users:format({{name = 'id', type = 'unsigned'}, {name = 'name', type = 'string'}, {name = 'age', type = 'unsigned', is_nullable = true}})
users:create_index('pk', {parts = {{1, 'unsigned'}}, if_not_exists = true})
users:create_index('by_name', {parts = {{2, 'string'}}, unique = false, if_not_exists = true})
local hashed = box.schema.space.create('hashed', {if_not_exists = true})
hashed:create_index('pk', {type = 'hash', parts = {{1, 'unsigned'}}, if_not_exists = true})
local fiber = require('fiber')
local counter = 0
function increment() counter = counter + 1 return counter end
function counted() return counter end
function echo(...) return ... end
function sleep(seconds, value) fiber.sleep(seconds) return value end
function whoami() return box.session.user() end
function pushes(n) for i = 1, n do box.session.push(i) end return 'done' end
function create_space(name) box.schema.space.create(name):create_index('pk') end
function drop_space(name) box.space[name]:drop() end
function refuse() box.error({code = 4711, reason = 'said so'}) end
function increment_and_die() increment() os.exit(1) end
function fill(n) for i = 1, n do users:replace({i, 'user ' .. i, i % 100}) end end
`
