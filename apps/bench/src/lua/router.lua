-- A vshard router in Lua that measures itself: `bench_round(operation, in_flight, seconds)`. It ends with its input.
local clock = require('clock')
local fiber = require('fiber')
local json = require('json')
local socket = require('socket')

local file = assert(io.open(arg[1]))
local spec = json.decode(file:read('*a'))
file:close()
package.path = ('%s/?.lua;%s/?/init.lua;'):format(spec.vshard_path, spec.vshard_path) .. package.path
local vshard = require('vshard')

box.cfg({work_dir = spec.dir, log = spec.dir .. '/router.log', listen = '127.0.0.1:0', wal_mode = 'none'})
box.schema.user.grant('guest', 'super', nil, nil, {if_not_exists = true})
vshard.router.cfg(spec.config)

local SAMPLE_EVERY = 64
local operations = {
    callrw = function(index)
        local result, err = vshard.router.callrw(index % spec.config.bucket_count + 1, 'bench_add', {index, 1})
        if result == nil then error(err) end
    end,
    map = function(index)
        local result, err = vshard.router.map_callrw('bench_add', {index, 1}, {timeout = 10})
        if result == nil then error(err) end
    end,
}

function bench_ready()
    return vshard.router.info().bucket.unknown == 0
end

function bench_round(name, in_flight, seconds)
    local operation = operations[name]
    local started, cpu = clock.monotonic(), clock.proc()
    local deadline = started + seconds
    local index, samples, done = 0, {}, fiber.channel(in_flight)
    for _ = 1, in_flight do
        fiber.create(function()
            local is_ok, failure = pcall(function()
                while clock.monotonic() < deadline do
                    local own = index
                    index = index + 1
                    if own % SAMPLE_EVERY == 0 then
                        local asked = clock.monotonic()
                        operation(own)
                        table.insert(samples, (clock.monotonic() - asked) * 1e6)
                    else
                        operation(own)
                    end
                end
            end)
            done:put(is_ok and '' or tostring(failure))
        end)
    end
    for _ = 1, in_flight do
        local failure = done:get()
        if failure ~= '' then error(failure) end
    end
    table.sort(samples)
    local at = function(share) return samples[math.floor(share * (#samples - 1)) + 1] end
    return {
        requests = index,
        elapsedMs = (clock.monotonic() - started) * 1e3,
        cpuUs = (clock.proc() - cpu) * 1e6,
        p50Us = at(0.5),
        p99Us = at(0.99),
        lost = 0,
    }
end

fiber.create(function()
    socket.iowait(0, 'R')
    os.exit(0)
end)
print('ready ' .. box.info.listen:match('%d+$'))
io.flush()
