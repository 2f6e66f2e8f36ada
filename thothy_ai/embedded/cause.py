"""Finds why a process ended: the line of its output that states the cause, to be quoted in an error.

The last line of a log is often unrelated to the cause. These lines state it: the error line of a `thothy` command, the
exception of a traceback, a critical record, a fatal message of Postgres or Valkey, and the system's message about a
program that cannot be run.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path

TAIL_BYTES = 16_384
MAX_LENGTH = 300  # characters of a quoted line
NEAR = 5  # lines before the end, within which a fatal message counts as the cause

_OWN = re.compile(r"thothy(?: [a-z]+)?: (.+)")
_UNRUNNABLE = re.compile(r"(/.+?: .+)|(the parent is gone)")
_FATAL = re.compile(r".*\b(?:FATAL|PANIC):\s+(.+)")
_CRITICAL = re.compile(r"[\d-]+ [\d:,]+ CRITICAL (.+)")
_VALKEY = re.compile(r"\d+:[A-Z] .+ # (.+)")
_RECORD = re.compile(r"\d{4}-\d\d-\d\d ")
_TRACEBACK = "Traceback (most recent call last):"
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?:: .+)?")
_HINT = re.compile(r".*\bHINT:\s+(.+?)\.?")
_INITDB = re.compile(r"initdb: error: (.+)")


def describe_end(exit_code: int | None, log: Path, start: int = 0) -> str:
    """How a process ended, with the cause if the log states one after byte `start`: "ended with status 1: why"."""
    if exit_code is not None and exit_code < 0:
        try:
            return f"was killed by {signal.Signals(-exit_code).name}"
        except ValueError:
            return f"was killed by signal {-exit_code}"
    tail: list[str] = []
    if exit_code:
        with contextlib.suppress(OSError), log.open("rb") as file:
            file.seek(max(start, log.stat().st_size - TAIL_BYTES))
            tail = file.read().decode(errors="replace").splitlines()
    cause = cause_among(tail)
    return f"ended with status {exit_code}" + (f": {cause}" if cause else "")


def cause_among(lines: Sequence[str]) -> str:
    """The cause stated in the last lines of an output, or an empty string."""
    said = [line.strip() for line in lines if line.strip()]
    if not said:
        return ""
    for pattern in (_OWN, _UNRUNNABLE):
        if found := pattern.fullmatch(said[-1]):
            return _short(found[found.lastindex or 0])
    if exception := _last_exception(lines):
        return _short(exception)
    for pattern in (_FATAL, _CRITICAL, _VALKEY):
        for line in reversed(said[-NEAR:]):
            if found := pattern.fullmatch(line):
                return _short(found[1])
    return ""


def initdb_error(output: str) -> str:
    """The first error in initdb's output, with its hint. The last line would say less."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    hint = next((f" ({found[1]})" for line in lines if (found := _HINT.fullmatch(line))), "")
    for pattern in (_FATAL, _INITDB):
        for line in lines:
            if found := pattern.fullmatch(line):
                return _short(found[1]) + hint
    return _short(lines[-1]) if lines else "no message"


def describe_os_error(error: OSError) -> str:
    """A system error without its number: "/path/of/file: No space left on device"."""
    if isinstance(error, shutil.Error):  # from copying a folder; it holds a list of (from, to, reason)
        return str(error.args[0][0][2])
    reason = error.strerror or str(error) or type(error).__name__
    return f"{error.filename}: {reason}" if error.filename else reason


def _last_exception(lines: Sequence[str]) -> str:
    """The exception of a traceback after which nothing else was logged."""
    starts = [number for number, line in enumerate(lines) if line.startswith(_TRACEBACK)]
    if not starts:
        return ""
    after = [line for line in lines[starts[-1] + 1 :] if line.strip()]
    if any(_RECORD.match(line) for line in after):
        return ""
    named = (line.strip() for line in after if not line.startswith(" "))
    return next((line for line in named if _EXCEPTION.fullmatch(line)), "")


def _short(text: str) -> str:
    return text.strip()[:MAX_LENGTH]
