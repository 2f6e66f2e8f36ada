"""Why a process ended, as far as its output says: the line to quote in an error, or none.

The last line of a log is often unrelated to the end. Only a line that states a cause is quoted: the error line of a
`thothy` command, the exception of a traceback, a critical record, a fatal message of Postgres or Valkey, or what the
system says of a program that cannot be run.
"""

from __future__ import annotations

import re
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path

TAIL_BYTES = 16_384
MAX_LENGTH = 300  # characters of a quoted line
NEAR = 5  # lines from the end within which a fatal message is the cause of the end

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
    """How a process ended, and why if what it wrote to `log` since `start` says so: "ended with status 1: why"."""
    if exit_code is not None and exit_code < 0:
        return f"was killed by {_signal_name(-exit_code)}"
    cause = cause_among(_tail(log, start)) if exit_code else ""
    return f"ended with status {exit_code}" + (f": {cause}" if cause else "")


def cause_among(lines: Sequence[str]) -> str:
    """The cause that the last lines of an output state; empty if they state none."""
    said = [line.strip() for line in lines if line.strip()]
    if not said:
        return ""
    for pattern in (_OWN, _UNRUNNABLE):
        if found := pattern.fullmatch(said[-1]):
            return _short(found[found.lastindex or 0])
    return _exception(lines) or _near_the_end(said)


def initdb_error(output: str) -> str:
    """What went wrong, from initdb's error output: its first error and the hint to it, not its last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    hint = next((f" ({found[1]})" for line in lines if (found := _HINT.fullmatch(line))), "")
    for pattern in (_FATAL, _INITDB):
        for line in lines:
            if found := pattern.fullmatch(line):
                return _short(found[1]) + hint
    return _short(lines[-1]) if lines else "no message"


def describe_os_error(error: OSError) -> str:
    """An error of the system, without its number: "/path/of/file: No space left on device"."""
    if isinstance(error, shutil.Error):  # of a folder that was copied: a list of (from, to, why)
        return str(error.args[0][0][2])
    reason = error.strerror or str(error) or type(error).__name__
    return f"{error.filename}: {reason}" if error.filename else reason


def _exception(lines: Sequence[str]) -> str:
    """The exception that a traceback at the end names: nothing else was logged after it."""
    starts = [number for number, line in enumerate(lines) if line.startswith(_TRACEBACK)]
    if not starts:
        return ""
    after = [line for line in lines[starts[-1] + 1 :] if line.strip()]
    if any(_RECORD.match(line) for line in after):
        return ""
    named = (line.strip() for line in after if not line.startswith(" "))
    return _short(next((line for line in named if _EXCEPTION.fullmatch(line)), ""))


def _near_the_end(said: Sequence[str]) -> str:
    for pattern in (_FATAL, _CRITICAL, _VALKEY):
        for line in reversed(said[-NEAR:]):
            if found := pattern.fullmatch(line):
                return _short(found[1])
    return ""


def _tail(log: Path, start: int) -> list[str]:
    try:
        with log.open("rb") as file:
            file.seek(max(start, log.stat().st_size - TAIL_BYTES))
            return file.read().decode(errors="replace").splitlines()
    except OSError:
        return []


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _short(text: str) -> str:
    return text.strip()[:MAX_LENGTH]
