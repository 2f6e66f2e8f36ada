"""Artifacts as a table for a spreadsheet: first what an editor reads, then what identifies the artifact."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from io import StringIO
from typing import Any

from thothy_ai.admin.export.pieces import piece_of, sources_of
from thothy_ai.jobs.publishing.plain import evidence, plain

COLUMNS = (
    "kind", "locale", "channel", "audience", "title", "standfirst", "angle", "text", "evidence", "tags", "sources",
    "created_at", "verdict", "review", "decided_by", "decided_at", "reason", "job_id", "attempt", "tenant",
    "idempotency_key", "source_key", "parent_id", "model", "seed",
)  # fmt: skip
MAX_CELL_CHARS = 32_767  # Excel's limit; longer text would continue in the rows below
_FORMULA = re.compile(r"[\t\r\n]|\s*[=+@＝＋－＠-]")  # beginnings of formulas


def table(artifacts: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The lines of the table. An artifact with several texts to choose from has a row for each text."""
    yield csv_line(COLUMNS)
    for artifact in artifacts:
        for angle, piece in piece_of(artifact).options():
            cells = {
                **artifact,
                "title": piece.title,
                "standfirst": piece.standfirst,
                "angle": angle,
                "text": plain(piece),
                "evidence": evidence(piece),
                "tags": ", ".join(piece.tags),
                "sources": "\n".join(", ".join(map(str, source.values())) for source in sources_of(artifact)),
                **{name: _time(artifact.get(name)) for name in ("created_at", "decided_at")},
            }
            yield csv_line(cells.get(name) for name in COLUMNS)


def _time(at: datetime | None) -> str | None:
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S") if at is not None else None


def _cell(value: object) -> object:
    """A value that is safe in a spreadsheet. A text that would run as a formula gets a leading apostrophe (OWASP, "CSV
    Injection"). A text that is too long for a cell is cut, and says so.
    """
    if not isinstance(value, str):
        return value
    if _FORMULA.match(value):
        value = f"'{value}"
    if len(value) <= MAX_CELL_CHARS:
        return value
    note = f" […] {len(value):,} characters do not fit a cell; export as md, html or json"
    return value[: MAX_CELL_CHARS - len(note)] + note


def csv_line(cells: Iterable[object]) -> str:
    """A row in which no cell is a formula or too long for a spreadsheet."""
    line = StringIO()
    csv.writer(line, quoting=csv.QUOTE_ALL).writerow(map(_cell, cells))
    return line.getvalue()
