"""Artifacts as HTML fragments, to be put into a page of any design: one `<article>` each, without scripts or styles.

Markup in a model's output stays text, and links keep only schemes that run nothing (markdown-it's rules).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from html import escape
from typing import TYPE_CHECKING, Any

from thothy_ai.cli.views.markdown import body_of, heading

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

# ISO 639 codes of languages that are written from right to left.
_RIGHT_TO_LEFT = frozenset({"ar", "dv", "fa", "he", "ku", "ps", "sd", "ug", "ur", "yi"})


def fragment(artifact: Mapping[str, Any]) -> str:
    """The artifact's title and text, with its identifying fields as attributes."""
    locale = str(artifact["locale"])
    direction = ' dir="rtl"' if locale.partition("-")[0].lower() in _RIGHT_TO_LEFT else ""
    about = "".join(f' data-{name}="{escape(str(artifact[name]))}"' for name in ("kind", "job_id"))
    opening = f'<article lang="{escape(locale)}"{direction}{about.replace("_", "-", 1)}>'
    return f"{opening}\n{_renderer().render(heading(artifact) + body_of(artifact))}</article>\n"


def fragments(artifacts: Iterable[Mapping[str, Any]]) -> str:
    return "".join(map(fragment, artifacts))


@cache
def _renderer() -> MarkdownIt:
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
