"""Reads the usage of a window per hour, tenant, kind, model and adapter.

Closed hours are read from `usage_by_hour`, which records every later change. Open hours, and the parts of hours at the
window's ends, are summed from attempts, jobs and engine sessions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import datetime
from itertools import chain
from typing import Any

from sqlalchemy import Connection, Row

from thothy_ai.admin.report.yields import Yields
from thothy_ai.db.statements import statement


@dataclass(frozen=True, slots=True)
class BilledUsage(Yields):
    """Sums of usage. Seconds are device-seconds: an engine on two GPUs uses two per second."""

    attempts: int = 0
    accepted: int = 0  # artifacts, one for each succeeded job
    rejected: int = 0  # attempts whose output was rejected
    lost: int = 0  # attempts that were lost or released
    dead: int = 0  # jobs
    cancelled: int = 0
    expired: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    saved_tokens: int = 0
    resident_seconds: float = 0.0
    busy_seconds: float = 0.0
    useful_seconds: float = 0.0  # the part of the busy seconds for accepted artifacts
    verification_seconds: float = 0.0
    requests: int = 0  # over HTTP, outside the queue
    interactive_seconds: float = 0.0  # the part of the busy seconds for these requests
    with_output: int = 0  # jobs that ended and produced output
    with_artifact: int = 0  # jobs with an artifact that no gate rejects
    clean: int = 0  # jobs with an artifact that has no findings
    to_edit: int = 0  # succeeded jobs without an artifact accepted by gates or by a person
    decided: int = 0  # jobs whose artifact a person approved or rejected
    approved: int = 0
    draft_seconds: float = 0.0  # the part of the busy seconds for drafts that wait for a person
    redeemed_seconds: float = 0.0  # the part for drafts that a person approved, mostly after an edit

    def __add__(self, other: BilledUsage) -> BilledUsage:
        return BilledUsage(*(getattr(self, name) + getattr(other, name) for name in SUMS))

    @property
    def jobs_seconds(self) -> float:
        """Busy seconds, except those of requests over HTTP."""
        return self.busy_seconds - self.interactive_seconds

    @property
    def wasted_seconds(self) -> float:
        """Busy seconds that led to neither an accepted artifact nor the draft that is kept for a person."""
        return max(self.busy_seconds - self.useful_seconds - self.draft_seconds - self.redeemed_seconds, 0.0)


_Name = tuple[datetime, str, str, str, str]
SUMS = tuple(field.name for field in fields(BilledUsage))


@dataclass(frozen=True, slots=True)
class UsageRow:
    """The usage of an hour; without tenant and kind, a model's residency. `restated_at`: when it was changed after
    closing. Requests over HTTP have the kind `interactive`.
    """

    hour: datetime
    tenant: str
    kind: str
    model_name: str
    usage: BilledUsage
    adapter: str = ""  # empty: the model itself
    closed_seconds: float | None = None  # resident and busy seconds when the hour was closed; None while it is open
    restated_at: datetime | None = None

    @property
    def billed_as(self) -> str:
        """The name of the adapter or, without one, of the model."""
        return self.adapter or self.model_name

    @property
    def restated_by(self) -> float:
        """The change in seconds since the hour was closed."""
        if self.restated_at is None or self.closed_seconds is None:
            return 0.0
        return self.usage.resident_seconds + self.usage.busy_seconds - self.closed_seconds


@dataclass(frozen=True, slots=True)
class KeyUsage:
    """The usage of requests over HTTP with one key on one model or adapter. `key` is empty for requests without one."""

    key: str
    tenant: str
    model_name: str
    usage: BilledUsage
    adapter: str = ""


def read_keys(connection: Connection, since: datetime, until: datetime) -> tuple[KeyUsage, ...]:
    """The requests over HTTP of [since, until), to the minute, as far back as history is kept."""
    rows = connection.execute(statement("admin/usage_by_key"), {"since": since, "until": until})
    return tuple(KeyUsage(row.key, row.tenant, row.model_name, _sums(row), row.adapter) for row in rows)


def _sums(row: Row[Any]) -> BilledUsage:
    values = ((name, getattr(row, name)) for name in SUMS)
    sums: dict[str, Any] = {name: float(of) if name.endswith("seconds") else int(of) for name, of in values}
    return BilledUsage(**sums)


def read_usage(connection: Connection, since: datetime, until: datetime) -> tuple[UsageRow, ...]:
    """The rows of [since, until), the earliest hour first. An hour that is read in parts has several rows of a kind.

    Figures that people can still change after an hour is closed are added to the first matching row.
    """

    def closed(since: datetime, until: datetime, end: datetime) -> Iterator[Row[Any]]:
        yield from connection.execute(statement("admin/usage_closed"), {"since": since, "until": until, "end": end})

    def live(since: datetime, until: datetime) -> Iterator[Row[Any]]:
        if since < until:
            yield from connection.execute(statement("admin/usage_live"), {"since": since, "until": until})

    bounds = connection.execute(statement("admin/usage_bounds"), {"since": since, "until": until}).one()
    if bounds.last <= bounds.first:  # no hour is closed, but purged usage is still read from the bill
        rows = chain(closed(since, since, until), live(since, until))
    else:
        whole = closed(bounds.first, bounds.last, until)
        rows = chain(live(since, bounds.first), whole, live(bounds.last, until))
    asked = connection.execute(statement("admin/usage_yields"), {"since": since, "until": until})
    yields: defaultdict[_Name, BilledUsage] = defaultdict(BilledUsage)
    for row in asked:
        yields[_name(row)] += _sums(row)
    found = []
    for row in rows:
        usage = _sums(row) + yields.pop(_name(row), BilledUsage())
        found.append(UsageRow(*_name(row)[:-1], usage, row.adapter, row.closed_seconds, row.revised_at))
    found += [UsageRow(*name[:-1], usage, name[-1]) for name, usage in yields.items()]
    return tuple(sorted(found, key=lambda row: row.hour))


def _name(row: Row[Any]) -> _Name:
    return row.hour, row.tenant, row.kind, row.model_name, row.adapter
