"""A process that runs kinds' code for a worker: prompts, plans, validators. Run as `python -m ... FD`, FD its socket.

It answers one task at a time and keeps nothing between tasks. The kernel kills it when a task exceeds its processor
time, because an extension that never returns to Python cannot be interrupted in any other way.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import traceback
from io import BufferedRWPair

from thothy_ai.engine.wire.codec import read_payload
from thothy_ai.jobs import registry
from thothy_ai.jobs.checks.gates import leave_to_people
from thothy_ai.plans.advance import PlanError, advance, near_duplicate
from thothy_ai.plans.early import early_rejection
from thothy_ai.plans.judge_messages import (
    ANSWERS,
    TASKS,
    AdvanceTask,
    Answer,
    CompareTask,
    EarlyTask,
    EditTask,
    PlanFailed,
    Rejected,
    Started,
    StartTask,
    Task,
    TaskFailed,
)
from thothy_ai.plans.warm_up import warm_up
from thothy_ai.queue.edits import check_edit

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
NICENESS = 5  # a third of the usual weight: an engine's steps wait for its threads, but nothing waits for a verdict
IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)  # a terminal sends them to all; the worker handles them


def main() -> None:
    """Load the kinds that the worker names, then answer the worker until it is gone."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    os.nice(NICENESS)
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    with socket.socket(fileno=int(sys.argv[1])) as channel, channel.makefile("rwb") as stream:
        serve(stream)
    os._exit(0)  # even if a kind has started threads


def serve(stream: BufferedRWPair) -> None:
    """Answer tasks until the stream ends."""
    if (first := read_payload(stream)) is None:
        return
    start = TASKS.decode(first)
    if not isinstance(start, StartTask):
        raise TypeError(f"expected the kinds to load, got {start!r}")
    sys.path[:] = start.path
    registry.load_extra(start.kinds)
    leave_to_people(start.gates_as_findings)
    if start.warm:
        try:
            warm_up()
        except Exception as error:  # noqa: BLE001 - tasks that need what is broken say so
            traceback.print_exception(error)
    answer = ANSWERS.encode(Started())
    while True:
        stream.write(answer)
        stream.flush()
        if (payload := read_payload(stream)) is None:
            return
        signal.setitimer(signal.ITIMER_PROF, start.seconds)
        try:
            answer = ANSWERS.encode(answer_to(TASKS.decode(payload)))
        except Exception as error:  # noqa: BLE001 - a kind may be third-party code
            answer = ANSWERS.encode(TaskFailed(repr(error)))
        signal.setitimer(signal.ITIMER_PROF, 0)


def answer_to(task: Task) -> Answer:
    """Run the kind's code. Its exceptions while judging go to standard error, and so to the worker's log."""
    match task:
        case AdvanceTask():
            try:
                return advance(task.job, task.answered, on_error=traceback.print_exception)
            except PlanError as error:
                return PlanFailed(error.reason, error.detail)
        case CompareTask():
            return Rejected(near_duplicate(task.kind, task.body, task.others))
        case EarlyTask():
            return Rejected(early_rejection(task.text, task.locale, task.early))
        case EditTask():
            return check_edit(task.kind, task.request, task.body)
        case StartTask():
            raise TypeError("the process is started once")


if __name__ == "__main__":
    main()
