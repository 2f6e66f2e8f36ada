"""Tables that fit a terminal: what is cut, what is left out, and what never is."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from thothy_ai.cli.views import tables
from thothy_ai.cli.views.tables import MIN_TEXT_WIDTH, Column, cell, count, layout, print_text, printable, short_id

JOB = UUID("019a9e2b-7c44-7d1e-9a53-0c8b3d9a4f10")
COLUMNS = [
    Column("id"),
    Column("tries", number=True, drop=2),
    Column("worker", drop=1),
    Column("text", text=True),
    Column("end"),
]
texts = st.text(
    st.characters(exclude_categories=["Cs", "Cc", "Mn", "Me", "Cf"]) | st.sampled_from("漬物é🥬"), max_size=120
)


def test_a_wide_terminal_shows_everything() -> None:
    lines = layout("", COLUMNS, [[JOB, 3, "w@1", "so it is", "x"]], width=200, short=True)
    assert lines[0] == "id        tries  worker  text      end"
    assert lines[1] == "─" * len(lines[0])
    assert lines[2] == "3d9a4f10      3  w@1     so it is  x"


def test_a_narrow_terminal_leaves_out_what_matters_least_and_cuts_texts() -> None:
    row = [JOB, 3, "worker@host", "a text that is long", "x"]
    lines = layout("", COLUMNS, [row], width=44, short=True)
    assert lines[0].split() == ["id", "worker", "text", "end"]
    assert lines[2] == "3d9a4f10  worker@host  a text that is…   x"
    lines = layout("", COLUMNS, [row], width=30, short=True)
    assert lines[2] == "3d9a4f10  a text that is…  x"


def test_when_all_that_may_go_is_gone_the_rest_is_whole() -> None:
    """Rather a line that is too long than an id or a reason that cannot be copied."""
    columns = [Column("reason"), Column("a", drop=1), Column("b", drop=2)]
    lines = layout("", columns, [["number_not_in_source", 1, 2]], width=10, short=True)
    assert lines == ["reason", "─" * 10, "number_not_in_source"]


def test_a_table_without_rows_is_its_head() -> None:
    assert layout("jobs", [Column("id"), "n#"], [], width=80, short=True) == ["jobs", "id  n", "─────"]


def test_one_huge_text_costs_little() -> None:
    lines = layout("", [Column("id"), Column("text", text=True)], [[JOB, "x" * 1_000_000]], width=80, short=True)
    assert lines[2] == "3d9a4f10  " + "x" * 69 + "…"


def test_wide_characters_take_two_columns_and_what_follows_is_aligned() -> None:
    rows = [["漬物漬物漬物漬物", "x"], ["crocks", "y"]]
    lines = layout("", [Column("text", text=True), Column("end")], rows, width=16, short=True)
    assert lines[2:] == ["漬物漬物漬…   x", "crocks        y"]


@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=4), st.integers(41, 120))
def test_no_line_is_longer_than_the_terminal_and_columns_are_aligned(rows: list[tuple[str, str]], width: int) -> None:
    columns = [Column("id"), Column("one", text=True), Column("other", text=True), Column("end")]
    lines = layout("", columns, [[JOB, one, other, "|"] for one, other in rows], width=width, short=True)
    assert all(cell_len(line) <= width for line in lines)
    assert len({cell_len(line) for line in lines[2:]}) == 1
    assert all(line.startswith("3d9a4f10") and line.endswith("|") for line in lines[2:])


def test_in_a_pipe_nothing_is_short() -> None:
    moment = datetime.now(UTC)
    lines = layout("", [Column("id"), Column("at", drop=1), Column("text", text=True)], [[JOB, moment, "x" * 20_000]],
                   width=10**9, short=False)  # fmt: skip
    assert str(JOB) in lines[2]
    assert lines[2].endswith("x" * 20_000)
    assert len(lines[1]) < 1000


@pytest.mark.parametrize(
    ("value", "shown"), [(None, "-"), ("", "-"), (0, "0"), (JOB, "3d9a4f10"), ("a\x1b[2Jb", "a\ufffd[2Jb")]
)
def test_cells(value: object, shown: str) -> None:
    assert cell(value, short=True) == shown


def test_a_cell_is_one_line() -> None:
    assert layout("", [Column("text", text=True)], [["a\n\tb\r\nc"]], width=80, short=True)[2] == "a b\ufffd c"


def test_counted_nouns() -> None:
    assert [count(number, "job") for number in (0, 1, 2, 1024)] == ["0 jobs", "1 job", "2 jobs", "1,024 jobs"]
    assert [count(number, "retry", "retries") for number in (1, 2)] == ["1 retry", "2 retries"]


def test_a_short_id_is_the_part_that_differs_within_a_batch() -> None:
    assert short_id(JOB) == "3d9a4f10"
    assert MIN_TEXT_WIDTH < 80


def test_direction_marks_are_not_printed() -> None:
    assert printable("a\u202eb\u2066c") == "a\ufffdb\ufffdc"
    assert printable("half \ud83d a pair").encode() == "half \ufffd a pair".encode()


def test_a_text_is_broken_between_words_and_keeps_its_indentation(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "terminal_width", lambda: 20)
    print_text('{\n  "hook": "Repair cafes are spreading"\n}\n\n  /a/path/that/is/longer')
    assert capsys.readouterr().out.splitlines() == [
        "{", '  "hook": "Repair', "  cafes are", '  spreading"', "}", "", "  /a/path/that/is/longer",
    ]  # fmt: skip


def test_cells_that_run_from_right_to_left_keep_their_places_on_a_terminal() -> None:
    rows = [["مرحبا", "שלום", "x"]]
    assert layout("", ["a", "b", "c"], rows, width=80, short=True)[2] == "مرحبا\u200e  שלום\u200e  x"
    assert layout("", ["a", "b", "c"], rows, width=80, short=False)[2] == "مرحبا  שלום  x"
