"""`Accounts`: a request's way through its key's limits, and from its generations to the bill."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from thothy_ai.db.api_keys import UNLIMITED, KeyLimits
from thothy_ai.engine.api import EngineInfo, FinishReason
from thothy_ai.engine.api.errors import EngineError
from thothy_ai.engine.serving.client import Generation
from thothy_ai.http.access import Caller
from thothy_ai.http.asgi import Exchange
from thothy_ai.http.ledger import Ledger
from thothy_ai.http.limits import Limiter

BYTES_PER_TOKEN = 4  # an estimate: a body's tokens are not counted before it runs
END_SECONDS = 60.0  # for an engine to report the usage of an aborted generation


@dataclass(slots=True)
class Account:
    """The usage of one request: its generations in an engine session."""

    lease: str = field(default_factory=lambda: uuid.uuid4().hex)
    taken: int = 0  # tokens, reserved before the request ran
    generations: list[tuple[EngineInfo, str, Generation]] = field(default_factory=list)

    def follow(self, info: EngineInfo, generation: Generation, adapter: str) -> None:
        """Note that a generation was submitted, with an adapter or an empty name."""
        self.generations.append((info, adapter, generation))


class Accounts:
    """Owns the accounts that are not settled yet."""

    def __init__(self, limiter: Limiter, ledger: Ledger) -> None:
        self._limiter, self._ledger = limiter, ledger
        self._settling: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        await self._limiter.start()
        await self._ledger.start()

    async def close(self) -> None:
        """Settle the ended requests, and write them to the ledger."""
        if self._settling:
            await asyncio.wait(self._settling, timeout=END_SECONDS)
        await self._ledger.close()
        await self._limiter.close()

    async def count(self, exchange: Exchange, caller: Caller) -> None:
        """Count a request that generates no text; `ApiError` 429 if it exceeds a limit."""
        if caller.limits.requests_per_minute is not None:
            await self._admit(exchange, caller, KeyLimits(caller.limits.requests_per_minute), Account())

    @asynccontextmanager
    async def open(self, exchange: Exchange, caller: Caller) -> AsyncIterator[Account]:
        """An account for a generation request whose body is not read yet; `ApiError` 429 if a limit is reached."""
        account = Account(taken=exchange.size // BYTES_PER_TOKEN)
        if caller.limits != UNLIMITED:
            await self._admit(exchange, caller, caller.limits, account)
        try:
            yield account
        finally:
            task = asyncio.create_task(self._settle(caller, account))
            self._settling.add(task)
            task.add_done_callback(self._settling.discard)

    async def take(self, exchange: Exchange, caller: Caller, account: Account, size: int) -> None:
        """Reserve the tokens of a body whose size was not announced; `ApiError` 429 if too few are left."""
        more = size // BYTES_PER_TOKEN - account.taken
        if caller.limits.tokens_per_minute is not None and more > 0:
            limits = KeyLimits(tokens_per_minute=caller.limits.tokens_per_minute)
            await self._admit(exchange, caller, limits, Account(account.lease, more))
            account.taken += more

    async def _admit(self, exchange: Exchange, caller: Caller, limits: KeyLimits, account: Account) -> None:
        key = caller.key or ""
        room = await self._limiter.admit(key, limits, account.lease, account.taken, self._ledger.spent_today(key))
        exchange.headers |= room.headers(limits)
        room.refuse(limits)

    async def _settle(self, caller: Caller, account: Account) -> None:
        tokens, seconds = -account.taken, 0.0
        for info, adapter, generation in account.generations:
            answered = False
            with suppress(EngineError, TimeoutError):
                async with asyncio.timeout(END_SECONDS):
                    answered = (await generation.result()).finish_reason is not FinishReason.ABORTED
            if (usage := generation.usage) is not None:
                self._ledger.add(caller.tenant, caller.key, info.session_id, usage, adapter=adapter, answered=answered)
                tokens += usage.prompt_tokens + usage.output_tokens
                seconds += usage.compute_seconds * max(1, len(info.devices))
        if caller.key is not None and caller.limits != UNLIMITED:
            await self._limiter.settle(caller.key, caller.limits, account.lease, tokens, seconds)
