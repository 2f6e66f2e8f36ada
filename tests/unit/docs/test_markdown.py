"""Every page: links lead somewhere, tables are whole, and nothing in it belongs to one machine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.generate.commands import anchor
from docs.generate.markdown import code, table

ROOT = Path(__file__).parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
IDS = [str(page.relative_to(ROOT)) for page in PAGES]


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_links_lead_somewhere(page: Path) -> None:
    for file, fragment in LINK.findall(prose(page)):
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), file
        if fragment:
            headings = re.findall(r"^#+ (.+)$", prose(target), re.MULTILINE)
            assert fragment in {anchor(heading) for heading in headings}, f"{file}#{fragment}"


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_tables_are_whole(page: Path) -> None:
    """The rows of a table have as many cells as its head."""
    for block in re.findall(r"(?:^\|.*\n?)+", prose(page), re.MULTILINE):
        lines = block.splitlines()
        assert re.fullmatch(r"\|(?: *:?-+:? *\|)+", lines[1]), lines[:2]
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1, block


def test_every_page_is_in_the_index() -> None:
    """A runbook is in the table of alerts."""
    docs = ROOT / "docs"
    index, alerts = ((docs / name).read_text(encoding="utf-8") for name in ("README.md", "METRICS.md"))
    pages = [page.relative_to(docs).as_posix() for page in docs.rglob("*.md")]
    listed = {page: alerts if page.startswith("runbooks/") else index for page in pages if page != "README.md"}
    assert [page for page, listing in listed.items() if f"]({page})" not in listing] == []


def test_a_table_lines_up_and_keeps_its_cells_apart() -> None:
    assert table(("a", "b"), [("long | er", "x\ny"), ("z", "")]).splitlines() == [
        "| a          | b |",
        "| ---------- | - |",
        "| long \\| er | x y |",
        "| z          |  |",
    ]


def test_code_with_backticks() -> None:
    assert code("see `x`") == "`` see `x` ``"


def test_pictures_are_small_and_shown() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    for picture in (ROOT / "docs").rglob("*.webp"):
        assert picture.stat().st_size <= 60_000, picture
        assert f"({picture.relative_to(ROOT / 'docs')})" in pages, picture
