"""Artifacts as Markdown and HTML, whatever their kind and whatever is in them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from html import unescape
from html.parser import HTMLParser
from typing import Any
from uuid import uuid4

import pytest
import yaml
from markdown_it import MarkdownIt

from tests.unit.thothy_ai.admin.export.rows import row
from thothy_ai.admin.export.documents import document, documents
from thothy_ai.admin.export.pages import page, page_of_source
from thothy_ai.admin.export.pieces import piece_of, text_of
from thothy_ai.jobs.publishing.markdown import literal, markdown
from thothy_ai.jobs.publishing.piece import Marked, Piece


def artifact(body: dict[str, Any] | None, **values: Any) -> dict[str, Any]:
    return row("custom", body) | values


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"summary": "One. Two."}, "One. Two.\n"),
        ({"title": "Crocks\nare back", "text": "So it is."}, "# Crocks are back\n\nSo it is.\n"),
        ({"lead": "L", "title": "T", "text": "X", "tags": ["a"]}, "# T\n\nL\n\nX\n"),
        ({"headline": "H", "points": ["a", "b\nc"]}, "# H\n\n- a\n- b c\n"),
        ({"points": [{"text": "a", "evidence": ["q", "r"]}]}, "- a[^1][^2]\n\n[^1]: “q”\n[^2]: “r”\n"),
        ({"pros": ["a"], "cons": ["b"]}, "## Pros\n\n- a\n\n## Cons\n\n- b\n"),
        ({"lead": "L", "why_now": {"text": "T", "more": {"x": "y"}}}, "L\n\n## Why now\n\nT\n\n### More\n\ny\n"),
        ({"text": "T", "score": 3, "final": True}, "T\n\nScore: 3\n\nFinal: true\n"),
        ({"quotes": [{"who": "Ada", "says": "yes"}]}, "- Ada – yes\n"),
        ({"title": "Only", "note": None, "list": []}, "# Only\n"),
        ({"title": "T", "heading": "H"}, "# T\n\nH\n"),
        ({"summary": "A.\n\nB.", "verdict": "high"}, "A.\n\nB.\n\nVerdict: high\n"),
        (
            {"points": [{"point": "A", "strength": "high", "who": ["x", "y"]}]},
            "- A – strength: high – who: x, y\n",
        ),
        ({"rows": [["a", "b"], [], ["c"]], "empty": {"a": None}}, "- a, b\n- c\n"),
        ({"about": {"x": ["a"]}, "text": "T"}, "## About\n\n- a\n\n## Text\n\nT\n"),
        (
            {
                "title": "T",
                "sections": [{"heading": "One", "body": "P\n\nQ", "risk": "low"}, {"heading": "Two", "body": "R"}],
            },
            "# T\n\n## One\n\nP\n\nQ\n\nRisk: low\n\n## Two\n\nR\n",
        ),
        ({"steps": ["a\n\nb", "c"], "level": 3}, "## Steps\n\n### 1\n\na\n\nb\n\n### 2\n\nc\n\nLevel: 3\n"),
        (
            {"points": [{"text": "a", "evidence": [{"quote": "q", "page": 2}]}]},
            "- a[^1]\n\n[^1]: “quote: q, page: 2”\n",
        ),
        ({"text": "```\na", "score": 3}, "```\na\n```\n\nScore: 3\n"),
        ({"text": "~~~ py\n```\n~~~~\nb", "score": 3}, "~~~ py\n```\n~~~~\nb\n\nScore: 3\n"),
        (None, "raw output\n"),
    ],
)
def test_bodies(body: dict[str, Any] | None, expected: str) -> None:
    assert markdown([piece_of(artifact(body))]) == expected


def test_fields_come_in_the_order_of_their_class() -> None:
    body = {"remark": "R", "body": "B", "heading": "H" * 200}
    assert text_of(artifact(body, kind="report_section")) == f"{'H' * 200}\n\nB\n\nRemark: R", (
        "of another version of the kind"
    )


@pytest.mark.parametrize("key", ["a: b", "- x", "---", 'quo"te', "# no", "null", "2026", "zwei\u2028Zeilen", "日本"])
def test_front_matter_is_yaml_whatever_is_in_it(key: str) -> None:
    told = document(artifact({"title": key, "text": key, "tags": [key]}, idempotency_key=key, parent_id=uuid4()))
    matter = yaml.safe_load(told.removeprefix("---\n").partition("\n---\n")[0])
    line = " ".join(key.split())
    assert (matter["title"], matter["tags"], matter["provenance"]["idempotency_key"]) == (line, [line], key)
    assert matter["date"] == datetime(2026, 11, 22, 4, 30, tzinfo=UTC)


def test_an_output_that_did_not_parse_is_what_it_is() -> None:
    assert text_of(artifact(None, text=" {broken ")) == "{broken"


def test_a_kind_may_say_how_it_is_published(monkeypatch: pytest.MonkeyPatch) -> None:
    from thothy_ai.jobs import HookArtifact

    said = Marked("**Hooked.**")
    monkeypatch.setattr(HookArtifact, "piece", lambda self, request: Piece(label=request["tenant"], blocks=(said,)))
    known = {"variants": [{"angle": "a question", "text": "Would you wait a night for bread?"}]}
    assert text_of(artifact(known, kind="hook")) == "**Hooked.**"
    assert text_of(artifact({"unknown": "Text"}, kind="hook")) == "Text", "of an older version of the kind"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("1. one", "1\\. one"), ("# no", "\\# no"), ("#tag", "#tag"), ("- x", "\\- x"), ("C\n---", "C\n\\---"),
        ("5 * 3 * 2", "5 \\* 3 \\* 2"), ("a_b_c _d_", "a_b_c \\_d\\_"), ("https://a.example/b_c", "https://a.example/b_c"),
        ("a\n> b\n| c", "a\n\\> b\n\\| c"), ("AT&T &amp;", "AT&T &amp;amp;"), ("{{< x >}}", "&#123;{&lt; x >}}"),
    ],
)  # fmt: skip
def test_plain_text_is_shown_as_it_is(text: str, shown: str) -> None:
    assert literal(text) == shown
    rendered = MarkdownIt("commonmark", {"html": True}).enable("table").render(shown)
    assert unescape(re.sub("</?p>", "", rendered)).strip() == text


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            {"title": "A <b>", "text": "<script>x</script>"},
            "<h1>A &lt;b&gt;</h1>\n<p>&lt;script&gt;x&lt;/script&gt;</p>",
        ),
        (
            {"text": "[go](javascript:x) [on](https://example.com)"},
            '[go](javascript:x) <a href="https://example.com">on</a>',
        ),
        ({"text": "| a | b |\n|---|---|\n| 1 | 2 |"}, "<table>"),
    ],
)
def test_pages(body: dict[str, Any], expected: str) -> None:
    told = page(artifact(body, job_id="1"))
    assert '<article data-kind="custom" data-job-id="1">\n' in told
    assert expected in told


def test_a_page_says_how_it_is_read() -> None:
    assert '<html lang="ar-EG" dir="rtl">' in page(artifact({"text": "T"}, locale="ar-EG"))
    assert '<article lang="ar-EG" dir="rtl"' in page_of_source([artifact({"text": "T"}, locale="ar-EG")])
    assert 'onclick="' not in page(artifact({"text": "T"}, locale='x" onclick="y', kind='"onclick="'))


def test_headings_of_a_text_stand_below_its_title() -> None:
    told = page(artifact({"text": "# Not a title of a kind\n\n### Deeper\n\nText"}))
    assert ["<h2>" in told, "<h4>" in told, "<h1>" in told] == [True, True, False]
    assert page(row("translation", {"text": "# One\n\n# Two\n\nText"})).count("<h1>") == 1


HOSTILE = (
    "</h2><script>alert(1)</script>",
    "[x](javascript:alert(1))",
    "![x](data:text/html,y) and <b onclick=alert(1)>",
    "<iframe src=//x.example>",
    "<javascript:alert(1)>",
    "\\<script>alert(1)</script>",
    "\\`<script>alert(1)</script>\\`",
    "&lt;script&gt; <script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
)
HOSTILE_BODIES = (
    *HOSTILE,
    "[x][y]\n\n[y]: javascript:alert(1)",
    "[x\\][y\\]\n\n[y\\]: javascript:alert(1)",
    "```\ncode\n```\n<script>alert(1)</script>",
    "    ```\n<script>alert(1)</script>\n    ```",
    "<div>\n```\n<script>alert(1)</script>\n```\n</div>",
    "one\rtwo\r```\r<b>\r```\n\n<script>alert(1)</script>\n\n```\n\n\n\n<b>\n```",
)


class _Live(HTMLParser):
    """What in a page runs or loads something."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in {"script", "iframe", "img"}:
            self.found.append(tag)
        self.found += [f"{name}={value}" for name, value in attrs if name.startswith("on") or "script:" in f"{value}"]


