"""A process that runs kinds' code for a worker: prompts, plans, validators. Run as `python -m ... FD`, its socket.

It answers one task at a time and keeps nothing between them. The kernel ends it if a task takes more than its seconds
of processor time, whatever it does then: an extension that never returns to Python cannot be interrupted otherwise.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import traceback
from io import BufferedRWPair

from thothy_ai.jobs import registry
from thothy_ai.plans import judging
from thothy_ai.plans.advance import PlanError, advance, near_duplicate
from thothy_ai.plans.early import early_rejection
from thothy_ai.plans.judging import LENGTH, Fields

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)  # a terminal sends them to all: they are the worker's


def main() -> None:
    """Load the kinds that the worker names, then answer it until it is gone."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    with socket.socket(fileno=int(sys.argv[1])) as channel, channel.makefile("rwb") as stream:
        serve(stream)
    os._exit(0)  # whatever threads a kind has started


def serve(stream: BufferedRWPair) -> None:
    """Answer tasks until the stream ends."""
    first = _receive(stream)
    if first is None:
        return
    sys.path[:] = first["path"]
    registry.load_extra(first["kinds"])
    _send(stream, {})
    while (task := _receive(stream)) is not None:
        signal.setitimer(signal.ITIMER_PROF, first["seconds"])
        try:
            answer = judging.encode(_done(task))
        except Exception as error:  # noqa: BLE001 - a kind may be third-party code
            answer = judging.encode({"failure": repr(error)})
        signal.setitimer(signal.ITIMER_PROF, 0)
        stream.write(answer)
        stream.flush()


def _done(task: Fields) -> Fields:
    match task["do"]:
        case "early":
            return {"rejection": early_rejection(*judging.read_early(task))}
        case "compare":
            return {"rejection": near_duplicate(task["kind"], task["body"], task["others"])}
        case _:
            return _advanced(task)


def _advanced(task: Fields) -> Fields:
    job, answered = judging.read_advance(task)
    try:
        return judging.advanced(advance(job, answered, on_error=_log))
    except PlanError as error:
        return judging.advanced(error)


def _log(error: Exception) -> None:
    """To the worker's log: standard error is the worker's."""
    traceback.print_exception(error)


def _receive(stream: BufferedRWPair) -> Fields | None:
    header = stream.read(LENGTH.size)
    if len(header) < LENGTH.size:
        return None
    return judging.decode(stream.read(*LENGTH.unpack(header)))


def _send(stream: BufferedRWPair, fields: Fields) -> None:
    stream.write(judging.encode(fields))
    stream.flush()


if __name__ == "__main__":
    main()
