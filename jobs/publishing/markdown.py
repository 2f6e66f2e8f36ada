"""Pieces as Markdown: evidence as footnotes, plain text shown as it is."""

from __future__ import annotations

import re
from collections.abc import Sequence

from thothy_ai.jobs.publishing.piece import Alternatives, Block, Cited, Heading, Marked, Paragraph, Piece, Points, Quote

# Characters special to Markdown or to a site generator's template language. An underscore inside a word does
# nothing, and a link with one must stay whole.
_MARK = re.compile(r"[\\`*\[\]~]|(?<![^\W_])_|_(?![^\W_])|(?<=\])\(|(?<=\s)#+$")
_ENTITIES = ((re.compile(r"&(?=#?\w+;)"), "&amp;"), (re.compile("<"), "&lt;"), (re.compile(r"\{(?=[{%])"), "&#123;"))
_NUMBERED, _OTHER_BLOCK = r"(\d{1,9})(?=[.)](?:\s|$))", r"(?=#{1,6}(?:\s|$)|[-+](?:\s|$)|>|\||=+\s*$|-{2,}\s*$)"
_FENCE = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})(.*)")
_BLOCK_MARK = re.compile(rf"(?m)^(\s*)(?:{_NUMBERED}|{_OTHER_BLOCK})")


def markdown(pieces: Sequence[Piece], level: int = 1) -> str:
    """Pieces one after the other, with all footnotes at the end. Their titles are headings of `level`; at level 0 they
    are omitted, since the front matter has them.
    """
    notes: dict[Quote, int] = {}
    parts: list[str] = []
    for piece in pieces:
        if level and (heading := piece.title or piece.label):
            parts.append(f"{'#' * level} {literal(heading)}")
        parts.append(literal(piece.standfirst))
        parts += (_block(block, max(level, 1), notes) for block in piece.blocks)
        if level > 1 and piece.tags:  # a single piece has them in the front matter
            parts.append(f"*{literal(' · '.join(piece.tags))}*")
    footnotes = []
    for quote, number in notes.items():
        title = f"[{literal(quote.title)}](<{quote.url}>)" if quote.url else literal(quote.title)
        byline = literal(f", {quote.byline}") if quote.byline else ""
        footnotes.append(f"[^{number}]: {literal(str(quote))}" + (f" – {title}{byline}" if quote.title else ""))
    return "\n\n".join(part for part in (*parts, "\n".join(footnotes)) if part) + "\n"


def literal(text: str) -> str:
    """Plain text, escaped so that Markdown shows it unchanged."""
    text = _MARK.sub(r"\\\g<0>", text)
    for pattern, entity in _ENTITIES:
        text = pattern.sub(entity, text)
    return _BLOCK_MARK.sub(r"\1\2\\", text)


def _block(block: Block, level: int, notes: dict[Quote, int]) -> str:
    match block:
        case Heading():
            return f"{'#' * min(level + block.level, 6)} {literal(block.text)}"
        case Paragraph():
            return "".join(_cited(run, notes) for run in block.runs)
        case Points():
            return "\n".join(f"- {_cited(item, notes)}" for item in block.items)
        case Alternatives():
            return "\n".join(f"- {literal(item.text)}" for item in block.items)
        case Marked():
            return _closed(block.text)


def _closed(text: str) -> str:
    """Markdown with every code fence closed: text after an open fence would become code."""
    fence = ""
    for line in text.splitlines():
        if not (found := _FENCE.match(line)):
            continue
        if not fence:
            fence = found[1]
        elif found[1].startswith(fence) and not found[2].strip():
            fence = ""
    return f"{text}\n{fence}" if fence else text


def _cited(cited: Cited, notes: dict[Quote, int]) -> str:
    return literal(cited.text) + "".join(f"[^{notes.setdefault(quote, len(notes) + 1)}]" for quote in cited.quotes)
