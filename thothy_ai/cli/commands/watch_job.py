"""`thothy jobs watch ID`: a job's states, attempts and live text, until it ends."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import typer

from thothy_ai.cli.inputs.job_options import JobId
from thothy_ai.cli.shell import FAILED, INTERRUPTED, database, find_job, load_settings

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from thothy_ai.admin.job_watch import JobSnapshot
    from thothy_ai.cli.views.watch_job import WatchView
    from thothy_ai.queue.live import TextPiece, TextWatcher

POLL_SECONDS = 0.5


def watch(job_id: JobId) -> None:
    """Watch a job until it ends: its states, why it waits, its attempts, and on a terminal its text as it is generated.

    Exit with 0 if it succeeded, and with 1 otherwise. In a pipe, each change is one line, and the artifact the last.

    Example: thothy jobs watch 3d9a4f10
    """
    from thothy_ai.db.states import JobState

    try:
        with database() as engine:
            last = _watch(engine, job_id)
    except KeyboardInterrupt:
        typer.echo("\nStopped watching; the job continues.", err=True)
        raise typer.Exit(INTERRUPTED) from None
    if last.state is not JobState.SUCCEEDED:
        raise typer.Exit(FAILED)


def _watch(engine: Engine, ref: str) -> JobSnapshot:
    from thothy_ai.admin.job_watch import JobWatch
    from thothy_ai.cli.views.watch_job import WatchView
    from thothy_ai.queue.live import TextWatcher

    job_id = find_job(engine, ref)
    job, terminal = JobWatch(engine, job_id), sys.stdout.isatty()
    view = WatchView(terminal=terminal)
    live = TextWatcher(load_settings(), job_id) if terminal else None
    piece: TextPiece | None = None
    try:
        while True:
            view.show(snapshot := job.look())
            if snapshot.state.terminal:
                view.end(job.artifact(snapshot.kind))
                return snapshot
            piece = _follow(live, view, snapshot.attempt, piece)
    finally:
        if live is not None:
            live.close()


def _follow(live: TextWatcher | None, view: WatchView, attempt: int, held: TextPiece | None) -> TextPiece | None:
    """Show text until it is time to look again; returns a piece of an attempt whose beginning is not shown yet."""
    until = time.monotonic() + POLL_SECONDS
    if live is None:
        time.sleep(POLL_SECONDS)
        return None
    piece = held
    while piece is None or piece.attempt <= attempt:
        if piece is not None and piece.attempt == attempt:
            view.text(piece.text)
        if (left := until - time.monotonic()) <= 0:
            return None
        piece = live.next(left)
    return piece
