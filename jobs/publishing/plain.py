"""Pieces as plain text, for a terminal, a cell of a table or a description."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

from thothy_ai.jobs.publishing.piece import Alternatives, Block, Cited, Heading, Marked, Paragraph, Piece, Points, Quote

MAX_DESCRIPTION_CHARS = 155  # about what search engines show


def plain(piece: Piece) -> str:
    """The text below title and standfirst. `[1]` marks text that rests on the first of the piece's quotes."""
    numbers = {quote: number for number, quote in enumerate(piece.quotes, 1)}
    return "\n\n".join(filter(None, (_block(block, numbers) for block in piece.blocks)))


def evidence(piece: Piece) -> str:
    """The quotes with their sources, a numbered line each."""
    lines = (
        f"[{number}] {quote}"
        + " – " * bool(quote.title)
        + ", ".join(filter(None, (quote.title, quote.byline, quote.url)))
        for number, quote in enumerate(piece.quotes, 1)
    )
    return "\n".join(lines)


def description(piece: Piece) -> str:
    """The standfirst, or else the beginning of the text, shortened to what search engines show."""
    return shortened(piece.standfirst or beginning(piece), MAX_DESCRIPTION_CHARS)


def beginning(piece: Piece, *, heading: bool = False) -> str:
    """The first text of a piece, on one line and without marks; with `heading`, its first heading if it has one."""
    lines = [line for block in piece.blocks for line in _lines(block) if line.text.strip()]
    found = next((line for line in lines if line.heading == heading), lines[0] if lines else None)
    return " ".join(found.text.split()) if found else ""


def shortened(line: str, most: int) -> str:
    """A line of at most `most` characters, cut between words."""
    if len(line) <= most:
        return line
    cut = line[:most].rpartition(" ")[0]
    return (cut if len(cut) > most // 2 else line[: most - 1]).rstrip(" ,;:–—-") + "…"


class _Line(NamedTuple):
    text: str
    heading: bool = False


def _lines(block: Block) -> Iterator[_Line]:
    match block:
        case Heading():
            yield _Line(block.text, heading=True)
        case Paragraph():
            yield _Line("".join(run.text for run in block.runs))
        case Points() | Alternatives():
            yield from (_Line(item.text) for item in block.items)
        case Marked():
            from markdown_it import MarkdownIt  # noqa: PLC0415  which only names and descriptions need

            tokens = MarkdownIt("commonmark", {"html": False}).enable("table").parse(block.text)
            for before, token in pairwise(tokens):
                if token.type == "inline":
                    parts = (child.content or " " * child.type.endswith("break") for child in token.children or ())
                    yield _Line("".join(parts), before.type == "heading_open")


def _block(block: Block, numbers: Mapping[Quote, int]) -> str:
    match block:
        case Heading():
            return block.text
        case Paragraph():
            return "".join(_cited(run, numbers) for run in block.runs)
        case Points():
            return "\n".join(f"• {_cited(item, numbers)}" for item in block.items)
        case Alternatives():
            only = len(block.items) == 1
            return "\n".join(item.text if only else f"• {item.text}" for item in block.items)
        case Marked():
            return block.text


def _cited(cited: Cited, numbers: Mapping[Quote, int]) -> str:
    return cited.text + "".join(f" [{numbers[quote]}]" for quote in cited.quotes)
