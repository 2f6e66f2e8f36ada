"""Artifacts as files: one file per artifact or per source in a folder, or all in one file."""

from __future__ import annotations

import csv
import hashlib
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Protocol

from thothy_ai.cli.views import times
from thothy_ai.cli.views.html_fragment import fragment, fragments
from thothy_ai.cli.views.markdown import body_of, document, documents, title_of
from thothy_ai.cli.views.tables import json_text, printable

STANDARD_OUTPUT = "-"
SLUG_CHARS = 50
MAX_PART_CHARS, DIGEST_CHARS = 60, 8  # of a part of a file's name
COLUMNS = (
    "job_id", "kind", "locale", "attempt", "tenant", "verdict", "reason", "idempotency_key", "channel", "audience",
    "source_key", "parent_id", "model", "seed", "created_at", "title", "text",
)  # fmt: skip
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_FORMULA = re.compile(r"[\t\r\n]|\s*[=+@＝＋－＠-]")  # beginnings of formulas
_SEPARATOR = re.compile(r"[^a-z0-9]+")
Artifact = dict[str, Any]
Artifacts = Iterator[Artifact]


class Format(StrEnum):
    JSON = "json"
    JSONL = "jsonl"
    MD = "md"
    CSV = "csv"
    HTML = "html"


class Grouping(StrEnum):
    """What one file in a folder contains."""

    ARTIFACT = "artifact"
    SOURCE = "source"


def _json_document(value: Artifact | Sequence[Artifact]) -> str:
    return json_text(value, indent=2) + "\n"


# The formats of folders. They turn one artifact, or all artifacts of a source, into a text.
_OF_ONE: dict[Format, Callable[[Artifact], str]] = {
    Format.JSON: _json_document, Format.MD: document, Format.HTML: fragment,
}  # fmt: skip
_OF_SEVERAL: dict[Format, Callable[[Sequence[Artifact]], str]] = {
    Format.JSON: _json_document, Format.MD: documents, Format.HTML: fragments,
}  # fmt: skip
FOLDER_FORMATS = frozenset(_OF_ONE)


def write(artifacts: Artifacts, to: Path, chosen: Format, per: Grouping = Grouping.ARTIFACT) -> int:
    """Write the artifacts, sorted by source for a file per source; returns their number. Raises `OSError`."""
    written = 0
    if per is Grouping.SOURCE:
        to.mkdir(parents=True, exist_ok=True)
        for source_key, group in groupby(artifacts, key=itemgetter("source_key")):
            several = list(group)
            name = _safe_name([_unique_name(source_key or "no-source"), _slug(several[0])], chosen)
            (to / name).write_text(_OF_SEVERAL[chosen](several), encoding="utf-8")
            written += len(several)
        return written
    if chosen is Format.CSV:
        return _write_csv(artifacts, to)
    if chosen in FOLDER_FORMATS and not is_output(to):
        return write_folder(artifacts, to, chosen)
    with _opened(to) as file:
        for written, artifact in enumerate(artifacts, 1):  # noqa: B007 - the last number is the count
            file.write(json_text(artifact) + "\n" if chosen is Format.JSONL else _OF_ONE[chosen](artifact))
    return written


def write_folder(artifacts: Artifacts, to: Path, chosen: Format = Format.JSON) -> int:
    """Write each artifact to its own file; returns the number of files. Raises `OSError`."""
    to.mkdir(parents=True, exist_ok=True)
    written = 0
    for written, artifact in enumerate(artifacts, 1):  # noqa: B007 - the last number is the count
        (to / file_name(artifact, chosen)).write_text(_OF_ONE[chosen](artifact), encoding="utf-8")
    return written


def _unique_name(source_key: str) -> str:
    """The key if it is a safe file name, otherwise its beginning and a digest: two keys may begin alike."""
    if len(source_key) <= MAX_PART_CHARS and not _UNSAFE.search(source_key) and source_key == source_key.strip("."):
        return source_key
    digest = hashlib.sha256(source_key.encode()).hexdigest()[:DIGEST_CHARS]
    return f"{_UNSAFE.sub('_', source_key).strip('.')[: MAX_PART_CHARS - DIGEST_CHARS - 1]}-{digest}"


def file_name(artifact: Artifact, extension: str = "json") -> str:
    """A unique file name in safe ASCII: kind, locale, first words, job id, and the attempt unless it was accepted."""
    parts = [artifact["kind"], artifact["locale"], _slug(artifact), str(artifact["job_id"])]
    if artifact["verdict"] != "accepted":
        parts.append(f"attempt{artifact['attempt']}")
    return _safe_name(parts, extension)


def _safe_name(parts: Iterable[str | None], extension: str) -> str:
    safe = (_UNSAFE.sub("_", part).strip(".")[:MAX_PART_CHARS] or "_" for part in parts if part is not None)
    return ".".join([*safe, extension])


def _slug(artifact: Artifact) -> str | None:
    """The first words of the title or text; None where they have no ASCII letters."""
    text = title_of(artifact["body"]) or body_of(artifact)[: 4 * SLUG_CHARS]
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    slug = _SEPARATOR.sub("-", plain).strip("-")
    return (slug if len(slug) <= SLUG_CHARS else slug[: SLUG_CHARS + 1].rpartition("-")[0] or slug[:SLUG_CHARS]) or None


def _write_csv(artifacts: Artifacts, to: Path) -> int:
    written = 0
    with _opened(to) as file:
        rows = csv.DictWriter(file, COLUMNS, extrasaction="ignore", lineterminator="\n")
        rows.writeheader()
        for written, artifact in enumerate(artifacts, 1):  # noqa: B007 - the last number is the count
            cells = artifact | {
                "created_at": times.utc(artifact["created_at"]),
                "title": title_of(artifact["body"]),
                "text": body_of(artifact),
            }
            # A spreadsheet must not run a text as a formula (OWASP, "CSV Injection").
            texts = {name: text for name, text in cells.items() if isinstance(text, str)}
            rows.writerow(cells | {name: f"'{text}" for name, text in texts.items() if _FORMULA.match(text)})
    return written


class _Writable(Protocol):
    def write(self, text: str, /) -> object: ...


class _Screen:
    """Standard output that is a terminal, which no output of a model may manipulate."""

    def write(self, text: str, /) -> object:
        return sys.stdout.write(printable(text))


def _opened(to: Path) -> AbstractContextManager[_Writable]:
    if is_output(to):
        return nullcontext(_Screen() if sys.stdout.isatty() else sys.stdout)
    to.parent.mkdir(parents=True, exist_ok=True)
    return to.open("w", encoding="utf-8", newline="")


def is_output(to: Path) -> bool:
    return str(to) == STANDARD_OUTPUT
