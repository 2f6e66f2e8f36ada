"""The units of a text that are translated one by one: headings, paragraphs, list items, table cells, lines of verse.

Everything around them (marks of headings and lists, table borders, code, blank lines) is kept unchanged, so that a
translation has the structure of its original whatever the model does. A paragraph whose lines were wrapped is one unit,
and its translation is wrapped into as many lines; a line that was broken on purpose is a unit of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from thothy_ai.jobs.text.blocks import blocks, lines_of

MIN_WRAPPED_CHARS = 40  # lines that are all shorter are verse, addresses or the like
_LINE_END = re.compile(r"\r\n?|[\x85\u2028\u2029]")
# Control characters except tab and line feed, byte order marks, and what overrides the direction of text.
_INVISIBLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
_MARKERS = re.compile(r"[ \t]*(?:(?:>|[-*+](?=\s|$)|\d{1,9}[.)](?=\s|$))[ \t]*)*(?:\[[ xX]\][ \t]+)?")
_QUOTE = re.compile(r"(?:[ \t]*>)*[ \t]*")
_HEADING = re.compile(r"((?:[ \t]*>)*[ \t]*(?:[-*+][ \t]+)?#{1,6}[ \t]+)(.*?)([ \t]*#*[ \t]*)")
_UNDERLINE = re.compile(r"[ \t>]*(?:=+|-+)[ \t]*")
_DEFINITION = re.compile(r"[ \t]*\[[^\]]+\]:\s*\S")
_CELL = re.compile(r"(?<!\\)\|")
_BREAK = re.compile(r"(?: {2,}|\\|<br ?/?>)$")
_FIRST_WORD = re.compile(r"[\u2e80-\ud7ff]|\S+")
_WIDE = re.compile(r"[\u2e80-\ud7ff\uf900-\ufaff]")
_PIECE = re.compile(
    r"!?\[[^\]]*\]\([^)]*\)\S*|`[^`]*`\S*|<[^>]*>\S*"  # links, code and tags are not broken
    r"|[\u2e80-\ud7ff][、。，！？）」』：；]*|[^\s\u2e80-\ud7ff]+|\s+"
)
# Would begin a block at the start of a line.
_LIKE_A_MARK = re.compile(r"(?:[-+*#=|]|>.*|#{2,6}|\d{1,9}[.)]|[-=*_]{2,}|(?:```|~~~).*)$")
_ENDS = (".", "!", "?", ":", ";", "。", "！", "？", "…")


class TextUnit(NamedTuple):
    """A text to translate, on one line. `prefixes` are the beginnings of its second and later lines."""

    text: str
    prefixes: tuple[str, ...] = ()
    cell: bool = False

    def laid_out(self, text: str) -> str:
        """A text fitted into this unit's place: wrapped into as many lines, or without characters that would end its
        cell.
        """
        return _CELL.sub(r"\\|", text) if self.cell else wrapped(text, self.prefixes)


@dataclass(frozen=True, slots=True)
class Document:
    """A text, as its units and the text between them."""

    parts: tuple[str | TextUnit, ...]

    @property
    def units(self) -> tuple[TextUnit, ...]:
        """The parts to translate, in order."""
        return tuple(part for part in self.parts if isinstance(part, TextUnit))

    def translated(self, translations: Mapping[str, str]) -> str:
        """The document with the translations of its units; a unit without one stays as it is."""
        return self.assembled([translations.get(unit.text, unit.text) for unit in self.units])

    def assembled(self, texts: Sequence[str]) -> str:
        """The document with one text for each unit. Raises `ValueError` if there are more or fewer."""
        if len(texts) != len(self.units):
            raise ValueError(f"{len(texts)} texts for {len(self.units)} units")
        remaining = iter(texts)
        return "".join(part.laid_out(next(remaining)) if isinstance(part, TextUnit) else part for part in self.parts)


@lru_cache(maxsize=8)
def document_of(text: str) -> Document:
    """Parse a text, Markdown or plain. Line breaks become line feeds; invisible controls are left out."""
    lines = lines_of(_INVISIBLE.sub("", _LINE_END.sub("\n", text)))
    found = blocks("".join(lines))
    items = {block.first for block in found if block.kind == "item"}
    parts: list[str | TextUnit] = []
    next_line = 0
    for block in found:
        if block.kind in _READERS:
            parts += lines[next_line : block.first]
            parts += _READERS[block.kind](lines[block.first : block.last], block.first in items)
            next_line = block.last
    return Document(tuple(part for part in [*parts, *lines[next_line:]] if part != ""))


def _heading(lines: list[str], _: bool) -> list[str | TextUnit]:
    parts: list[str | TextUnit] = []
    for line in lines:
        body, end = _without_feed(line)
        found = _HEADING.fullmatch(body)
        if _UNDERLINE.fullmatch(body):
            parts.append(line)
        elif found:
            parts += [found[1], *_unit(found[2]), found[3], end]
        else:
            prefix = _QUOTE.match(body)
            cut = prefix.end() if prefix else 0
            parts += [body[:cut], *_unit(body[cut:]), end]
    return parts


def _row(lines: list[str], _: bool) -> list[str | TextUnit]:
    parts: list[str | TextUnit] = []
    for line in lines:
        body, end = _without_feed(line)
        start = 0
        for border in [*(match.start() for match in _CELL.finditer(body)), len(body)]:
            cell = body[start:border]
            text = cell.strip()
            before = cell[: len(cell) - len(cell.lstrip())]
            unit: list[str | TextUnit] = [TextUnit(text, cell=True)] if text else []
            parts += [before, *unit, cell[len(before) + len(text) :], body[border : border + 1]]
            start = border + 1
        parts.append(end)
    return parts


class _Line(NamedTuple):
    prefix: str
    text: str
    end: str  # what breaks the line on purpose, and the line feed


def _paragraph(lines: list[str], item: bool) -> list[str | TextUnit]:
    rows = []
    for number, whole in enumerate(lines):
        body, end = _without_feed(whole)
        prefix = (_MARKERS if item and not number else _QUOTE).match(body)
        start = prefix.end() if prefix else 0
        breaking = _BREAK.search(body, start)
        stop = len(body[: breaking.start() if breaking and end else None].rstrip())
        rows.append(_Line(body[:start], body[start:stop], body[max(start, stop) :] + end))
    width = max((len(row.text) for row in rows), default=0)
    parts: list[str | TextUnit] = []
    group: list[_Line] = []
    for row, following in zip(rows, [*rows[1:], None], strict=True):
        group.append(row)
        if following is None or not _is_wrapped(row, following, width):
            text = group[0].text
            for line in group[1:]:
                text += joint(text[-1:], line.text[:1]) + line.text
            prefixes = tuple(line.prefix for line in group[1:])
            units = [wrapped(text, prefixes)] if _DEFINITION.match(text) else _unit(text, prefixes)
            parts += [group[0].prefix, *units, group[-1].end]
            group = []
    return parts


def _is_wrapped(row: _Line, following: _Line, width: int) -> bool:
    """Whether a line was wrapped: the next word did not fit, or the line ends in mid-sentence."""
    if row.end.strip(" \t\n") or row.end.startswith("  ") or width < MIN_WRAPPED_CHARS:
        return False
    if _DEFINITION.match(row.text) or _DEFINITION.match(following.text) or following.text.startswith("<"):
        return False
    first = _FIRST_WORD.match(following.text)
    full = len(row.text) + len(first[0] if first else "") >= width
    return full or (following.text[:1].islower() and not row.text.endswith(_ENDS))


def _unit(text: str, prefixes: tuple[str, ...] = ()) -> list[str | TextUnit]:
    return [TextUnit(text, prefixes)] if text.strip() else [text]


def _without_feed(line: str) -> tuple[str, str]:
    return (line[:-1], "\n") if line.endswith("\n") else (line, "")


def joint(before: str, after: str) -> str:
    """What joins two pieces of running text: a space, but nothing between characters of Chinese or Japanese."""
    return "" if _WIDE.match(before) and _WIDE.match(after) else " "


def wrapped(text: str, prefixes: Sequence[str]) -> str:
    """A text on one line more than there are prefixes; on fewer if it has too few places to break."""
    lines, remaining = [""], len(text)
    for piece in _PIECE.findall(text):
        left = len(prefixes) + 2 - len(lines)
        full = len(lines[-1]) + len(piece) / 2 > (len(lines[-1]) + remaining) / left
        if left > 1 and lines[-1] and full and piece.strip() and not _LIKE_A_MARK.match(piece):
            lines.append("")
        lines[-1] += piece
        remaining -= len(piece)
    return "\n".join(f"{prefix}{line.rstrip()}" for prefix, line in zip(["", *prefixes], lines, strict=False))


_READERS = {"heading": _heading, "row": _row, "paragraph": _paragraph}
