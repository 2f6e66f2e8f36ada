"""The options and arguments that name and filter jobs, and how to look these up in the database."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from thothy_ai.cli.inputs import completion, times
from thothy_ai.cli.shell import load_settings, usage
from thothy_ai.cli.views.tables import printable
from thothy_ai.cli.views.times import local
from thothy_ai.db.states import JobState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Engine

    from thothy_ai.admin.filters import JobFilter

MAX_LISTED = 1_000_000  # more belongs into a file, from `thothy artifacts export`
_SOURCE_KEY = re.compile(r"[0-9a-f]{4,32}")
_ID_PART = re.compile(r"-*(?:[0-9a-f]-*){4,32}")


def job_ref(text: str) -> str:
    """Check that a text can be a job id or one end of it. Raises `BadParameter`."""
    ref = text.strip().lower()
    if not _ID_PART.fullmatch(ref):
        raise typer.BadParameter(f"{text!r} is not a job id, nor 4 or more hexadecimal digits of its beginning or end")
    return ref


_ID: dict[str, Any] = {"parser": job_ref, "metavar": "ID", "autocompletion": completion.job_ids}
JobId = Annotated[str, typer.Argument(help="Job id, or the beginning or end of one.", show_default=False, **_ID)]
JobIds = Annotated[
    list[str] | None, typer.Argument(help="Job ids, or their beginnings or ends.", show_default=False, **_ID)
]
States = Annotated[list[JobState] | None, typer.Option("--state", help="Only jobs in this state. May be repeated.")]
Kind = Annotated[str | None, typer.Option(autocompletion=completion.kinds, help="Only jobs of this kind.")]
Kinds = Annotated[
    list[str] | None,
    typer.Option("--kind", autocompletion=completion.kinds, help="Only jobs of this kind. May be repeated."),
]
Reason = Annotated[str | None, typer.Option(autocompletion=completion.reasons, help="Only jobs with this reason code.")]
Reasons = Annotated[
    list[str] | None,
    typer.Option(
        "--reason", autocompletion=completion.reasons, help="Only jobs with this reason code. May be repeated."
    ),
]
Key = Annotated[
    str | None,
    typer.Option(help="Only the job with this idempotency key; 2026* matches every key that begins with 2026."),
]
Source = Annotated[
    str | None, typer.Option(help="Only jobs about this source: its text, or its source key or the beginning of one.")
]
SourceFile = Annotated[
    str | None, typer.Option(metavar="FILE", help="Only jobs about the text in this file; - reads standard input.")
]
Parent = Annotated[str | None, typer.Option(help="Only the follow-ups of this job.", **_ID)]
Batch = Annotated[
    str | None,
    typer.Option(help="Only jobs that were enqueued by the same call or file as this one, or of a batch_...", **_ID),
]
Tenant = Annotated[str | None, typer.Option(metavar="TENANT", help="Only jobs of this tenant.")]
Since = Annotated[
    datetime | None,
    typer.Option(parser=times.since, metavar="TIME", help="Only entries after this time: 2h, 3d, 2026-11-21T06:00."),
]
Until = Annotated[
    datetime | None,
    typer.Option(parser=times.ago, metavar="TIME", help="Only entries before this time: 2h, 3d, 2026-11-21T06:00."),
]
OlderThan = Annotated[
    timedelta | None,
    typer.Option(parser=times.duration, metavar="DURATION", help="Only jobs enqueued at least this long ago: 3d."),
]
Deadline = Annotated[
    datetime | None,
    typer.Option(parser=times.ahead, metavar="TIME", help="New deadline. Default: the old one unless it has passed."),
]


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters of one command, as typed. Each is an option of a command `with_fields` of this class."""

    state: States = None
    kind: Kind = None
    key: Key = None
    source: Source = None
    source_file: SourceFile = None
    parent: Parent = None
    batch: Batch = None
    tenant: Tenant = None
    since: Since = None
    until: Until = None

    def __post_init__(self) -> None:
        if self.source and self.source_file:
            usage("--source and --source-file are mutually exclusive")
        if self.tenant == "":
            usage("the tenant is empty")
        times.check_order(self.since, self.until)

    def jobs(self, engine: Engine) -> JobFilter:
        """All filters except the times. Raises `BadParameter` and the errors of `find_job`."""
        from thothy_ai.admin.filters import JobFilter
        from thothy_ai.cli.inputs.kind_flags import read_text
        from thothy_ai.jobs.api.kind import source_key

        check_kinds(engine, [self.kind] if self.kind else [])
        source = self.source
        if self.source_file or not (source is None or _SOURCE_KEY.fullmatch(source)):  # a text, not a key or its start
            source = source_key(read_text(self.source_file) if self.source_file else source or "")
        batch_id = _batch_of(self.batch or "")
        return JobFilter(
            states=tuple(self.state or ()),
            kind=self.kind,
            key=self.key,
            source=source,
            parent=find_job(engine, self.parent) if self.parent else None,
            batch=find_job(engine, self.batch) if self.batch and batch_id is None else None,
            batch_id=batch_id,
            tenant=self.tenant,
        )

    def nothing(self, noun: str) -> str:
        """A sentence that nothing matches, with the filters."""
        typed = []
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None:
                continue
            for each in value if isinstance(value, list) else [value]:
                line = " ".join((local(each) if isinstance(each, datetime) else str(each)).split())
                shown = printable(line if len(line) <= 60 else line[:59] + "…") or "''"  # it may be a whole source
                typed.append(f"--{field.name.replace('_', '-')} {shown}")
        return f"No {noun} match {' '.join(typed)}." if typed else f"No {noun}."


NO_FILTERS = Filters()


def _batch_of(ref: str) -> UUID | None:
    """The id of a batch over HTTP; None for a job, which stands for the call that enqueued it."""
    if (digits := ref.removeprefix("batch_")) == ref:
        return None
    try:
        return UUID(digits)
    except ValueError:
        raise typer.BadParameter(f"{ref!r} is not the id of a batch") from None


def find_job(engine: Engine, ref: str) -> UUID:
    """The id that `ref`, its beginning or its end, stands for. Raises `UnknownJobError`, `AmbiguousIdError`."""
    return find_jobs(engine, [ref])[0]


def find_jobs(engine: Engine, refs: Sequence[str]) -> list[UUID]:
    """The ids that `refs` stand for, in the same order, each once."""
    from thothy_ai.admin.filters import resolve_id

    return list(dict.fromkeys(resolve_id(engine, ref) for ref in refs))


def check_engine(engine: Engine, name: str) -> None:
    """Raise `BadParameter` for an engine that has not reported within a day."""
    from thothy_ai.admin.known_names import unknown_engine

    if said := unknown_engine(engine, name):
        raise typer.BadParameter(said, param_hint="--engine")


def check_kinds(engine: Engine, kinds: Sequence[str]) -> None:
    """Raise `BadParameter` for a kind that is neither registered here nor in the database."""
    if not kinds:
        return
    from thothy_ai.admin.filters import kinds_in_use
    from thothy_ai.admin.known_names import unknown_kind

    if said := unknown_kind(load_settings(), kinds, lambda: kinds_in_use(engine)):
        raise typer.BadParameter(said, param_hint="--kind")


def check_reasons(engine: Engine, reasons: Sequence[str]) -> None:
    """Raise `BadParameter` for a reason that neither this version stores nor a job in the database has."""
    if not reasons:
        return
    from thothy_ai.admin.filters import reasons_in_use
    from thothy_ai.admin.known_names import unknown_reason

    if said := unknown_reason(reasons, lambda: reasons_in_use(engine)):
        raise typer.BadParameter(said, param_hint="--reason")
