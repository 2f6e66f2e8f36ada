"""The limits of keys: what is left of them is in Redis, shared by all doors.

Requests and tokens per minute are buckets that fill evenly. A request first takes an estimate by its body's size; when
it ends, it takes what it used beyond that, so a bucket can be overdrawn. Running requests hold leases, which expire if
a door is killed. While Redis is unreachable, each door counts for itself.
"""

from __future__ import annotations

import logging
import math
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Final

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.commands.core import AsyncScript
from redis.exceptions import RedisError

from thothy_ai.db.api_keys import KeyLimits
from thothy_ai.http import metrics
from thothy_ai.http.errors import ApiError
from thothy_ai.http.repeated import Repeated
from thothy_ai.settings import Settings

log = logging.getLogger(__name__)

LEASE_SECONDS, RENEW_SECONDS = 30.0, 10.0  # of a running request
ANSWER_SECONDS = 0.5  # for Redis to answer: a request waits for it
AWAY_SECONDS = 2.0  # until Redis is asked again
CONNECTIONS = 16
REMEMBERED = 10_000  # keys, in this process
DAY: Final = 86_400

# A key's state is one JSON text: the buckets' levels with their times, and the seconds used on a day.
STATE: Final = """
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local day = math.floor(now / 86400)
local state = cjson.decode(redis.call('GET', KEYS[1]) or '{}')
local function level(name, limit)
    local was = state[name]
    return was and math.min(limit, was[1] + math.max(0, now - was[2]) * limit / 60) or limit
end
local function used()
    return state.used and state.used[1] == day and state.used[2] or 0
end
local function keep()
    redis.call('SET', KEYS[1], cjson.encode(state), 'PX', 172800000)
end
"""
# ARGV: requests and tokens per minute, concurrent requests, seconds per day (empty: no limit), tokens that this request
# may take, its lease, how long a lease is, and the seconds that the bill has for the day.
ADMIT: Final = (
    STATE
    + """
local per = {tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])}
local taken = tonumber(ARGV[5])
local requests, tokens = per[1] and level('requests', per[1]) or 0, per[2] and level('tokens', per[2]) or 0
local spent = math.max(used(), tonumber(ARGV[8]))
local denied, wait = '', 0
if per[3] then
    redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
    if redis.call('ZCARD', KEYS[2]) >= per[3] then denied, wait = 'concurrent', 1 end
end
if per[2] and tokens < math.min(taken, per[2]) then
    denied, wait = 'tokens', (math.min(taken, per[2]) - tokens) * 60 / per[2]
end
if per[1] and requests < 1 then denied, wait = 'requests', (1 - requests) * 60 / per[1] end
if per[4] and spent >= per[4] then denied, wait = 'seconds', (day + 1) * 86400 - now end
if denied == '' then
    requests, tokens = requests - 1, tokens - taken
    if per[1] then state.requests = {requests, now} end
    if per[2] then state.tokens = {tokens, now} end
    if per[4] then state.used = {day, spent} end
    keep()
    if per[3] then
        redis.call('ZADD', KEYS[2], now + ARGV[7], ARGV[6])
        redis.call('PEXPIRE', KEYS[2], 172800000)
    end
end
return {denied, tostring(wait), tostring(requests), tostring(tokens)}
"""
)
# ARGV: tokens per minute (empty: no limit), tokens and seconds that were used beyond what was taken, the lease.
SETTLE: Final = (
    STATE
    + """
local per = tonumber(ARGV[1])
if per then state.tokens = {math.min(per, level('tokens', per) - ARGV[2]), now} end
state.used = {day, used() + ARGV[3]}
keep()
redis.call('ZREM', KEYS[2], ARGV[4])
return 1
"""
)
# ARGV: how long a lease is, and the leases.
RENEW: Final = """
local time = redis.call('TIME')
for number = 2, #ARGV do
    redis.call('ZADD', KEYS[2], time[1] + time[2] / 1000000 + ARGV[1], ARGV[number])
end
redis.call('PEXPIRE', KEYS[2], 172800000)
return 1
"""
REFUSALS: Final = {
    "requests": "{0.requests_per_minute:,} requests per minute",
    "tokens": "{0.tokens_per_minute:,} tokens per minute",
    "concurrent": "{0.concurrent_requests:,} requests at the same time",
    "seconds": "{0.interactive_seconds_per_day:,g} GPU-seconds of requests for text per day",
}


