"""Checks that the engines' busy seconds are accounted for, and that closed hours contain all of them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Engine

from thothy_ai.admin.report.drain_report import snapshot
from thothy_ai.db.statements import statement

TOLERANCE: Final = 0.01  # of an engine's busy seconds
NEGLIGIBLE: Final = 0.1  # seconds


@dataclass(frozen=True, slots=True)
class BilledSession:
    """An engine session. Seconds are not multiplied by the number of devices."""

    id: str
    model_name: str
    engine_name: str
    busy_seconds: float
    direct_seconds: float  # on requests outside the queue
    interactive_seconds: float  # the part of these on requests over HTTP, which is billed
    billed_seconds: float  # billed to attempts
    unattributed_seconds: float  # neither direct nor billed
    settled: bool  # False while the engine works and just after its end, when running attempts are not billed yet

    @property
    def holds(self) -> bool:
        allowed = max(TOLERANCE * max(self.busy_seconds, self.billed_seconds), NEGLIGIBLE)
        return not self.settled or abs(self.busy_seconds - self.direct_seconds - self.billed_seconds) <= allowed


@dataclass(frozen=True, slots=True)
class CheckedBill:
    sessions: tuple[BilledSession, ...]  # sessions resident in the window
    findings: tuple[str, ...]  # as sentences

    @property
    def busy_seconds(self) -> float:
        return sum(of.busy_seconds for of in self.sessions if of.settled)

    @property
    def direct_seconds(self) -> float:
        return sum(of.direct_seconds for of in self.sessions if of.settled)

    @property
    def interactive_seconds(self) -> float:
        return sum(of.interactive_seconds for of in self.sessions if of.settled)

    @property
    def billed_seconds(self) -> float:
        return sum(of.billed_seconds for of in self.sessions if of.settled)

    @property
    def unattributed_seconds(self) -> float:
        return sum(of.unattributed_seconds for of in self.sessions)

    def to_json(self) -> dict[str, Any]:
        """Plain values under stable keys, described in docs/report.md."""
        return {
            "busy_seconds": self.busy_seconds,
            "direct_seconds": self.direct_seconds,
            "interactive_seconds": self.interactive_seconds,
            "billed_seconds": self.billed_seconds,
            "unattributed_seconds": self.unattributed_seconds,
            "sessions": [asdict(of) for of in self.sessions],
            "findings": list(self.findings),
        }


def check_bill(engine: Engine, since: datetime, until: datetime) -> CheckedBill:
    """Check the sessions and the closed hours of [since, until)."""
    window = {"since": since, "until": until}
    findings = []
    with snapshot(engine) as connection:
        sessions = tuple(
            BilledSession(
                str(row.id),
                row.model_name,
                row.engine_name,
                row.busy_seconds,
                row.direct_seconds,
                row.interactive_seconds,
                row.billed_seconds,
                row.unattributed_seconds,
                row.settled,
            )
            for row in connection.execute(statement("admin/check_sessions"), window)
        )
        hours = connection.execute(statement("admin/check_hours"), window).all()
    for of in (of for of in sessions if not of.holds):
        cause = "results came after its last heartbeat"
        if of.unattributed_seconds:
            cause = f"{of.unattributed_seconds:,.1f} s are unattributed"
        past = f" for {of.direct_seconds:,.1f} s past the queue," if of.direct_seconds else ""
        findings.append(
            f"engine session {of.id} ({of.engine_name or of.model_name}) was busy for {of.busy_seconds:,.1f} s,{past}"
            f" and its attempts are billed for {of.billed_seconds:,.1f} s: {cause}"
        )
    for row in hours:
        on = row.adapter or row.model_name or "no model"
        what = f"{row.hour:%Y-%m-%d %H:%M} UTC for {row.kind} of {row.tenant} on {on}"
        billed = f"{row.billed_attempts:,} attempts and {row.billed_seconds:,.1f} s"
        added = f"{row.attempts:,} and {row.busy_seconds:,.1f} s"
        findings.append(f"the bill of {what} has {billed}; its attempts add up to {added}")
    return CheckedBill(sessions, tuple(findings))
