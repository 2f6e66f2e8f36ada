"""Where exported artifacts go: a file per artifact or per source in a folder, one file, or standard output."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Protocol

from thothy_ai.admin.export.formats import BYTE_ORDER_MARK, Format, stream
from thothy_ai.admin.export.pieces import ascii_slug, piece_of
from thothy_ai.admin.json_text import json_text
from thothy_ai.cli.views.tables import printable

STANDARD_OUTPUT = "-"
MAX_PART_CHARS, DIGEST_CHARS = 60, 8  # of a part of a file's name
FOLDER_FORMATS = frozenset({Format.JSON, Format.MD, Format.HTML})
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
Artifact = dict[str, Any]
Artifacts = Iterator[Artifact]


class Grouping(StrEnum):
    """What one file in a folder contains."""

    ARTIFACT = "artifact"
    SOURCE = "source"


def write(artifacts: Artifacts, to: Path, chosen: Format, per: Grouping = Grouping.ARTIFACT) -> int:
    """Write the artifacts, sorted by source for a file per source; returns their number. Raises `OSError`."""
    if per is Grouping.SOURCE:
        return _write_sources(artifacts, to, chosen)
    if chosen in FOLDER_FORMATS and not is_output(to):
        return write_folder(artifacts, to, chosen)
    written = 0

    def counted() -> Artifacts:
        nonlocal written
        for artifact in artifacts:
            written += 1
            yield artifact

    opened: AbstractContextManager[_Writable]
    if is_output(to):
        opened = nullcontext(_Screen() if sys.stdout.isatty() else sys.stdout)
    else:
        to.parent.mkdir(parents=True, exist_ok=True)
        opened = to.open("w", encoding="utf-8", newline="")
    with opened as file:
        if chosen is Format.CSV and not is_output(to):
            file.write(BYTE_ORDER_MARK)
        for text in stream(counted(), chosen):
            file.write(text)
    return written


def write_folder(artifacts: Artifacts, to: Path, chosen: Format = Format.JSON) -> int:
    """Write each artifact to its own file; returns the number of files. Raises `OSError`."""
    to.mkdir(parents=True, exist_ok=True)
    text_of_one, written = _writer(chosen, one=True), 0
    for written, artifact in enumerate(artifacts, 1):  # noqa: B007 - the last number is the count
        (to / file_name(artifact, chosen)).write_text(text_of_one(artifact), encoding="utf-8")
    return written


def _write_sources(artifacts: Artifacts, to: Path, chosen: Format) -> int:
    to.mkdir(parents=True, exist_ok=True)
    text_of_several, written = _writer(chosen, one=False), 0
    for source_key, group in groupby(artifacts, key=itemgetter("source_key")):
        several = list(group)
        name = _safe_name([_unique_name(source_key or "no-source"), _slug(several[0])], chosen)
        (to / name).write_text(text_of_several(several), encoding="utf-8")
        written += len(several)
    return written


def _writer(chosen: Format, *, one: bool) -> Callable[[Any], str]:
    """The function that makes a file's text from one artifact, or from all artifacts of a source."""
    from thothy_ai.admin.export import documents, pages

    match chosen:
        case Format.MD:
            return documents.document if one else documents.documents
        case Format.HTML:
            return pages.page if one else pages.page_of_source
        case _:
            return lambda value: json_text(value, indent=2) + "\n"


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


def _slug(artifact: Artifact) -> str | None:
    return ascii_slug(piece_of(artifact)) or None


def _safe_name(parts: Iterable[str | None], extension: str) -> str:
    safe = (_UNSAFE.sub("_", part).strip(".")[:MAX_PART_CHARS] or "_" for part in parts if part is not None)
    return ".".join([*safe, extension])


class _Writable(Protocol):
    def write(self, text: str, /) -> object: ...


class _Screen:
    """Standard output as a terminal, which a model's output must not manipulate."""

    def write(self, text: str, /) -> object:
        return sys.stdout.write(printable(text))


def is_output(to: Path) -> bool:
    return str(to) == STANDARD_OUTPUT
