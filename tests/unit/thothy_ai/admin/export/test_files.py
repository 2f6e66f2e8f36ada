"""Whole files of each kind, as an editor wants them: they stand in `files/`, and were written by hand."""

from __future__ import annotations

import csv
from io import StringIO
from pathlib import Path

import html5lib
import pytest
import yaml

from tests.unit.thothy_ai.admin.export.rows import BODIES, row
from thothy_ai.admin.export.documents import document, documents
from thothy_ai.admin.export.formats import Format, stream
from thothy_ai.admin.export.pages import page, page_of_source
from thothy_ai.admin.export.table import MAX_CELL_CHARS, table
from thothy_ai.jobs import registry

FILES = Path(__file__).parent / "files"
SIBLINGS = [row("trend_summary"), row("hook"), row("report")]


def wanted(name: str) -> str:
    return (FILES / name).read_bytes().decode()


def test_every_kind_that_writes_has_a_file() -> None:
    answers = {"chat", "completion", "response"}  # Markdown that somebody else asked for, as a translation is
    assert set(registry.names()) - answers <= set(BODIES)


@pytest.mark.parametrize("kind", BODIES)
def test_markdown(kind: str) -> None:
    assert document(row(kind)) == wanted(f"{kind}.md")


@pytest.mark.parametrize("kind", BODIES)
def test_html(kind: str) -> None:
    assert page(row(kind)) == wanted(f"{kind}.html")


def test_the_pieces_of_a_source() -> None:
    assert documents(SIBLINGS) == wanted("source.md")
    assert page_of_source(SIBLINGS) == wanted("source.html")


def test_a_table() -> None:
    assert "".join(table(map(row, BODIES))) == wanted("all.csv")


@pytest.mark.parametrize("made", [*map(row, BODIES), row("hook", None), row("x", {"text": "# A\n\n<b>&amp; [x](y)"})])
def test_a_validator_finds_no_fault_in_a_page(made: dict[str, object]) -> None:
    for text in (page(made), page_of_source([made, made]), "".join(stream([made, made], Format.HTML))):
        tree = html5lib.HTMLParser(strict=True).parse(text)  # raises for what a browser has to guess
        ids = [each.get("id") for each in tree.iter() if each.get("id")]
        assert len(ids) == len(set(ids))
        targets = {each.get("href", "")[1:] for each in tree.iter() if each.get("href", "").startswith("#")}
        assert targets <= set(ids)


@pytest.mark.parametrize("kind", BODIES)
def test_front_matter_is_what_generators_of_sites_take(kind: str) -> None:
    matter = yaml.safe_load(document(row(kind)).split("---\n")[1])
    assert len(matter["description"]) <= 155
    assert matter["date"].year == 2026, "a time, not a text"
    assert all(isinstance(matter[name], str) for name in ("title", "slug", "lang"))
    assert matter["slug"] == matter["slug"].lower()
    assert matter["provenance"]["kind"] == kind


@pytest.mark.parametrize(
    ("title", "slug"),
    [
        ("Überall ruht der Teig", "uberall-ruht-der-teig"),
        ("日本の漬物と職人", "日本の漬物と職人"),
        ("Ночные поезда, снова", "ночные-поезда-снова"),
        ("A title of so many words that no address in a browser could hold all of them", None),
    ],
)
def test_slugs(title: str, slug: str | None) -> None:
    found = yaml.safe_load(document(row("x", {"title": title, "text": "T"})).split("---\n")[1])["slug"]
    assert len(found) <= 50
    assert slug is None or found == slug


def test_a_cell_holds_no_more_than_a_spreadsheet_shows() -> None:
    [head, line] = csv.reader(StringIO("".join(table([row("x", {"text": "word " * 10_000})]))))
    text = dict(zip(head, line, strict=True))["text"]
    assert len(text) == MAX_CELL_CHARS
    assert text.endswith("49,999 characters do not fit a cell; export as md, html or json")


def test_hooks_of_a_table_are_a_row_each() -> None:
    rows = list(csv.DictReader(StringIO("".join(table([row("hook")])))))
    assert [(each["channel"], each["angle"]) for each in rows] == [
        ("social post", "the surprise"),
        ("social post", "the price"),
    ]


ONE = {"title": "Slow dough", "url": "https://example.com/a?b=1&c=2", "author": "Ann Lee", "date": "2026-11-02"}


def test_sources_are_named() -> None:
    briefed = row("hook", brief={"name": "spring", "version": 2, "angle": None, "sources": [ONE | {"begins": 0}]})
    matter = yaml.safe_load(document(briefed).split("---\n")[1])
    assert matter["canonical_url"] == ONE["url"]
    assert matter["sources"] == [ONE]
    assert matter["provenance"]["brief"] == {"name": "spring", "version": 2}
    assert '<link rel="canonical" href="https://example.com/a?b=1&amp;c=2">' in page(briefed)
    several = row("hook", brief={"sources": [ONE, {"title": "Other"}]})
    assert "canonical_url" not in document(several), "it is none of them"
    (first, *_) = csv.DictReader(StringIO("".join(table([several]))))
    assert first["sources"] == "Slow dough, https://example.com/a?b=1&c=2, Ann Lee, 2026-11-02\nOther"
