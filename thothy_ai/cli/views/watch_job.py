"""The screen of `thothy jobs watch`: a line per change; on a terminal also the text of the running attempt."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from thothy_ai.admin.durations import spell
from thothy_ai.admin.json_text import json_text
from thothy_ai.cli.views import times
from thothy_ai.cli.views.live_json import LiveJson
from thothy_ai.cli.views.tables import count, printable
from thothy_ai.db.states import JobState

if TYPE_CHECKING:
    from datetime import datetime

    from thothy_ai.admin.job_watch import JobSnapshot

ERASE = "\r\x1b[K"


class Status(NamedTuple):
    """A job's state in words. While `key` stays the same, a new text replaces the old one, such as its place."""

    key: tuple[object, ...]
    text: str
    at: datetime


class WatchView:
    """Writes to standard output. Times are local."""

    def __init__(self, *, terminal: bool) -> None:
        self._terminal = terminal
        self._status: Status | None = None
        self._open = False  # the cursor is behind a status that may be rewritten, or inside an output
        self._output = LiveJson()
        self._written = ""  # the latest attempt's output, as received

    def show(self, job: JobSnapshot) -> None:
        if self._status is None:
            self._line(f"{job.kind} {job.id}")
        for attempt in job.ended:
            why = "".join(f": {part}" for part in (attempt.reason, attempt.detail) if part)
            used = f"{count(attempt.output_tokens, 'output token')}, {attempt.compute_seconds:.2f} compute-seconds"
            ended = f"attempt {attempt.attempt} {attempt.outcome}{why}" + (
                f" ({used})" if attempt.output_tokens else ""
            )
            self._line(f"{_clock(attempt.finished_at)}  {ended}")
        status = status_of(job)
        if self._status is not None and status.key == self._status.key:
            if self._terminal and self._open and status.text != self._status.text and not self._written:
                self._status = status
                typer.echo(ERASE + printable(f"{_clock(status.at)}  {status.text}"), nl=False)
            return
        if job.state is JobState.RUNNING:
            self._output, self._written = LiveJson(), ""
        self._line(f"{_clock(status.at)}  {status.text}", keep_open=self._terminal and job.waiting is not None)
        self._status = status

    def text(self, text: str) -> None:
        """Print a piece of the running attempt's output."""
        if not self._written:
            self._end_line()
        self._written += text
        self._open = True
        typer.echo(printable(self._output.feed(text)), nl=False)

    def end(self, artifact: Any) -> None:
        """Print the artifact of the ended job, unless it has just been shown in full."""
        self._end_line()
        shown = None
        with suppress(ValueError):
            shown = json.loads(self._written)
        if artifact is not None and artifact != shown:
            typer.echo(json_text(artifact, indent=2 if self._terminal else None))

    def _line(self, text: str, *, keep_open: bool = False) -> None:
        self._end_line()
        typer.echo(printable(text), nl=not keep_open)
        self._open = keep_open

    def _end_line(self) -> None:
        if self._open:
            self._open = False
            typer.echo()


def status_of(job: JobSnapshot) -> Status:
    if job.waiting is not None:
        from thothy_ai.admin.job_watch import why_it_waits

        why, text = why_it_waits(job, job.waiting, times.local)
        return Status((job.state, job.attempt, why), f"{job.state}: {text}", job.at)
    if job.state is JobState.RUNNING:
        stopping = ", to be cancelled" if job.cancel_requested else ""
        text = f"running: attempt {job.attempt} on {job.worker}{stopping}"
        return Status((job.state, job.attempt, stopping), text, job.started_at or job.at)
    why = "".join(f": {part}" for part in (job.reason, job.detail) if part)
    took = spell((job.finished_at - job.enqueued_at).total_seconds()) if job.finished_at else "-"
    text = f"{job.state}{why} ({count(job.attempt, 'attempt')}, {took} after it was enqueued)"
    return Status((job.state,), text, job.finished_at or job.at)


def _clock(moment: datetime) -> str:
    return moment.astimezone().strftime("%H:%M:%S")
