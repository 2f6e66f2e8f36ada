"""`check_bill`: whether what attempts are billed for adds up to what engines were busy for, and whether the bill has it
all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, Engine

from thothy_ai.admin.report.drain_report import snapshot
from thothy_ai.db.statements import statement

TOLERANCE: Final = 0.01  # of an engine's busy seconds
NEGLIGIBLE: Final = 0.1  # seconds


@dataclass(frozen=True, slots=True)
class BilledSession:
    """An engine session. Seconds are the engine's own, whatever its number of devices."""

    id: str
    model_name: str
    engine_name: str
    busy_seconds: float
    billed_seconds: float
    settled: bool  # False: it still works, or ended just now, and attempts that are running are not billed yet

    @property
    def holds(self) -> bool:
        """Whether it is billed for what it was busy for, as far as that is known."""
        allowed = max(TOLERANCE * max(self.busy_seconds, self.billed_seconds), NEGLIGIBLE)
        return not self.settled or abs(self.busy_seconds - self.billed_seconds) <= allowed


@dataclass(frozen=True, slots=True)
class CheckedBill:
    """Sessions that were resident in the window, and what is wrong, as sentences."""

    sessions: tuple[BilledSession, ...]
    findings: tuple[str, ...]

    @property
    def busy_seconds(self) -> float:
        """Of settled sessions."""
        return sum(of.busy_seconds for of in self.sessions if of.settled)

    @property
    def billed_seconds(self) -> float:
        """Of settled sessions."""
        return sum(of.billed_seconds for of in self.sessions if of.settled)

    def to_json(self) -> dict[str, Any]:
        """Plain values under stable keys, described in docs/report.md."""
        return {
            "busy_seconds": self.busy_seconds,
            "billed_seconds": self.billed_seconds,
            "sessions": [asdict(of) for of in self.sessions],
            "findings": list(self.findings),
        }


def check_bill(engine: Engine, since: datetime, until: datetime) -> CheckedBill:
    """Check the sessions and the closed hours of [since, until)."""
    window = {"since": since, "until": until}
    with snapshot(engine) as connection:
        rows = connection.execute(statement("admin/check_sessions"), window)
        sessions = tuple(
            BilledSession(
                str(row.id), row.model_name, row.engine_name, row.busy_seconds, row.billed_seconds, row.settled
            )
            for row in rows
        )
        late = tuple(_late(connection, window))
    return CheckedBill(sessions, (*map(_unequal, (of for of in sessions if not of.holds)), *late))


def _unequal(of: BilledSession) -> str:
    name = of.engine_name or of.model_name
    causes = (
        "requests that are not jobs (`thothy ask`), or history that was deleted"
        if of.busy_seconds > of.billed_seconds
        else "results came after its last heartbeat"
    )
    return (
        f"engine session {of.id} ({name}) was busy for {of.busy_seconds:,.1f} s, and its attempts are billed for"
        f" {of.billed_seconds:,.1f} s: {causes}"
    )


def _late(connection: Connection, window: dict[str, datetime]) -> Iterator[str]:
    for row in connection.execute(statement("admin/check_hours"), window):
        what = f"{row.hour:%Y-%m-%d %H:%M} UTC for {row.kind} of {row.tenant} on {row.model_name or 'no model'}"
        billed = f"{row.billed_attempts:,} attempts and {row.billed_seconds:,.1f} s"
        yield f"the bill of {what} has {billed}; its attempts add up to {row.attempts:,} and {row.busy_seconds:,.1f} s"
