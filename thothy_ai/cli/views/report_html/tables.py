"""HTML elements of the report. All texts are escaped here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from thothy_ai.cli.views.report_html.plots import Plot


def table(
    caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]], *, texts: int = 1, total: bool = False
) -> str:
    """A table whose first `texts` columns are texts and the others numbers. With `total`, its last row is a total."""
    head = "".join(f"<th scope=col{_number(n >= texts)}>{escape(text)}</th>" for n, text in enumerate(heads))
    body = []
    for first, *others in rows:
        shown = (f"<td{_number(n >= texts)}>{escape(text)}</td>" for n, text in enumerate(others, 1))
        body.append(f"<tr><th scope=row>{escape(first)}</th>{''.join(shown)}</tr>")
    lines = "\n".join(body)
    label, classes = escape(caption), "scroll total" if total else "scroll"
    return (
        f'<div class="{classes}" tabindex=0 role=region aria-label="{label}"><table><caption>{label}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>\n{lines}\n</tbody></table></div>"
    )


def _number(right: bool) -> str:
    return " class=n" if right else ""


def details(summary: str, content: str) -> str:
    """Content that a click unfolds, and that is always printed."""
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"


def tiles(values: Mapping[str, str]) -> str:
    pairs = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in values.items())
    return f"<dl class=tiles>{pairs}</dl>"


def figure(plot: Plot) -> str:
    """A plot with its legend, in both widths: the style sheet shows the one that fits."""
    keys = "".join(
        f'<li><span class=key style="background:{escape(colour)}"></span>{escape(name)}</li>'
        for name, colour in plot.legend.items()
    )
    legend = f"<ul class=legend>{keys}</ul>" if keys else ""
    drawings = f"<div class=wide>{plot.wide}</div><div class=narrow>{plot.narrow}</div>"
    return f'<figure>{legend}<div class=plot role=img aria-label="{escape(plot.label)}">{drawings}</div></figure>'


def section(title: str, *parts: str) -> str:
    return f"<section><h2>{escape(title)}</h2>\n" + "\n".join(parts) + "\n</section>"


def note(text: str) -> str:
    return f"<p class=note>{escape(text)}</p>"
