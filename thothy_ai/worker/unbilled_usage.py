"""`Arrears`: what attempts have cost that is not booked yet, because their own worker could not.

An engine tells what requests of a vanished worker cost to whichever worker asks; a fenced attempt's worker knows, but
may not write. The rows of such attempts appear when their lease runs out: until then their costs wait here. What is
lost with this process is divided over the lost attempts of the session when its books are closed (`reap_books`).
"""

from __future__ import annotations

from contextlib import suppress
from uuid import UUID

from thothy_ai.engine.api import Orphans
from thothy_ai.worker.job_store import Debt, Ledger
from thothy_ai.worker.outcomes import Finish

KEPT = 20_000  # the oldest go first
MAX_BATCH = 1_000
MAX_TRIES = 100  # heartbeats: a lease has run out by then, and a row that is not there is another database's

Token = tuple[UUID, int]


class Arrears:
    """Owned by the foreman's loop."""

    def __init__(self) -> None:
        self._debts: dict[Token, Debt] = {}
        self._tries: dict[Token, int] = {}

    def __len__(self) -> int:
        return len(self._debts)

    def add(self, token: Token, session_id: UUID | None, seconds: float) -> None:
        """Keep what this attempt cost on this engine."""
        if session_id is None or seconds <= 0:
            return
        self._debts[token] = Debt(*token, session_id, seconds)
        self._tries[token] = 0
        if len(self._debts) > KEPT:
            self._forget(next(iter(self._debts)))

    def add_fenced(self, finish: Finish) -> None:
        """Keep what an attempt cost whose outcome nobody wants any more."""
        self.add((finish.id, finish.attempt), finish.usage.engine_session_id, finish.usage.engine.compute_seconds)

    def take(self, orphans: Orphans) -> None:
        """Keep what an engine tells; requests that were not a worker's are nobody's debt."""
        for orphan in orphans.costs:
            with suppress(ValueError):
                self.add(_token(orphan.id), UUID(orphans.session_id), orphan.compute_seconds)

    async def book(self, ledger: Ledger) -> None:
        """Book those whose rows are there; the others wait. Raises `DatabaseError`."""
        tokens = sorted(self._debts)
        for start in range(0, len(tokens), MAX_BATCH):
            tried = [token for token in tokens[start : start + MAX_BATCH] if token in self._debts]
            found = await ledger.book([self._debts[token] for token in tried])
            for token in tried:
                self._count(token, found=token in found)

    def _count(self, token: Token, *, found: bool) -> None:
        if token in self._debts:
            self._tries[token] += 1
            if found or self._tries[token] >= MAX_TRIES:
                self._forget(token)

    def _forget(self, token: Token) -> None:
        del self._debts[token], self._tries[token]


def _token(request_id: str) -> Token:
    """The attempt that a request was for (`Claim.key`). Raises ValueError."""
    job_id, _, attempt = request_id.partition(".")
    return UUID(job_id), int(attempt)
