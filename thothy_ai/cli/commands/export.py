"""Writes artifacts to files: one file per artifact or per source in a folder, or all in one file."""

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
from typing import Any, NamedTuple, Protocol

from thothy_ai.cli.shell import usage
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
_LIKE_A_FILE = re.compile(r"\.[A-Za-z]{2,5}")  # the end of a name that is hardly a folder's
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # what formulas begin with
_NO_WORD = re.compile(r"[^a-z0-9]+")
Artifact = dict[str, Any]
Artifacts = Iterator[Artifact]


class Format(StrEnum):
    """How artifacts are written."""

    JSON = "json"
    JSONL = "jsonl"
    MD = "md"
    CSV = "csv"
    HTML = "html"


class Grouping(StrEnum):
    """What one file of a folder holds."""

    ARTIFACT = "artifact"
    SOURCE = "source"


class _Form(NamedTuple):
    """How one artifact, and all artifacts of a source, become a text."""

    of_one: Callable[[Artifact], str]
    of_several: Callable[[Sequence[Artifact]], str]


_FORMS = {
    Format.JSON: _Form(
        lambda artifact: json_text(artifact, indent=2) + "\n", lambda several: json_text(several, indent=2) + "\n"
    ),
    Format.MD: _Form(document, documents),
    Format.HTML: _Form(fragment, fragments),
}


def format_for(to: Path, wanted: Format | None) -> Format:
    """The format that was asked for, or that the target's name stands for. Raises `BadParameter`."""
    named = Format(to.suffix[1:].lower()) if to.suffix[1:].lower() in list(Format) and not to.is_dir() else None
    if not (wanted or named or to.is_dir()) and _LIKE_A_FILE.fullmatch(to.suffix):
        usage(f"cannot tell a format from {to}; pass --format, or name a folder, or a .jsonl or .csv file")
    chosen = wanted or named or (Format.JSONL if _is_output(to) else Format.JSON)
    if chosen is Format.JSON and _is_output(to):
        usage("JSON goes to a folder, one file per artifact; for standard output, pass --format jsonl, csv, md or html")
    if chosen in _FORMS and named is chosen:
        usage(f"{to}: {chosen} goes to a folder, one file per artifact; for one file, name it .jsonl or .csv")
    return chosen


def check_grouping(to: Path, chosen: Format, per: Grouping) -> None:
    """Raise `BadParameter` if artifacts of this format cannot be grouped there."""
    if per is Grouping.SOURCE and (chosen not in _FORMS or _is_output(to)):
        usage("--per source goes to a folder, with --format json, md or html")


def write(artifacts: Artifacts, to: Path, chosen: Format, per: Grouping = Grouping.ARTIFACT) -> int:
    """Write the artifacts, which come in the order of their sources if there is a file per source; returns how many.

    Raises `OSError`.
    """
    if per is Grouping.SOURCE:
        return _write_sources(artifacts, to, chosen)
    if chosen is Format.CSV:
        return _write_csv(artifacts, to)
    if chosen is Format.JSONL:
        return _write_lines(artifacts, to, lambda artifact: json_text(artifact) + "\n")
    if _is_output(to):
        return _write_lines(artifacts, to, _FORMS[chosen].of_one)
    return write_folder(artifacts, to, chosen)


def write_folder(artifacts: Artifacts, to: Path, chosen: Format = Format.JSON) -> int:
    """Write each artifact to its own file; returns the number of files. Raises `OSError`."""
    to.mkdir(parents=True, exist_ok=True)
    written = 0
    for written, artifact in enumerate(artifacts, 1):  # noqa: B007 - the last number is the count
        (to / file_name(artifact, chosen)).write_text(_FORMS[chosen].of_one(artifact), encoding="utf-8")
    return written


def _write_sources(artifacts: Artifacts, to: Path, chosen: Format) -> int:
    to.mkdir(parents=True, exist_ok=True)
    written = 0
    for source_key, group in groupby(artifacts, key=itemgetter("source_key")):
        several = list(group)
        name = _safe_name([_told_apart(source_key or "no-source"), _slug(several[0])], chosen)
        (to / name).write_text(_FORMS[chosen].of_several(several), encoding="utf-8")
        written += len(several)
    return written


def _told_apart(source_key: str) -> str:
    """A key that is not a safe name as it is, with a digest: two of them may begin alike."""
    if len(source_key) <= MAX_PART_CHARS and not _UNSAFE.search(source_key) and source_key == source_key.strip("."):
        return source_key
    digest = hashlib.sha256(source_key.encode()).hexdigest()[:DIGEST_CHARS]
    return f"{_UNSAFE.sub('_', source_key).strip('.')[: MAX_PART_CHARS - DIGEST_CHARS - 1]}-{digest}"


def file_name(artifact: Artifact, extension: str = "json") -> str:
    """A unique file name of safe ASCII characters: kind, locale, first words and job id; of a rejected one, attempt."""
    parts = [artifact["kind"], artifact["locale"], _slug(artifact), str(artifact["job_id"])]
    if artifact["verdict"] != "accepted":
        parts.append(f"attempt{artifact['attempt']}")
    return _safe_name(parts, extension)


def _safe_name(parts: Iterable[str | None], extension: str) -> str:
    safe = (_UNSAFE.sub("_", part).strip(".")[:MAX_PART_CHARS] or "_" for part in parts if part is not None)
    return ".".join([*safe, extension])


def _slug(artifact: Artifact) -> str | None:
    """The first words of the title or text, for people; None where they have no ASCII letters."""
    text = title_of(artifact["body"]) or body_of(artifact)[: 4 * SLUG_CHARS]
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    slug = _NO_WORD.sub("-", plain).strip("-")
    return (slug if len(slug) <= SLUG_CHARS else slug[: SLUG_CHARS + 1].rpartition("-")[0] or slug[:SLUG_CHARS]) or None


def _write_lines(artifacts: Artifacts, to: Path, text: Callable[[Artifact], str]) -> int:
    written = 0
    with _opened(to) as file:
        for written, artifact in enumerate(artifacts, 1):  # noqa: B007 - the last number is the count
            file.write(text(artifact))
    return written


def _write_csv(artifacts: Artifacts, to: Path) -> int:
    written = 0
    with _opened(to) as file:
        rows = csv.DictWriter(file, COLUMNS, extrasaction="ignore", lineterminator="\n")
        rows.writeheader()
        for written, artifact in enumerate(artifacts, 1):  # noqa: B007 - the last number is the count
            texts = {"title": title_of(artifact["body"]), "text": body_of(artifact)}
            cells = {**artifact, "created_at": times.utc(artifact["created_at"]), **texts}
            rows.writerow({name: _inert(cells.get(name)) for name in COLUMNS})
    return written


def _inert(cell: object) -> object:
    """A cell that no spreadsheet takes for a formula (OWASP, "CSV Injection"): text of that form gets an apostrophe."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell


class _Writable(Protocol):
    def write(self, text: str, /) -> object: ...


class _Screen:
    """Standard output where it is a terminal: what a model wrote must not manipulate it."""

    def write(self, text: str, /) -> object:
        return sys.stdout.write(printable(text))


def _opened(to: Path) -> AbstractContextManager[_Writable]:
    if _is_output(to):
        return nullcontext(_Screen() if sys.stdout.isatty() else sys.stdout)
    to.parent.mkdir(parents=True, exist_ok=True)
    return to.open("w", encoding="utf-8", newline="")


def _is_output(to: Path) -> bool:
    return str(to) == STANDARD_OUTPUT
