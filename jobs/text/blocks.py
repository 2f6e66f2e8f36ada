"""The blocks of a Markdown text: headings, paragraphs, list items, tables, code. Plain text is Markdown, too.

Parsed by markdown-it, whose block rules take 0.3 s for a megabyte. Indented code and HTML blocks are read as
paragraphs: what content teams indent is rarely code, and HTML around a text belongs to the text.
"""

from __future__ import annotations

import re
from itertools import accumulate
from typing import NamedTuple

from markdown_it import MarkdownIt

_PARSER = MarkdownIt("commonmark").enable("table").disable(["code", "html_block"])
_PARSER.core.ruler.enableOnly(["normalize", "block"])
_FRONT_MATTER = re.compile(r"---\n(?:[^\n]*\n){1,60}?---\n")
_KINDS = {
    "heading_open": "heading",
    "paragraph_open": "paragraph",
    "list_item_open": "item",
    "blockquote_open": "quote",
    "bullet_list_open": "list",
    "ordered_list_open": "list",
    "table_open": "table",
    "tr_open": "row",
    "fence": "code",
    "hr": "rule",
}


class Block(NamedTuple):
    """Lines `first` to `last` (exclusive). `depth` 0 is the top level; `level` is a heading's, otherwise 0."""

    kind: str  # heading, paragraph, item, quote, list, table, row, code, rule or front matter
    first: int
    last: int
    depth: int = 0
    level: int = 0


def lines_of(text: str) -> list[str]:
    """The lines with their line feeds; joined, they are the text."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def line_starts(lines: list[str]) -> list[int]:
    """Where each line begins, in characters, and where the last one ends."""
    return [0, *accumulate(map(len, lines))]


def blocks(text: str) -> tuple[Block, ...]:
    """All blocks in order, containers before their contents. `text` has only line feeds as line breaks."""
    front = _FRONT_MATTER.match(text)
    skipped = text[: front.end()].count("\n") if front else 0
    body = text[front.end() :] if front else text
    found = [Block("front matter", 0, skipped)] if skipped else []
    for token in _PARSER.parse(body):
        if token.type in _KINDS and token.map:
            kind, (first, last) = _KINDS[token.type], token.map
            level = int(token.tag[1]) if kind == "heading" else 0
            found.append(Block(kind, first + skipped, last + skipped, token.level, level))
    return tuple(found)