def live(markdown: str) -> list[str]:
    """What runs or loads something where a reader of Markdown allows all HTML and every scheme of a link."""
    renderer = MarkdownIt("commonmark", {"html": True})
    renderer.validateLink = lambda url: True  # type: ignore[method-assign]
    page = _Live()
    page.feed(renderer.render(markdown))
    return page.found


@pytest.mark.parametrize("text", HOSTILE_BODIES)
def test_no_text_runs_anything_where_it_is_published(text: str) -> None:
    line = " ".join(text.split())
    for body in ({"heading": line}, {"text": text}, {"title": "T", "citations": [{"quote": text}]}, None):
        made = artifact(body, text=text, audience=line, source_key=line, job_id=line, idempotency_key=line)
        assert live(document(made)) == []
        assert live(documents([made, made])) == []
        assert "<script" not in page(made)


def test_a_careless_renderer_would_run_most_of_them() -> None:
    assert sum(bool(live(text)) for text in HOSTILE_BODIES) >= len(HOSTILE_BODIES) - 4


@pytest.mark.parametrize("text", [*HOSTILE, "C #", "a_b *c* `d`", "AT&T &amp; co.", "R&D (2026) [draft]", "~~no~~"])
def test_a_title_is_shown_as_it_is(text: str) -> None:
    told = page(artifact({"title": text, "text": "T"}, job_id="1"))
    shown = told.partition("<h1>")[2].partition("</h1>")[0]
    for entity, mark in (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&amp;", "&")):
        shown = shown.replace(entity, mark)
    assert shown == text


def test_code_and_harmless_markup_stay_as_they_are() -> None:
    harmless = "Press <kbd>Q</kbd>, [read on](https://example.com).\n\n| a |\n|---|\n| 1 |"
    assert document(artifact({"text": harmless})).endswith(harmless + "\n")
    fenced = "~~~html\n<script>alert(1)</script>\n~~~"
    assert document(artifact({"text": f"{fenced}\n<form>"})).endswith(f"{fenced}\n&lt;form>\n")
