"""Tables, JSON and counted nouns on standard output, safe for a terminal and useful in a pipe.

On a terminal a table fits the width: ids and times are short, texts are cut with an ellipsis, and columns that matter
least are left out. In a pipe nothing is shortened and nothing is left out.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import typer

from thothy_ai.cli.views import times

if TYPE_CHECKING:
    from rich.console import Console

SHORT_ID_CHARS = 8  # the end of an id: it begins with its time, which jobs of one batch share
MIN_TEXT_WIDTH = 12
GAP = 2  # between columns
PIPE_WIDTH = 10_000  # of a console without a terminal: no limit in practice
MAX_RULE = 200  # under the heads of a table that may be as wide as its content
# Control characters and bidirectional overrides, which could manipulate a terminal, and what UTF-8 cannot encode.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
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
    """The columns of the terminal that standard output is; None if it is none."""
    out = console()
    return out.width if out.is_terminal else None


def more_exist(found: int, limit: int) -> None:
    """Say on a terminal that a list has been cut."""
    if found > limit and terminal_width() is not None:
        typer.echo(f"The newest {limit} are shown; --limit shows more.")


def print_fields(fields: Sequence[tuple[str, object]]) -> None:
    """Print names and values beside each other. On a terminal, long values continue below themselves."""
    width = terminal_width()
    indent = max((len(name) for name, _ in fields), default=0) + GAP
    for name, value in fields:
        lines = wrapped(cell(value), None if width is None else max(width - indent, MIN_TEXT_WIDTH))
        typer.echo(f"{name:<{indent}}{lines[0]}")
        for line in lines[1:]:
            typer.echo(" " * indent + line)


def print_text(text: str) -> None:
    """Print a text; on a terminal its lines are broken between words."""
    width = terminal_width()
    for line in printable(text).splitlines() or [""]:
        typer.echo("\n".join(wrapped(line, width)))


def layout(
    title: str, columns: Sequence[Column | str], rows: Sequence[Sequence[object]], *, width: int, short: bool
) -> list[str]:
    """The lines of a table of at most `width` columns, if its columns can shrink that far."""
    heads = [column if isinstance(column, Column) else _column(column) for column in columns]
    cells = [[" ".join(cell(value, short=short).split()) for value in row] for row in rows]
    natural = [max(map(_width, column)) for column in zip([head.head for head in heads], *cells, strict=True)]
    kept = _kept(heads, natural, width)
    widths = _widths([heads[at] for at in kept], [natural[at] for at in kept], width)
    draw = _line_drawer([heads[at] for at in kept], widths)
    rule = "─" * min(sum(widths) + GAP * (len(widths) - 1), width if short else MAX_RULE)
    lines = [draw([heads[at].head for at in kept]), rule]
    return [*([title] if title else []), *lines, *(draw([row[at] for at in kept]) for row in cells)]


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
    """The end of an id, which commands accept in place of the whole."""
    return str(job_id)[-SHORT_ID_CHARS:]


def count(number: int, noun: str, plural: str | None = None) -> str:
    """A counted noun: `1 job`, `1,024 jobs`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def printable(text: str) -> str:
    """Replace control characters, which could manipulate the terminal, except for line breaks and tabs."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def print_json(value: Any) -> None:
    """Print a value as one JSON document."""
    typer.echo(json_text(value, indent=2))


def json_text(value: Any, indent: int | None = None) -> str:
    """Encode as JSON. Only control characters are escaped, including those above U+001F that JSON allows."""
    text = json.dumps(value, default=_to_text, ensure_ascii=False, indent=indent)
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _column(head: str) -> Column:
    """A column by its head alone; one that ends in `#` is of numbers."""
    return Column(head.rstrip("#"), number=head.endswith("#"))


def _kept(heads: Sequence[Column], natural: Sequence[int], width: int) -> list[int]:
    """The columns that fit: those with the highest `drop` are left out until the others do."""
    kept = list(range(len(heads)))
    for at in sorted((at for at in kept if heads[at].drop), key=lambda at: -heads[at].drop):
        least = sum(min(natural[at], MIN_TEXT_WIDTH) if heads[at].text else natural[at] for at in kept)
        if least + GAP * (len(kept) - 1) <= width:
            break
        kept.remove(at)
    return kept


def _widths(heads: Sequence[Column], natural: Sequence[int], width: int) -> list[int]:
    """The natural widths, except that texts share what the others leave: the widest is cut first."""
    widths = list(natural)
    texts = [at for at, head in enumerate(heads) if head.text]
    while sum(widths) + GAP * (len(widths) - 1) > width:
        widest = max(texts, key=lambda at: widths[at], default=None)
        if widest is None or widths[widest] <= MIN_TEXT_WIDTH:
            break
        widths[widest] -= 1
    return widths


def _line_drawer(heads: Sequence[Column], widths: Sequence[int]) -> Callable[[Sequence[str]], str]:
    def draw(values: Sequence[str]) -> str:
        cells = [_fitted(value, size, head) for value, size, head in zip(values, widths, heads, strict=True)]
        return (" " * GAP).join(cells).rstrip()

    return draw


def _fitted(value: str, width: int, head: Column) -> str:
    from rich.cells import set_cell_size

    if head.text and _width(value) > width:
        value = set_cell_size(value, width - 1).rstrip() + "…"
    padding = " " * (width - _width(value))
    return padding + value if head.number else value + padding


def wrapped(value: str, width: int | None) -> list[str]:
    """The lines of a value, indented as it is, broken between words and never within one: it may have to be copied.

    A command in backquotes is one word. Width None: one line.
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


def _to_text(value: object) -> str:
    """Convert a value that JSON cannot represent; times become ISO 8601 in UTC."""
    return times.utc(value) if isinstance(value, datetime) else str(value)
