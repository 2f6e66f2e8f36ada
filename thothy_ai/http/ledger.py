"""`Ledger`: the usage of requests over HTTP, on its way to the bill.

Totals per minute, engine session, adapter, tenant and key are written every few seconds. A write replaces the total, so
that it can be repeated if its answer is lost. A killed door loses what it had not written; that usage remains among the
direct seconds of the engine session.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID, uuid4

from sqlalchemy import Engine

from thothy_ai.db.connect import reaching
from thothy_ai.db.statements import statement
from thothy_ai.engine.api import Usage
from thothy_ai.errors import DatabaseError
from thothy_ai.http import metrics
from thothy_ai.http.repeated import Repeated
from thothy_ai.http.threads import KEEPERS
from thothy_ai.settings import Settings

log = logging.getLogger(__name__)

WRITE_SECONDS = 2.0
TODAY_SECONDS = 30.0  # between two reads of the day's bill
MAX_SUMS = 10_000  # that wait for Postgres; beyond this, sums are merged by the hour
STEP: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class UsageLine:
    """The owner and the minute of a usage total."""

    minute: datetime
    session_id: UUID
    tenant: str
    key: str  # empty without keys
    adapter: str = ""  # empty: the model itself


@dataclass(slots=True)
class UsageSums:
    id: UUID = field(default_factory=uuid4)  # of their row
    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    compute_seconds: float = 0.0
    useful_seconds: float = 0.0  # of requests that were answered

    def add(self, usage: Usage, *, answered: bool) -> None:
        self.requests += 1
        self.prompt_tokens += usage.prompt_tokens
        self.cached_tokens += usage.cached_tokens
        self.output_tokens += usage.output_tokens
        self.compute_seconds += usage.compute_seconds
        self.useful_seconds += usage.compute_seconds if answered else 0.0


class Ledger:
    """Owns the usage that is not written yet. Without a database, nothing is ever written."""

    def __init__(self, settings: Settings, database: Engine | None) -> None:
        self._settings, self._database = settings, database
        self._sums: dict[UsageLine, UsageSums] = {}
        self._changed: set[UsageLine] = set()
        self._today: dict[str, float] = {}  # device-seconds on the bill, by key
        self._looked_at = -TODAY_SECONDS
        self._writes = Repeated("the writing of what requests used", WRITE_SECONDS, self._try_to_write)

    async def start(self) -> None:
        """Write the pending usage every few seconds from now on."""
        if self._database is not None:
            await self._writes.start()

    async def close(self) -> None:
        """Write what has not been written yet."""
        if await self._writes.stop():
            await self._try_to_write()

    def add(
        self, tenant: str, key: str | None, session_id: str, usage: Usage, *, adapter: str = "", answered: bool
    ) -> None:
        """Add the usage of a generation that has ended."""
        if self._database is None:
            return
        now = datetime.now(UTC).replace(second=0, microsecond=0)
        minute = now if len(self._sums) < MAX_SUMS else now.replace(minute=0)
        line = UsageLine(minute, UUID(session_id), tenant, key or "", adapter)
        self._sums.setdefault(line, UsageSums()).add(usage, answered=answered)
        self._changed.add(line)
        metrics.UNWRITTEN.set(len(self._changed))

    def spent_today(self, key: str) -> float:
        """The device-seconds of this UTC day that the bill had for a key when it was last looked at."""
        return self._today.get(key, 0.0)

    async def _try_to_write(self) -> None:
        """Write the pending usage; after a failure, it is kept for the next try."""
        changed, self._changed = self._changed, set()
        looks = time.monotonic() - self._looked_at >= TODAY_SECONDS
        try:
            lines = [(line, asdict(self._sums[line])) for line in changed]
            today = await asyncio.get_running_loop().run_in_executor(KEEPERS, self._write, lines, looks)
        except BaseException as error:  # also on cancellation: a repeated write counts once
            self._changed |= changed
            if not isinstance(error, DatabaseError):
                raise
            log.warning("what requests over HTTP used cannot be written yet: %s", error)
        else:
            if looks:
                self._today, self._looked_at = today, time.monotonic()
            over = datetime.now(UTC) - 2 * STEP
            for line in [line for line in self._sums if line.minute < over and line not in self._changed]:
                del self._sums[line]
        metrics.UNWRITTEN.set(len(self._changed))

    def _write(self, lines: Sequence[tuple[UsageLine, dict[str, Any]]], looks: bool) -> dict[str, float]:
        assert self._database is not None
        if not lines and not looks:
            return {}
        with reaching(self._settings), self._database.begin() as connection:
            if lines:
                given: dict[str, Any] = {
                    "minutes": [line.minute for line, _ in lines],
                    "session_ids": [line.session_id for line, _ in lines],
                    "adapters": [line.adapter for line, _ in lines],
                    "tenants": [line.tenant for line, _ in lines],
                    "keys": [line.key for line, _ in lines],
                }
                given |= {name: [sums[name] for _, sums in lines] for name in lines[0][1]}
                connection.execute(statement("http/record_usage"), given)
            if not looks:
                return {}
            return {row.key: row.seconds for row in connection.execute(statement("http/spent_today"))}
