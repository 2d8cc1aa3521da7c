-- What set-up.ts gives the demo's embedded storages, for real Tarantool: the same names, the same answers.
demo = {}
place = {}
visit = {}

-- Replicas have the spaces from their master.
function demo.create_spaces()
    local places = box.schema.space.create('place', {
        if_not_exists = true,
        format = {
            {name = 'id', type = 'unsigned'},
            {name = 'bucket_id', type = 'unsigned'},
            {name = 'name', type = 'string'},
            {name = 'country', type = 'string'},
            {name = 'population', type = 'unsigned'},
            {name = 'longitude', type = 'number'},
            {name = 'latitude', type = 'number'},
        },
    })
    places:create_index('id', {parts = {'id'}, if_not_exists = true})
    places:create_index('bucket_id', {parts = {'bucket_id'}, unique = false, if_not_exists = true})
    places:create_index('population', {parts = {'population', 'id'}, if_not_exists = true})
    local visits = box.schema.space.create('visit', {
        if_not_exists = true,
        format = {
            {name = 'id', type = 'unsigned'},
            {name = 'bucket_id', type = 'unsigned'},
            {name = 'place_id', type = 'unsigned'},
        },
    })
    visits:create_index('id', {parts = {'id'}, if_not_exists = true})
    visits:create_index('bucket_id', {parts = {'bucket_id'}, unique = false, if_not_exists = true})
    return true
end

function place.put(places)
    box.atomic(function()
        for _, tuple in ipairs(places) do
            box.space.place:replace(tuple)
        end
    end)
    return #places
end

function place.get(id)
    return box.space.place:get({id})
end

function place.count()
    return box.space.place:count()
end

-- Country to {people, places}.
function place.people_per_country()
    local people = {}
    for _, tuple in box.space.place:pairs() do
        local sum = people[tuple.country]
        if sum == nil then
            sum = {0, 0}
            people[tuple.country] = sum
        end
        sum[1] = sum[1] + tuple.population
        sum[2] = sum[2] + 1
    end
    return people
end

-- By key and not by position: the oldest servers have no positions.
function place.largest(limit, after)
    local index = box.space.place.index.population
    if after == nil then
        return index:select({}, {iterator = 'REQ', limit = limit})
    end
    return index:select({after[5], after[1]}, {iterator = 'LT', limit = limit})
end

function visit.add(id, bucket_id, place_id)
    box.space.visit:replace({id, bucket_id, place_id})
    return true
end

function visit.ids()
    local ids = {}
    for _, tuple in box.space.visit:pairs() do
        table.insert(ids, tuple.id)
    end
    return ids
end
