"""Markdown as the pages use it: tables that read well as plain text, and fenced blocks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

NOTE = "<!-- Written by `make docs` from the code. Change the code, not this page. -->"


def page(title: str, about: str, *parts: str) -> str:
    """A page: a note on where it comes from, its title, one sentence about it, its parts."""
    return "\n\n".join((NOTE, f"# {title}", about, *parts)) + "\n"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose columns line up, except for the last one, whose texts may be long."""
    lines = [list(heads), *([_cell(text) for text in row] for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(heads) - 1)]
    ruler = [*("-" * width for width in widths), "-" * len(heads[-1])]
    return "\n".join(_row(line, widths) for line in (lines[0], ruler, *lines[1:]))


def fence(text: str, language: str = "") -> str:
    """A fenced block."""
    return f"```{language}\n{text}\n```"


def code(text: str) -> str:
    """Text as code, inside a line."""
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def listed(texts: Iterable[object]) -> str:
    """Several values as code, separated by commas."""
    return ", ".join(code(str(text)) for text in texts)


def paragraph(docstring: str | None) -> str:
    """The first paragraph of a docstring, on one line."""
    return " ".join((docstring or "").strip().partition("\n\n")[0].split())


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=False)]
    return f"| {' | '.join((*padded, cells[-1]))} |"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