@dataclass(frozen=True, slots=True)
class Room:
    """What is left of a key's limits after a request took its part, or the limit that `denied` it, and for how long."""

    denied: str
    wait: float
    requests: float
    tokens: float

    def headers(self, limits: KeyLimits) -> dict[bytes, bytes]:
        """What is left, as OpenAI's `x-ratelimit-*` headers."""
        bounds = (
            ("requests", limits.requests_per_minute, self.requests), ("tokens", limits.tokens_per_minute, self.tokens),
        )  # fmt: skip
        return {
            f"x-ratelimit-{part}-{name}".encode(): value.encode()
            for name, limit, left in bounds
            if limit is not None
            for part, value in (
                ("limit", str(limit)),
                ("remaining", str(max(0, math.floor(left)))),
                ("reset", spelled((limit - left) * 60 / limit)),
            )
        }

    def refuse(self, limits: KeyLimits) -> None:
        """ApiError 429 if a limit denied the request."""
        if self.denied:
            seconds = max(1, math.ceil(self.wait))
            says = f"the key's limit of {REFUSALS[self.denied].format(limits)} is reached; try again in {seconds:,} s"
            raise ApiError(429, says, code="rate_limit_exceeded", retry_after=seconds)


def spelled(seconds: float) -> str:
    """A duration in the form of OpenAI's headers: 120ms, 1.5s, 6m0s."""
    if seconds < 1:
        return f"{math.ceil(max(0.0, seconds) * 1000)}ms"
    minutes, rest = divmod(seconds, 60)
    return f"{minutes:.0f}m{rest:.0f}s" if minutes else f"{rest:.3g}s"


