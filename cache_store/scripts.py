"""What must happen at once in the server: booking, committing, renewing and deleting, as Lua.

A tenant's index is two keys: `expiry` (sorted set: member -> time of expiry) and `book` (hash: member ->
record, and `total`, the bytes of all records). A member is `kind:name` for an object, or `upload:generation`
for the bytes reserved by an upload in progress. A record is JSON: bytes, of (member of the object),
generation, parts, kept. A tenant whose budget is not that of the settings has it in a third key, `budget`: so
it holds for whoever writes, at once. Keys of parts are derived from records inside the scripts, so all keys
of a tenant must be on one server (no Redis Cluster). Time is the server's own: clocks of clients do not
matter.
"""

from __future__ import annotations

# Parts outlive their manifest a little: a reader who still saw the manifest finds them.
GRACE_MS = 60_000

_PRELUDE = """
local expiry, book = KEYS[1], KEYS[2]
local grace = $GRACE
local prefix = string.sub(book, 1, -5)  -- without 'book'
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

-- The text under a key, or nil; a value of another type was not written by this program: it counts as none.
local function text(key)
  return redis.call('TYPE', key).ok == 'string' and redis.call('GET', key) or nil
end

local function total() return tonumber(redis.call('HGET', book, 'total') or '0') end

-- The tenant's own budget where one was set, else that of the caller's settings; as text, since a number that
-- leaves a script is cut to 64 bits.
local function budget(default) return text(prefix .. 'budget') or default end

local function record(member)
  local raw = redis.call('HGET', book, member)
  return raw and cjson.decode(raw) or nil
end

local function part(entry, i) return prefix .. entry.of .. ':' .. entry.generation .. ':' .. i end

local function unbook(member)
  local entry = record(member)
  redis.call('ZREM', expiry, member)
  if entry then
    redis.call('HDEL', book, member)
    if redis.call('HINCRBY', book, 'total', -entry.bytes) <= 0 then redis.call('HDEL', book, 'total') end
  end
  return entry
end

-- Removes a member with everything that belongs to it.
local function discard(member)
  local entry = unbook(member)
  local found = redis.call('UNLINK', prefix .. member)
  for i = 0, (entry and entry.parts or 0) - 1 do redis.call('UNLINK', part(entry, i)) end
  return entry ~= nil or found > 0
end

local function schedule(member, at)
  redis.call('ZADD', expiry, at, member)
  for _, key in ipairs({expiry, book}) do  -- the index itself lives as long as its longest-lived member
    if redis.call('PEXPIREAT', key, at + grace, 'NX') == 0 then
      redis.call('PEXPIREAT', key, at + grace, 'GT')
    end
  end
end

local function enter(member, entry, ttl)
  unbook(member)
  redis.call('HSET', book, member, cjson.encode(entry))
  redis.call('HINCRBY', book, 'total', entry.bytes)
  schedule(member, now + ttl)
end

local function forget_expired()
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', expiry, '-inf', now)) do discard(member) end
end
""".replace("$GRACE", str(GRACE_MS))

# ARGV: upload member, object member, generation, parts so far, bytes, lease in ms, budget.
# Returns {1, bytes of all others, budget that counted} when the bytes are reserved (again), {0, ...} when
# there is no room for them.
RESERVE = (
    _PRELUDE
    + """
forget_expired()
local bytes, mine, limit = tonumber(ARGV[5]), record(ARGV[1]), budget(ARGV[7])
local others = total() - (mine and mine.bytes or 0)
if others + bytes > tonumber(limit) then return {0, others, limit} end
local entry = {bytes = bytes, of = ARGV[2], generation = ARGV[3], parts = tonumber(ARGV[4])}
enter(ARGV[1], entry, tonumber(ARGV[6]))
return {1, others, limit}
"""
)

# ARGV: upload member, object member, generation, parts, bytes, TTL in ms, budget, '1' to replace, manifest.
# The SET of the manifest comes before every other change: at the memory limit it fails, and nothing has
# happened.
COMMIT = (
    _PRELUDE
    + """
forget_expired()
local upload, member, generation, parts = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local bytes, ttl, replace = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[8] == '1'
local current = text(prefix .. member)
if current and string.find(current, generation, 1, true) then return 'ok' end
if current and not replace then discard(upload) return 'exists' end
local entry = {bytes = bytes, of = member, generation = generation, parts = parts}
for i = 0, parts - 1 do
  if redis.call('EXISTS', part(entry, i)) == 0 then discard(upload) return 'lost' end
end
local old, reserved = record(member), record(upload)
local others = total() - (old and old.bytes or 0) - (reserved and reserved.bytes or 0)
if others + bytes > tonumber(budget(ARGV[7])) then discard(upload) return 'full' end
redis.call('SET', prefix .. member, ARGV[9], 'PX', ttl)
for i = 0, parts - 1 do redis.call('PEXPIRE', part(entry, i), ttl + grace) end
unbook(upload)
if old then
  unbook(member)
  entry.kept = old.kept
  for i = 0, old.parts - 1 do redis.call('UNLINK', part(old, i)) end
end
enter(member, entry, ttl)
return 'ok'
"""
)

# ARGV: member, generation, TTL in ms.
# Returns 'ok', 'gone' (no such generation), 'lost' (a part is gone; the object was dropped).
# The index comes first, because at the memory limit it is the only change that can be refused.
RENEW = (
    _PRELUDE
    + """
local member, generation, ttl = ARGV[1], ARGV[2], tonumber(ARGV[3])
local current, entry = text(prefix .. member), record(member)
if not current or not string.find(current, generation, 1, true) then return 'gone' end
if not entry or entry.generation ~= generation then discard(member) return 'lost' end
for i = 0, entry.parts - 1 do
  if redis.call('EXISTS', part(entry, i)) == 0 then discard(member) return 'lost' end
end
schedule(member, now + ttl)
redis.call('PEXPIRE', prefix .. member, ttl)
for i = 0, entry.parts - 1 do redis.call('PEXPIRE', part(entry, i), ttl + grace) end
return 'ok'
"""
)

# ARGV: member, condition ('always', 'unkept', 'absent', 'holds'), text that the manifest must hold.
# Returns 1 if something was removed.
DROP = (
    _PRELUDE
    + """
local member, condition = ARGV[1], ARGV[2]
local current, entry = text(prefix .. member), record(member)
if condition == 'unkept' and entry and entry.kept then return 0 end
if condition == 'absent' and current and current ~= '' then return 0 end
if condition == 'holds' and not (current and string.find(current, ARGV[3], 1, true)) then return 0 end
return discard(member) and 1 or 0
"""
)

# ARGV: member. Returns 1 if the object is there and is now kept.
KEEP = (
    _PRELUDE
    + """
local entry = record(ARGV[1])
if not entry or not text(prefix .. ARGV[1]) then return 0 end
entry.kept = true
redis.call('HSET', book, ARGV[1], cjson.encode(entry))
return 1
"""
)

# ARGV: budget. Returns {bytes booked, members, budget}.
USAGE = (
    _PRELUDE
    + """
forget_expired()
return {total(), redis.call('ZCARD', expiry), budget(ARGV[1])}
"""
)

# ARGV: most members to remove. Returns {objects removed, members left}.
CLEAR = (
    _PRELUDE
    + """
local objects = 0
for _, member in ipairs(redis.call('ZRANGE', expiry, 0, tonumber(ARGV[1]) - 1)) do
  if discard(member) and string.sub(member, 1, 7) ~= 'upload:' then objects = objects + 1 end
end
return {objects, redis.call('ZCARD', expiry)}
"""
)
