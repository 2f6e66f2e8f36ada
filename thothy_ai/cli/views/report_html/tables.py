"""HTML of the report's parts that are not drawn. Everything that is put into it is escaped here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from thothy_ai.cli.views.report_html.plots import Plot


def table(
    caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]], *, texts: int = 1, total: bool = False
) -> str:
    """A table whose first `texts` columns are texts, the others numbers, and whose last row may be a total.

    It scrolls where the page is narrow.
    """
    head = "".join(
        f"<th scope=col{'' if n < texts else ' class=n'}>{escape(text)}</th>" for n, text in enumerate(heads)
    )
    body = "\n".join(f"<tr>{_cells(row, texts)}</tr>" for row in rows)
    label, classes = escape(caption), "scroll total" if total else "scroll"
    return (
        f'<div class="{classes}" tabindex=0 role=region aria-label="{label}"><table><caption>{label}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>"
    )


def _cells(row: Sequence[str], texts: int) -> str:
    first, *others = (escape(text) for text in row)
    shown = "".join(f"<td{'' if n < texts else ' class=n'}>{text}</td>" for n, text in enumerate(others, 1))
    return f"<th scope=row>{first}</th>{shown}"


def details(summary: str, content: str) -> str:
    """Content that is shown on request, and in print."""
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"


def tiles(values: Mapping[str, str]) -> str:
    """Figures and their names, large."""
    pairs = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in values.items())
    return f"<dl class=tiles>{pairs}</dl>"


def figure(plot: Plot) -> str:
    """A plot, in the drawing that fits the page, with its legend."""
    keys = "".join(
        f'<li><span class=key style="background:{escape(colour)}"></span>{escape(name)}</li>'
        for name, colour in plot.legend.items()
    )
    legend = f"<ul class=legend>{keys}</ul>" if keys else ""
    drawings = f"<div class=wide>{plot.wide}</div><div class=narrow>{plot.narrow}</div>"
    return f'<figure>{legend}<div class=plot role=img aria-label="{escape(plot.label)}">{drawings}</div></figure>'


def section(title: str, *parts: str) -> str:
    """A section under a heading."""
    return f"<section><h2>{escape(title)}</h2>\n" + "\n".join(parts) + "\n</section>"


def note(text: str) -> str:
    """A sentence that explains."""
    return f"<p class=note>{escape(text)}</p>"