@dataclass(slots=True)
class Local:
    """What one key has left, as far as this process knows, by the same rules as in Redis."""

    levels: dict[str, tuple[float, float]] = field(default_factory=dict)
    used: tuple[int, float] = (0, 0.0)  # of a day

    def admit(self, limits: KeyLimits, taken: int, running: int, spent: float, now: float) -> Room:
        requests, tokens = limits.requests_per_minute, limits.tokens_per_minute
        left = [self._level("requests", requests, now), self._level("tokens", tokens, now)]
        day = int(now // DAY)
        spent = max(spent, self.used[1] if self.used[0] == day else 0.0)
        if limits.interactive_seconds_per_day is not None and spent >= limits.interactive_seconds_per_day:
            return Room("seconds", (day + 1) * DAY - now, *left)
        if requests is not None and left[0] < 1:
            return Room("requests", (1 - left[0]) * 60 / requests, *left)
        if tokens is not None and left[1] < (wanted := min(taken, tokens)):
            return Room("tokens", (wanted - left[1]) * 60 / tokens, *left)
        if limits.concurrent_requests is not None and running >= limits.concurrent_requests:
            return Room("concurrent", 1.0, *left)
        left = [left[0] - 1, left[1] - taken]
        bounds = (("requests", requests), ("tokens", tokens))
        self.levels |= {
            name: (level, now) for level, (name, limit) in zip(left, bounds, strict=True) if limit is not None
        }
        if limits.interactive_seconds_per_day is not None:
            self.used = (day, spent)
        return Room("", 0.0, *left)

    def settle(self, limits: KeyLimits, more: int, seconds: float, now: float) -> None:
        if (limit := limits.tokens_per_minute) is not None:
            self.levels["tokens"] = (min(limit, self._level("tokens", limit, now) - more), now)
        day = int(now // DAY)
        self.used = (day, seconds + (self.used[1] if self.used[0] == day else 0.0))

    def _level(self, name: str, limit: int | None, now: float) -> float:
        if limit is None:
            return 0.0
        level, at = self.levels.get(name, (float(limit), now))
        return min(limit, level + max(0.0, now - at) * limit / 60)


class Limiter:
    """Admits requests by their keys' limits, and settles their usage. Without Redis, it counts for this
    process alone.
    """

    def __init__(self, settings: Settings) -> None:
        self._prefix = f"{settings.queue_prefix}limits:"
        self._redis: Redis | None = None
        self._scripts: dict[str, AsyncScript] = {}
        if settings.redis_url is not None:
            pool = BlockingConnectionPool.from_url(
                settings.require_redis_url(),
                max_connections=CONNECTIONS,
                timeout=ANSWER_SECONDS,
                socket_timeout=ANSWER_SECONDS,
                socket_connect_timeout=ANSWER_SECONDS,
                retry=Retry(NoBackoff(), 0),
                decode_responses=True,
            )
            self._redis = Redis.from_pool(pool)
            self._scripts = {script: self._redis.register_script(script) for script in (ADMIT, SETTLE, RENEW)}
        self._away, self._retry_at = False, 0.0
        self._local: OrderedDict[str, Local] = OrderedDict()
        self._running: dict[str, set[str]] = {}  # leases of this process, by key
        self._renewals = Repeated("the renewal of leases", RENEW_SECONDS, self._renew)

    async def start(self) -> None:
        """Keep renewing the leases of running requests."""
        await self._renewals.start()

    async def close(self) -> None:
        await self._renewals.stop()
        if self._redis is not None:
            await self._redis.aclose()

    async def admit(self, key: str, limits: KeyLimits, lease: str, taken: int, spent: float) -> Room:
        """Whether a request may run. It takes at least `taken` tokens, and holds this lease until it is settled.
        `spent`: seconds on the day's bill.
        """
        bounds = (
            limits.requests_per_minute, limits.tokens_per_minute, limits.concurrent_requests,
            limits.interactive_seconds_per_day,
        )  # fmt: skip
        words = ["" if bound is None else bound for bound in bounds]
        found = await self._ask(ADMIT, key, *words, taken, lease, LEASE_SECONDS, spent)
        if found is None:
            room = self._here(key).admit(limits, taken, len(self._running.get(key, ())), spent, time.time())
        else:
            room = Room(found[0], float(found[1]), float(found[2]), float(found[3]))
        if limits.concurrent_requests is not None and not room.denied:
            self._running.setdefault(key, set()).add(lease)
        return room

    async def settle(self, key: str, limits: KeyLimits, lease: str, more: int, seconds: float) -> None:
        """Give back a request's lease, and take the tokens and seconds that it used beyond its first share."""
        held = self._running.get(key, set())
        held.discard(lease)
        if not held:
            self._running.pop(key, None)
        limit = "" if limits.tokens_per_minute is None else limits.tokens_per_minute
        if await self._ask(SETTLE, key, limit, more, seconds, lease) is None:
            self._here(key).settle(limits, more, seconds, time.time())

    async def _renew(self) -> None:
        for key, leases in list(self._running.items()):
            renewed = list(leases)
            await self._ask(RENEW, key, LEASE_SECONDS, *renewed)
            for lease in set(renewed) - self._running.get(key, set()):  # given back meanwhile
                await self._ask(SETTLE, key, "", 0, 0, lease)

    def _here(self, key: str) -> Local:
        """This process's state of a key's limits. The least recently used keys are forgotten."""
        found = self._local.setdefault(key, Local())
        self._local.move_to_end(key)
        if len(self._local) > REMEMBERED:
            self._local.popitem(last=False)
        return found

    async def _ask(self, script: str, key: str, *words: str | float) -> Any:
        """A script's answer; None while Redis is unreachable. Then one request per `AWAY_SECONDS` tries again."""
        now = time.monotonic()
        if self._redis is None or now < self._retry_at:
            return None
        self._retry_at = now + AWAY_SECONDS if self._away else now
        try:
            answer = await self._scripts[script]((f"{self._prefix}{key}", f"{self._prefix}{key}:running"), words)
        except (RedisError, OSError) as error:
            if not self._away:
                log.warning("limits of keys are kept by this process alone, since Redis is away: %s", error)
            self._retry_at = time.monotonic() + AWAY_SECONDS
        else:
            self._retry_at = now
        self._away = self._retry_at > now
        metrics.OWN_LIMITS.set(self._away)
        return None if self._away else answer
