-- One Tarantool instance of a local cluster. It is told what to be by the JSON file that is its only argument, says
-- "orbweaver: ready" on its output when it serves, and ends when its input does: with whoever started it.
local fiber = require('fiber')
local json = require('json')
local socket = require('socket')

local function read_spec(path)
    local file = assert(io.open(path))
    local text = file:read('*a')
    file:close()
    return json.decode(text)
end

local spec = read_spec(arg[1])

fiber.create(function()
    socket.iowait(0, 'R')
    os.exit(0)
end)

if spec.vshard_path ~= nil then
    package.path = ('%s/?.lua;%s/?/init.lua;'):format(spec.vshard_path, spec.vshard_path) .. package.path
end

-- The database comes first, by itself: the first instance of a replicaset makes it with its login, the others join it by that
-- login. Only then does vshard find users, peers and a role as it would on a running instance.
local function start_box()
    local options = {
        work_dir = spec.dir,
        log = spec.dir .. '/tarantool.log',
        memtx_memory = 128 * 1024 * 1024,
        wal_mode = 'write',
        replication_timeout = 0.5,
        instance_uuid = spec.instance_uuid,
        replicaset_uuid = spec.replicaset_uuid,
        -- With elections only the leader is writable, whatever this says.
        read_only = spec.elections == nil and not spec.is_first,
        replication = spec.join_from,
        -- A new instance waits for whom it joins, and for nobody later: whose peers are not up yet must serve all the same.
        replication_connect_quorum = spec.is_joining and 1 or 0,
    }
    if spec.has_strategies then
        -- With the others the quorum is not looked at.
        options.bootstrap_strategy = 'legacy'
    end
    if spec.names ~= nil then
        options.instance_name = spec.names.instance
        options.replicaset_name = spec.names.replicaset
    end
    if spec.elections ~= nil then
        options.election_mode = spec.elections
        options.election_timeout = 1
        options.memtx_use_mvcc_engine = true
        -- The master stays the one while others are away: nobody is promoted but by the cluster.
        if spec.has_strategies then
            options.election_fencing_mode = 'off'
        else
            options.election_fencing_enabled = false
        end
        -- A single instance is its own leader at once.
        options.replication_synchro_quorum = 'N/2 + 1'
    end
    for name, value in pairs(spec.box_options or {}) do
        options[name] = value
    end
    -- The first one must be reachable while the others join, and the others while the first restarts.
    options.listen = spec.listen
    box.cfg(options)
end

local function create_user()
    box.schema.user.create(spec.user, {password = spec.password, if_not_exists = true})
    box.schema.user.grant(spec.user, 'super', nil, nil, {if_not_exists = true})
end

local function is_writable()
    return not box.info.ro
end

local function wait_writable()
    local deadline = fiber.clock() + 30
    while not is_writable() do
        if fiber.clock() > deadline then
            error('the first instance of the replicaset did not become writable')
        end
        fiber.sleep(0.01)
    end
end

-- While writes go on, those who vote are often a few rows ahead of the candidate, and vote for nobody who is behind them: the
-- election times out, and the next one finds it further.
local function be_elected()
    local deadline = fiber.clock() + 10
    while true do
        local is_elected, failure = pcall(box.ctl.promote)
        if is_elected then
            return
        end
        if tostring(failure) ~= 'timed out' or fiber.clock() > deadline then
            error(failure)
        end
    end
end

-- Called by the cluster: `orbweaver.promote(true)` on the new master, `orbweaver.promote(false)` on the old one before.
orbweaver = {}

function orbweaver.promote(is_master)
    if spec.elections ~= nil then
        if is_master then
            be_elected()
        end
        return true
    end
    box.cfg({read_only = not is_master})
    return true
end

function orbweaver.apply(config)
    vshard.storage.cfg(config, spec.vshard_name)
    return true
end

local function main()
    start_box()
    if spec.is_first then
        if spec.elections ~= nil then
            box.ctl.promote()
        end
        wait_writable()
        create_user()
    end
    if spec.peers ~= nil then
        box.cfg({replication_connect_quorum = 0, replication = spec.peers})
    end
    if spec.vshard ~= nil then
        -- A global, because vshard's own functions on a storage are called by that name.
        vshard = require('vshard')
        vshard.storage.cfg(spec.vshard, spec.vshard_name)
    end
    if spec.set_up ~= nil then
        dofile(spec.set_up)
    end
    io.stdout:write('orbweaver: ready\n')
    io.stdout:flush()
end

local is_ok, failure = xpcall(main, function(reason)
    return ('%s\n%s'):format(reason, debug.traceback())
end)
if not is_ok then
    io.stderr:write(tostring(failure), '\n')
    io.stderr:flush()
    os.exit(1)
end
