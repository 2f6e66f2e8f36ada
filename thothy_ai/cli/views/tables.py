"""Tables, JSON and counted nouns on standard output, safe for a terminal and useful in a pipe.

On a terminal a table fits the width: ids and times are short, texts are cut with an ellipsis, and the least important
columns are left out. In a pipe nothing is shortened or left out.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from unicodedata import bidirectional
from uuid import UUID

import typer

from thothy_ai.admin.json_text import CONTROL, json_text
from thothy_ai.cli.views import times

if TYPE_CHECKING:
    from rich.console import Console

SHORT_ID_CHARS = 8  # the end of an id: it begins with its time, which jobs of one batch share
MIN_TEXT_WIDTH = 12
GAP = 2  # between columns
PIPE_WIDTH = 10_000  # of a console without a terminal: no limit in practice
MAX_RULE = 200  # columns of the rule under the heads of a table without a terminal
_WORD = re.compile(r"(?:`[^`]*`|\S)+")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. `text` may be cut to the terminal's width; `drop` > 0 may be left out, the highest first."""

    head: str
    number: bool = False
    text: bool = False
    drop: int = 0


def console(*, stderr: bool = False) -> Console:
    """A console for tables. Without a terminal, output is uncoloured and 160 columns wide."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(file=stream, width=None if stream.isatty() else 160, highlight=False, soft_wrap=False)


def table(title: str, columns: Sequence[Column | str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table, as wide as the terminal at most; without a terminal, as wide as its content."""
    width = terminal_width()
    for line in layout(title, columns, rows, width=width or sys.maxsize, short=width is not None):
        typer.echo(line)


def terminal_width() -> int | None:
    """The number of columns if standard output is a terminal, otherwise None."""
    return console().width if sys.stdout.isatty() else None


def more_exist(found: int, limit: int) -> None:
    """Say on a terminal that a list has been cut."""
    if found > limit and terminal_width() is not None:
        typer.echo(f"The newest {limit} are shown; --limit shows more.")


def print_fields(fields: Sequence[tuple[str, object]]) -> None:
    """Print names and values side by side. On a terminal, long values are wrapped and indented."""
    width = terminal_width()
    indent = max((len(name) for name, _ in fields), default=0) + GAP
    for name, value in fields:
        lines = wrapped(cell(value), None if width is None else max(width - indent, MIN_TEXT_WIDTH))
        typer.echo(f"{name:<{indent}}{lines[0]}")
        for line in lines[1:]:
            typer.echo(" " * indent + line)


def print_text(text: str) -> None:
    """Print a text; on a terminal, wrapped between words."""
    width = terminal_width()
    for line in printable(text).splitlines() or [""]:
        typer.echo("\n".join(wrapped(line, width)))


def layout(
    title: str, columns: Sequence[Column | str], rows: Sequence[Sequence[object]], *, width: int, short: bool
) -> list[str]:
    """The lines of a table of at most `width` columns, if its columns can shrink that far."""
    from rich.cells import set_cell_size

    heads = [
        # A `#` at the end of a plain head marks a column of numbers.
        column if isinstance(column, Column) else Column(column.rstrip("#"), number=column.endswith("#"))
        for column in columns
    ]
    cells = [[" ".join(cell(value, short=short).split()) for value in row] for row in rows]
    natural = [max(map(_width, column)) for column in zip([head.head for head in heads], *cells, strict=True)]
    kept = _kept(heads, natural, width)
    widths = _widths([heads[at] for at in kept], [natural[at] for at in kept], width)

    def draw(values: Sequence[str]) -> str:
        fitted = []
        for at, size in zip(kept, widths, strict=True):
            value = values[at]
            if heads[at].text and _width(value) > size:
                value = set_cell_size(value, size - 1).rstrip() + "…"
            padding = " " * (size - _width(value))
            if short and runs_right_to_left(value):  # otherwise such values of two columns would swap
                value += "\N{LEFT-TO-RIGHT MARK}"
            fitted.append(padding + value if heads[at].number else value + padding)
        return (" " * GAP).join(fitted).rstrip()

    rule = "─" * min(sum(widths) + GAP * (len(widths) - 1), width if short else MAX_RULE)
    return [*([title] if title else []), draw([head.head for head in heads]), rule, *map(draw, cells)]


