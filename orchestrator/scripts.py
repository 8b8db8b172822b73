"""The job store's atomic steps, as Lua for Redis: each runs whole or not at all, and nothing in between.

Values of a job's record are JSON. Where a field's new value is `@now`, the server's own clock is written, so
that the clocks of several orchestrators do not matter.
"""

from __future__ import annotations

_NOW = """
local function now()
  local t = redis.call('TIME')
  return string.format('%d.%06d', t[1], t[2])
end
"""

# How scripts count; `counts` is JSON: field of the hash -> by how much it grows.
_COUNT = """
local function add_up(key, counts)
  for field, amount in pairs(cjson.decode(counts)) do
    redis.call('HINCRBYFLOAT', key, field, tostring(amount))
  end
end
"""

# KEYS: record, claim, events, tokens, active, parked, counts
# ARGV: stage, segment, attempt and claim that are expected; 'dead' if that claim must have stopped, or '';
#       the claim to set or ''; its life in ms; member; park ('in', 'out', 'stay'); stream length;
#       life in seconds of a finished job, or ''; number of fields; counts;
#       field, value, ...; kind, data, ...
# Returns 1 done, 0 the job is not where it was expected to be, -1 there is no such job.
TRANSITION = (
    _NOW
    + _COUNT
    + """
local have = redis.call('HMGET', KEYS[1], 'stage', 'segment', 'attempt', 'claim', 'status')
if not have[1] then return -1 end
if have[5] == '"done"' or have[5] == '"failed"' or have[5] == '"cancelled"' then return 0 end
for i = 1, 4 do
  if have[i] ~= ARGV[i] then return 0 end
end
if ARGV[5] == 'dead' and redis.call('EXISTS', KEYS[2]) == 1 then return 0 end
local time = now()
local last = 13 + 2 * tonumber(ARGV[12])
for i = 14, last, 2 do
  local value = ARGV[i + 1]
  if value == '@now' then value = time end
  redis.call('HSET', KEYS[1], ARGV[i], value)
end
redis.call('HSET', KEYS[1], 'updated', time, 'claim', '"' .. ARGV[6] .. '"')
if ARGV[6] == '' then
  redis.call('DEL', KEYS[2])
else
  redis.call('SET', KEYS[2], ARGV[6], 'PX', ARGV[7])
end
if ARGV[9] == 'in' then
  redis.call('ZADD', KEYS[6], 'NX', time, ARGV[8])
elseif ARGV[9] == 'out' then
  redis.call('ZREM', KEYS[6], ARGV[8])
end
for i = last + 1, #ARGV, 2 do
  redis.call('XADD', KEYS[3], 'MAXLEN', '~', ARGV[10], '*', 'kind', ARGV[i], 'data', ARGV[i + 1])
end
if ARGV[11] ~= '' then
  redis.call('ZREM', KEYS[5], ARGV[8])
  redis.call('ZREM', KEYS[6], ARGV[8])
  for i = 1, 4 do redis.call('EXPIRE', KEYS[i], ARGV[11]) end
end
add_up(KEYS[7], ARGV[13])
return 1
"""
)

# KEYS: record, claim, events, tokens, active, parked, counts
# ARGV: member, life in seconds of a finished job, field of the counts, to which the job's kind is added
# Returns 1 cancelled now, 0 it was finished already, -1 there is no such job.
CANCEL = (
    _NOW
    + """
local status = redis.call('HGET', KEYS[1], 'status')
if not status then return -1 end
if status == '"done"' or status == '"failed"' or status == '"cancelled"' then return 0 end
redis.call('HSET', KEYS[1], 'status', '"cancelled"', 'claim', '""', 'updated', now())
redis.call('DEL', KEYS[2])
redis.call('XADD', KEYS[3], '*', 'kind', 'cancelled', 'data', '{}')
redis.call('ZREM', KEYS[5], ARGV[1])
redis.call('ZREM', KEYS[6], ARGV[1])
for i = 1, 4 do redis.call('EXPIRE', KEYS[i], ARGV[2]) end
local kind = redis.call('HGET', KEYS[1], 'kind')
redis.call('HINCRBYFLOAT', KEYS[7], ARGV[3] .. string.sub(kind, 2, -2), 1)
return 1
"""
)

# KEYS: record, claim, events, tokens, jobs of the tenant.  ARGV: id
# Returns 1 deleted, 0 it has not ended yet or is not there.
REMOVE = """
local status = redis.call('HGET', KEYS[1], 'status')
if status ~= '"done"' and status ~= '"failed"' and status ~= '"cancelled"' then return 0 end
redis.call('DEL', KEYS[1], KEYS[2], KEYS[3], KEYS[4])
redis.call('ZREM', KEYS[5], ARGV[1])
return 1
"""

# KEYS: record, claim, [reservations].  ARGV: claim (JSON), claim, life in ms, member, reservation's life in s
# Returns 1, or 0 when the claim is no longer ours.
BEAT = """
if redis.call('HGET', KEYS[1], 'claim') ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
if KEYS[3] then redis.call('ZADD', KEYS[3], redis.call('TIME')[1] + ARGV[5], ARGV[4]) end
return 1
"""

# KEYS: record, events.  ARGV: claim (JSON), kind, data, stream length
# Returns 1, or 0 when the claim is no longer ours.
EMIT = """
if redis.call('HGET', KEYS[1], 'claim') ~= ARGV[1] then return 0 end
redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[4], '*', 'kind', ARGV[2], 'data', ARGV[3])
return 1
"""

# KEYS: record, events, tokens, counts.  ARGV: claim (JSON), index, text, data, stream length, counts
# Returns 1 written, 2 it was there already, 0 the claim is no longer ours, -1 tokens before it are missing.
WRITE_PIECE = (
    _COUNT
    + """
if redis.call('HGET', KEYS[1], 'claim') ~= ARGV[1] then return 0 end
local count = redis.call('LLEN', KEYS[3])
local index = tonumber(ARGV[2])
if index < count then return 2 end
if index > count then return -1 end
redis.call('RPUSH', KEYS[3], ARGV[3])
redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[5], '*', 'kind', 'token', 'data', ARGV[4])
add_up(KEYS[4], ARGV[6])
return 1
"""
)

# KEYS: reservations of each candidate, the preferred ones first.  ARGV: member, life in s, capacity of each
# Takes the least loaded candidate with room. Returns its 1-based number, or 0 when all are full.
RESERVE = """
local time = tonumber(redis.call('TIME')[1])
local best, least = 0, math.huge
for i, key in ipairs(KEYS) do
  redis.call('ZREMRANGEBYSCORE', key, '-inf', time)
  local capacity = tonumber(ARGV[2 + i])
  local load = redis.call('ZCARD', key)
  if redis.call('ZSCORE', key, ARGV[1]) then load = load - 1 end
  if load < capacity and load / capacity < least then
    best, least = i, load / capacity
  end
end
for i, key in ipairs(KEYS) do
  if i ~= best then redis.call('ZREM', key, ARGV[1]) end
end
if best > 0 then
  redis.call('ZADD', KEYS[best], time + ARGV[2], ARGV[1])
  redis.call('EXPIRE', KEYS[best], 86400)
end
return best
"""

# KEYS: lock.  ARGV: owner, life in ms.  Takes or keeps the lock; returns 1 when it is ours.
LOCK = """
local owner = redis.call('GET', KEYS[1])
if owner and owner ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""

# KEYS: lock.  ARGV: owner.  Gives up the lock if it is ours.
UNLOCK = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"
