"""Reads the logs of a stack's processes in `$THOTHY_HOME/logs`: their last lines, merged by time, and new lines.

The supervisor rotates a large log: it copies it to `NAME.log.1` and truncates it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timezone
from pathlib import Path
from typing import BinaryIO

ROLES = ("engine", "worker", "dispatcher", "reaper", "serve", "postgres", "valkey")
BLOCK_BYTES = 65_536
UNDATED = float("-inf")

# 2026-11-21 10:00:00,123 (ours) or 2026-11-21 10:00:00.123 UTC (Postgres); 7:M 21 Nov 2026 10:00:00.123 (Valkey)
_DATED = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)[,.](\d{3})( (?:UTC|GMT)\b)?")
_VALKEY = re.compile(r"\d+:[A-Z] (\d\d \w{3} \d{4} \d\d:\d\d:\d\d)\.(\d{3})")


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of a service's log. `at` is its time, or that of the line before, in seconds since the epoch."""

    service: str
    text: str
    at: float


def role_of(service: str) -> str:
    """A service's role, which is its name without a number: `worker` for `worker-1`."""
    return service.partition("-")[0]


def services_of(home: Path, wanted: Sequence[str] = ()) -> list[str]:
    """The services of this home that have a log, ordered by role. `wanted` restricts them by name or role."""
    logs = home / "logs"
    names = {path.name.removesuffix(".log") for path in logs.glob("*.log")} if logs.is_dir() else set()
    known = sorted(
        (name for name in names if role_of(name) in ROLES), key=lambda name: (ROLES.index(role_of(name)), name)
    )
    return [name for name in known if not wanted or name in wanted or role_of(name) in wanted]


def log_file(home: Path, service: str) -> Path:
    return home / "logs" / f"{service}.log"


class Log:
    """One service's log, divided when this object is made: `last` reads the lines before, `added` the lines after."""

    def __init__(self, home: Path, service: str) -> None:
        self._service = service
        self._path = log_file(home, service)
        self._position = self._size()
        self._partial = b""

    def last(self, number: int) -> list[LogLine]:
        """The last lines, including those of the copy if the log was just rotated. Raises OSError."""
        lines: list[str] = []
        copy = self._path.with_name(f"{self._path.name}.1")
        for path, end in ((self._path, self._position), (copy, None)):
            if len(lines) < number and path.exists():
                with path.open("rb") as file:
                    lines = _tail(file, number - len(lines), end) + lines
        return list(_dated(self._service, lines))

    def added(self) -> list[LogLine]:
        """The lines completed since the last call, through rotations and restarts. Raises OSError."""
        size = self._size()
        if size < self._position:  # truncated, or replaced by a new file
            self._position, self._partial = 0, b""
        if size == self._position:
            return []
        with self._path.open("rb") as file:
            file.seek(self._position)
            read = file.read(size - self._position)
        self._position = size
        *lines, self._partial = (self._partial + read).split(b"\n")
        return list(_dated(self._service, [line.decode(errors="replace") for line in lines]))

    def _size(self) -> int:
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            return 0


def merged(logs: Iterable[list[LogLine]]) -> list[LogLine]:
    """The lines of several logs, ordered by time. Lines of the same log keep their order."""
    return sorted((line for lines in logs for line in lines), key=lambda line: line.at)


def _tail(file: BinaryIO, number: int, end: int | None) -> list[str]:
    """The last `number` lines before position `end`, read backwards in blocks."""
    position, read = file.seek(0, 2) if end is None else end, b""
    while position and read.count(b"\n") <= number:
        step = min(BLOCK_BYTES, position)
        position -= step
        file.seek(position)
        read = file.read(step) + read
    return read.decode(errors="replace").removesuffix("\n").split("\n")[-number:] if read and number else []


def _dated(service: str, lines: Iterable[str]) -> Iterator[LogLine]:
    at = UNDATED
    for line in lines:
        if found := _DATED.match(line):
            at = max(at, _epoch(found[1], "%Y-%m-%d %H:%M:%S", found[2], UTC if found[3] else None))
        elif found := _VALKEY.match(line):
            at = max(at, _epoch(found[1], "%d %b %Y %H:%M:%S", found[2], None))
        yield LogLine(service, line, at)


def _epoch(text: str, form: str, milliseconds: str, zone: timezone | None) -> float:
    """Seconds since the epoch. Without a zone, the time is local."""
    try:
        return datetime.strptime(text, form).replace(tzinfo=zone).timestamp() + int(milliseconds) / 1000
    except ValueError:
        return UNDATED
