"""The formats of exports. A single file is written piece by piece, a folder one artifact at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any

from thothy_ai.admin.json_text import json_text

Rows = Iterable[Mapping[str, Any]]
BYTE_ORDER_MARK = "\ufeff"  # without it, Excel does not read the text as UTF-8


class Format(StrEnum):
    JSON = "json"
    JSONL = "jsonl"
    MD = "md"
    CSV = "csv"
    HTML = "html"


def stream(artifacts: Rows, chosen: Format) -> Iterator[str]:
    """All artifacts in one text: lines of JSON, a table, Markdown documents one after the other, or a page."""
    match chosen:
        case Format.CSV:
            from thothy_ai.admin.export.table import table  # noqa: PLC0415  load only the requested format

            yield from table(artifacts)
        case Format.MD:
            from thothy_ai.admin.export.documents import document  # noqa: PLC0415

            yield from map(document, artifacts)
        case Format.HTML:
            from thothy_ai.admin.export.pages import stream_page  # noqa: PLC0415

            yield from stream_page(artifacts)
        case _:
            yield from (f"{json_text(artifact)}\n" for artifact in artifacts)
