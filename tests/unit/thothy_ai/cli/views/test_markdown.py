"""Artifacts as Markdown, whatever their kind."""

from __future__ import annotations

from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import Any

import pytest
import yaml
from markdown_it import MarkdownIt

from thothy_ai.cli.views.html_fragment import fragment
from thothy_ai.cli.views.markdown import body_of, document, documents


def artifact(body: dict[str, Any] | None, **values: Any) -> dict[str, Any]:
    return {"kind": "custom", "locale": "en", "body": body, "text": "raw output", **values}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"summary": "One. Two."}, "One. Two.\n"),
        ({"title": "Crocks\nare back", "text": "So it is."}, "# Crocks are back\n\nSo it is.\n"),
        ({"headline": "H", "points": ["a", "b\nc"]}, "# H\n\n- a\n- b c\n"),
        ({"pros": ["a"], "cons": ["b"]}, "## Pros\n\n- a\n\n## Cons\n\n- b\n"),
        ({"lead": "L", "why_now": {"text": "T", "more": {"x": "y"}}}, "L\n\n## Why now\n\nT\n\n### More\n\ny\n"),
        ({"text": "T", "score": 3, "final": True}, "T\n\nScore: 3\n\nFinal: true\n"),
        ({"quotes": [{"who": "Ada", "says": "yes"}]}, "- Ada: yes\n"),
        ({"title": "Only", "note": None, "list": []}, "# Only\n\n\n"),
        ({"title": "T", "heading": "H"}, "# T\n\nH\n"),
        (None, "raw output\n"),
    ],
)
def test_bodies(body: dict[str, Any] | None, expected: str) -> None:
    assert document(artifact(body)).split("---\n", 2)[2] == "\n" + expected


def test_fields_come_in_the_order_of_their_class() -> None:
    body = {"heading": "H", "body": "B"}
    assert document(artifact(body, kind="report_section")).endswith("# H\n\nB\n")


@pytest.mark.parametrize("key", ["a: b", "- x", "---", 'quo"te', "# no", "null", "2026", "zwei\u2028Zeilen", "日本"])
def test_front_matter_is_yaml_whatever_is_in_it(key: str) -> None:
    moment = datetime(2026, 11, 22, 4, tzinfo=UTC)
    told = document(artifact({"text": "T"}, idempotency_key=key, attempt=2, reason=None, created_at=moment))
    assert yaml.safe_load(told.removeprefix("---\n").partition("\n---\n")[0]) == {
        "kind": "custom", "locale": "en", "idempotency_key": key, "attempt": 2,
        "created_at": "2026-11-22T04:00:00+00:00",
    }  # fmt: skip


def test_an_output_that_did_not_parse_is_what_it_is() -> None:
    assert body_of(artifact(None, text=" {broken ")) == "{broken"


def test_a_kind_may_say_how_it_is_published(monkeypatch: pytest.MonkeyPatch) -> None:
    from thothy_ai.jobs import HookArtifact

    monkeypatch.setattr(HookArtifact, "markdown", property(lambda self: "**Hooked.**"))
    known = {"variants": [{"angle": "a question", "text": "Would you wait a night for bread?"}]}
    assert body_of(artifact(known, kind="hook")) == "**Hooked.**"
    assert body_of(artifact({"unknown": "Text"}, kind="hook")) == "Text", "of an older version of the kind"


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
def test_fragments(body: dict[str, Any], expected: str) -> None:
    told = fragment(artifact(body, job_id="1"))
    assert told.startswith('<article lang="en" data-kind="custom" data-job-id="1">\n')
    assert expected in told


def test_a_fragment_says_how_it_is_read() -> None:
    assert fragment(artifact({"text": "T"}, job_id="1", locale="ar-EG")).startswith('<article lang="ar-EG" dir="rtl"')
    assert fragment(artifact({"text": "T"}, job_id="1", locale='x" onclick="y')).count('"') == 6


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
        assert "<script" not in fragment(made)


def test_a_careless_renderer_would_run_most_of_them() -> None:
    assert sum(bool(live(text)) for text in HOSTILE_BODIES) >= len(HOSTILE_BODIES) - 4


@pytest.mark.parametrize("text", [*HOSTILE, "C #", "a_b *c* `d`", "AT&T &amp; co.", "R&D (2026) [draft]", "~~no~~"])
def test_a_title_is_shown_as_it_is(text: str) -> None:
    told = fragment(artifact({"title": text, "text": "T"}, job_id="1"))
    shown = told.partition("<h1>")[2].partition("</h1>")[0]
    for entity, mark in (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&amp;", "&")):
        shown = shown.replace(entity, mark)
    assert shown == text


def test_code_and_harmless_markup_stay_as_they_are() -> None:
    harmless = "Press <kbd>Q</kbd>, [read on](https://example.com).\n\n| a |\n|---|\n| 1 |"
    assert document(artifact({"text": harmless})).endswith(harmless + "\n")
    fenced = "~~~html\n<script>alert(1)</script>\n~~~"
    assert document(artifact({"text": f"{fenced}\n<form>"})).endswith(f"{fenced}\n&lt;form>\n")
