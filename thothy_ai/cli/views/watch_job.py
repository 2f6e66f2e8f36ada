"""What `thothy jobs watch` shows: a line per change; on a terminal also the running attempt's text as it is written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from thothy_ai.cli.views import times
from thothy_ai.cli.views.live_json import LiveJson
from thothy_ai.cli.views.tables import count, json_text, printable
from thothy_ai.db.states import JobState

if TYPE_CHECKING:
    from datetime import datetime

    from thothy_ai.admin.job_watch import EndedAttempt, JobSnapshot, JobWait

ERASE = "\r\x1b[K"


class Status(NamedTuple):
    """Where a job is. A text that changes while the `key` stays is a new value, such as a place in the queue."""

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
        self._written = ""  # of the latest attempt, as it came

    def show(self, job: JobSnapshot) -> None:
        """A new look at the job."""
        if self._status is None:
            self._line(f"{job.kind} {job.id}")
        for attempt in job.ended:
            self._line(f"{_clock(attempt.finished_at)}  {_ended(attempt)}")
        status = status_of(job)
        if self._status is not None and status.key == self._status.key:
            if self._terminal and self._open and status.text != self._status.text and not self._written:
                self._rewrite(status)
            return
        if job.state is JobState.RUNNING:
            self._output, self._written = LiveJson(), ""
        self._line(f"{_clock(status.at)}  {status.text}", keep_open=self._terminal and job.waiting is not None)
        self._status = status

    def text(self, text: str) -> None:
        """A piece of the running attempt's output."""
        if not self._written:
            self._end_line()
        self._written += text
        self._open = True
        typer.echo(printable(self._output.feed(text)), nl=False)

    def end(self, artifact: Any) -> None:
        """The job has ended: print its artifact, unless it has just been shown in full."""
        self._end_line()
        if artifact is not None and not self._has_shown(artifact):
            typer.echo(json_text(artifact, indent=2 if self._terminal else None))

    def _has_shown(self, artifact: Any) -> bool:
        try:
            return bool(json.loads(self._written) == artifact)
        except ValueError:
            return False

    def _line(self, text: str, *, keep_open: bool = False) -> None:
        self._end_line()
        typer.echo(printable(text), nl=not keep_open)
        self._open = keep_open

    def _rewrite(self, status: Status) -> None:
        self._status = status
        typer.echo(ERASE + printable(f"{_clock(status.at)}  {status.text}"), nl=False)

    def _end_line(self) -> None:
        if self._open:
            self._open = False
            typer.echo()


def status_of(job: JobSnapshot) -> Status:
    """Where a job is, in words."""
    if job.waiting is not None:
        why, text = _why(job, job.waiting)
        return Status((job.state, job.attempt, why), f"{job.state}: {text}", job.at)
    if job.state is JobState.RUNNING:
        stopping = ", to be cancelled" if job.cancel_requested else ""
        text = f"running: attempt {job.attempt} on {job.worker}{stopping}"
        return Status((job.state, job.attempt, stopping), text, job.started_at or job.at)
    why = "".join(f": {part}" for part in (job.reason, job.detail) if part)
    took = times.spell((job.finished_at - job.enqueued_at).total_seconds()) if job.finished_at else "-"
    text = f"{job.state}{why} ({count(job.attempt, 'attempt')}, {took} after it was enqueued)"
    return Status((job.state,), text, job.finished_at or job.at)


def _why(job: JobSnapshot, waiting: JobWait) -> tuple[str, str]:
    """Why it waits: the sort of reason, and a sentence."""
    if waiting.not_before is not None:
        when = times.local(waiting.not_before)
        return ("retry", f"tried again at {when}") if job.attempt else ("delayed", f"not before {when}")
    if job.state is JobState.DISPATCHED:
        return ("worker", "waiting for a worker") if waiting.worker else ("no worker", "no worker is connected")
    if waiting.paused:
        note = f": {waiting.note}" if waiting.note else ""
        return "paused", f"the queue is paused{note} (`thothy queue resume` resumes it)"
    if not waiting.dispatcher:
        return "no dispatcher", "no dispatcher is connected"
    if model := waiting.unserved_model:
        named = f"{model}, an alias of {waiting.alias_of}" if waiting.alias_of else model
        return "no engine", f"no engine serves {named} (`thothy models alias {model} MODEL` lets another run it)"
    return "behind", _behind(waiting)


def _behind(waiting: JobWait) -> str:
    from thothy_ai.admin.job_watch import MAX_AHEAD

    if waiting.ahead is None:
        return f"more than {count(MAX_AHEAD, 'job')} before it"
    return f"{count(waiting.ahead, 'job')} before it" if waiting.ahead else "next"


def _ended(attempt: EndedAttempt) -> str:
    why = "".join(f": {part}" for part in (attempt.reason, attempt.detail) if part)
    used = f"{count(attempt.output_tokens, 'output token')}, {attempt.compute_seconds:.2f} compute-seconds"
    return f"attempt {attempt.attempt} {attempt.outcome}{why}" + (f" ({used})" if attempt.output_tokens else "")


def _clock(moment: datetime) -> str:
    return moment.astimezone().strftime("%H:%M:%S")
