"""Pieces as HTML: the content of an `<article>`, without scripts or styles.

Plain text is escaped. Tags in Markdown stay text, and links keep only schemes that run nothing (markdown-it's rules).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from html import escape
from typing import TYPE_CHECKING

from thothy_ai.jobs.publishing.piece import Alternatives, Block, Cited, Heading, Marked, Paragraph, Piece, Points, Quote

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

_BLANK_LINE = re.compile(r"\n[ \t]*\n\s*")


def html(piece: Piece, level: int = 1, name: str = "") -> str:
    """The piece, with its title as a heading of `level`. `name` distinguishes its footnotes from other pieces' on a
    page.
    """
    return "".join(f"{line}\n" for line in _Html(piece, level, name).lines())


class _Html:
    """Writes one piece, and knows the numbers of its footnotes."""

    def __init__(self, piece: Piece, level: int, name: str) -> None:
        self._piece, self._level, self._name = piece, level, f"{name}-" if name else ""
        self._numbers = {quote: number for number, quote in enumerate(piece.quotes, 1)}
        self._marked: set[Quote] = set()

    def lines(self) -> Iterator[str]:
        piece, level = self._piece, self._level
        if heading := piece.title or piece.label:
            yield f"<h{level}>{_text(heading)}</h{level}>"
        if piece.standfirst:
            yield f'<p class="standfirst">{_text(piece.standfirst)}</p>'
        for block in piece.blocks:
            yield from self._block(block)
        if self._numbers:
            yield from _list("ol", map(self._note, self._numbers), ' class="notes"')
        if piece.tags:
            yield from _list("ul", map(_text, piece.tags), ' class="tags"')

    def _block(self, block: Block) -> Iterator[str]:
        match block:
            case Heading():
                level = min(self._level + block.level, 6)
                yield f"<h{level}>{_text(block.text)}</h{level}>"
            case Paragraph():
                text = "".join(map(self._cited, block.runs))
                yield from (f"<p>{paragraph}</p>" for paragraph in _BLANK_LINE.split(text) if paragraph)
            case Points():
                yield from _list("ul", map(self._cited, block.items))
            case Alternatives():
                yield from _list("ul", (_text(item.text) for item in block.items))
            case Marked():
                tokens = _renderer().parse(block.text)
                headings = [token for token in tokens if token.type in {"heading_open", "heading_close"}]
                highest = min((int(token.tag[1]) for token in headings), default=6)
                for token in headings:  # all below the title
                    token.tag = f"h{min(int(token.tag[1]) + max(self._level + 1 - highest, 0), 6)}"
                yield str(_renderer().renderer.render(tokens, _renderer().options, {})).rstrip("\n")

    def _cited(self, cited: Cited) -> str:
        """A text with its footnote marks. A note links back to its first mark."""
        marks = []
        for quote in cited.quotes:
            number, name = self._numbers[quote], self._name
            back = "" if quote in self._marked else f' id="mark-{name}{number}"'
            self._marked.add(quote)
            marks.append(f'<sup><a href="#note-{name}{number}"{back}>{number}</a></sup>')
        return _text(cited.text) + "".join(marks)

    def _note(self, quote: Quote) -> str:
        number, name = self._numbers[quote], self._name
        back = f'<a href="#mark-{name}{number}">↩</a>'
        title = f'<a href="{escape(quote.url)}">{_text(quote.title)}</a>' if quote.url else _text(quote.title)
        where = f" – <cite>{title}</cite>" if quote.title else ""
        where += _text(f", {quote.byline}") if quote.byline else ""
        return f'<span id="note-{name}{number}">{_text(str(quote))}{where}</span> {back}'


def _list(tag: str, items: Iterable[str], attributes: str = "") -> Iterator[str]:
    yield f"<{tag}{attributes}>"
    yield from (f"<li>{item}</li>" for item in items)
    yield f"</{tag}>"


def _text(text: str) -> str:
    return escape(text, quote=False)


@cache
def _renderer() -> MarkdownIt:
    from markdown_it import MarkdownIt  # noqa: PLC0415  which only HTML needs

    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