def folded(columns: Sequence[Column], rows: Sequence[Sequence[object]], width: int) -> list[str]:
    """The lines of a table that shows every column. Those too many for `width` follow below, after the first one again.

    The first column is cut only if not even one other fits next to it.
    """
    lines: list[str] = []
    at = 1
    while at < len(columns):
        for end in range(len(columns), at, -1):
            shown = [0, *range(at, end)]
            part = [columns[place] for place in shown], [[row[place] for place in shown] for row in rows]
            if end == at + 1 or max(map(_width, layout("", *part, width=PIPE_WIDTH, short=False))) <= width:
                break
        lines += ["", *layout("", *part, width=width, short=False)]
        at = end
    return lines[1:]


def cell(value: object, *, short: bool = False) -> str:
    """Format a table cell: a dash for None and the empty string, times in local time; `short` ids and times."""
    match value:
        case None | "":
            return "-"
        case datetime():
            return times.short(value) if short else times.local(value)
        case UUID():
            return short_id(value) if short else str(value)
        case _:
            return printable(str(value))


def short_id(job_id: UUID) -> str:
    """The end of an id, which commands accept instead of the whole id."""
    return str(job_id)[-SHORT_ID_CHARS:]


def count(number: int, noun: str, plural: str | None = None) -> str:
    """A counted noun: `1 job`, `1,024 jobs`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def percent(share: float | None) -> str:
    """A share such as `97.5%`; a dash for None."""
    return "-" if share is None else f"{share:.1%}"


def runs_right_to_left(text: str) -> bool:
    """Whether a text has letters that a terminal draws from right to left."""
    return any(bidirectional(char) in {"R", "AL"} for char in text)


def printable(text: str) -> str:
    """Replace control characters, which could manipulate the terminal, except for line breaks and tabs."""
    return CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def print_json(value: Any) -> None:
    """Print a value as one JSON document."""
    typer.echo(json_text(value, indent=2))


def _kept(heads: Sequence[Column], natural: Sequence[int], width: int) -> list[int]:
    """Leave out columns, those with the highest `drop` first, until the others fit."""
    kept = list(range(len(heads)))
    for at in sorted((at for at in kept if heads[at].drop), key=lambda at: -heads[at].drop):
        least = sum(min(natural[at], MIN_TEXT_WIDTH) if heads[at].text else natural[at] for at in kept)
        if least + GAP * (len(kept) - 1) <= width:
            break
        kept.remove(at)
    return kept


def _widths(heads: Sequence[Column], natural: Sequence[int], width: int) -> list[int]:
    """The natural widths, with texts cut, the widest first, to the room that other columns leave."""
    widths = list(natural)
    texts = [at for at, head in enumerate(heads) if head.text]
    while sum(widths) + GAP * (len(widths) - 1) > width:
        widest = max(texts, key=lambda at: widths[at], default=None)
        if widest is None or widths[widest] <= MIN_TEXT_WIDTH:
            break
        widths[widest] -= 1
    return widths


def wrapped(value: str, width: int | None) -> list[str]:
    """The lines of a value, with its indentation, broken between words. Width None: one line.

    A word is never broken, and neither is a command in backquotes, so that it can be copied.
    """
    if width is None or _width(value) <= width:
        return [value]
    indent = value[: len(value) - len(value.lstrip(" "))]
    lines = [indent]
    for word in _WORD.findall(value):
        longer = f"{lines[-1]} {word}" if lines[-1].strip() else indent + word
        if _width(longer) <= width or not lines[-1].strip():
            lines[-1] = longer
        else:
            lines.append(indent + word)
    return lines


def _width(value: str) -> int:
    from rich.cells import cell_len

    return cell_len(value)
