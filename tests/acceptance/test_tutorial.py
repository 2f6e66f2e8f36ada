"""The tutorial, typed word for word into a terminal of 80 columns and 24 rows, as a newcomer does."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.support.terminal import COLUMNS, Frame
from tests.support.tutorial import PAGE, Played, agrees, steps, tutorial

STEPS = steps()
GARBAGE = re.compile(r"[\x00-\x1f\x7f-\x9f\ufffd]|\[\d+(?:;\d+)*m|Traceback|Error:|Warning:")
FRONT_MATTER = re.compile(r"---\n(?:.*\n)*? *kind: \W?hook\W?\n(?:.*\n)*?---\n\s*(?:- )?\S+ \S+")


@pytest.mark.timeout(1800)
def test_the_tutorial_word_for_word() -> None:
    """One test: played once, for all that is asked of it."""
    with tutorial() as page:
        played = [_as_written(each) for each in page.play()]
        _expect_artifacts(page.folder / "out")
        _expect_neat_screens([*page.service.frames, *page.shell.frames])
    assert [each.step for each in played] == STEPS
    _expect_no_wide_line(played)


def _as_written(played: Played) -> Played:
    """The step, which printed what the page shows, and succeeded; `thothy ask` may say that the output is rejected."""
    typed = [line for command in played.step.commands for line in command]
    assert played.as_written, "\n".join(
        [*typed, "the page:", *(played.step.expected or ()), "the screen:", *played.rows]
    )
    codes = {ran.code for ran in played.ran}
    assert codes <= ({0, 1} if "thothy ask" in str(typed) else {0}), (codes, typed, played.rows)
    return played


def _expect_artifacts(out: Path) -> None:
    """Front matter and a text in each file. One of five jobs at most may be dead by chance."""
    exported = [file.read_text(encoding="utf-8") for file in out.glob("*.md")]
    assert len(exported) in {4, 5}
    assert [text for text in exported if not FRONT_MATTER.match(text)] == []


def _expect_neat_screens(frames: Iterable[Frame]) -> None:
    seen = list(frames)
    assert len(seen) > 50
    for frame in seen:
        assert not any(map(GARBAGE.search, frame.rows)), str(frame)


def _expect_no_wide_line(played: Iterable[Played]) -> None:
    """A line may be wider than the terminal if a word in it, such as a path, leaves no choice, or a model wrote it."""
    ours = [each for each in played if "thothy ask" not in str(each.step.commands)]
    lines = [line for each in ours for ran in each.ran for line in ran.lines]
    assert len(lines) > 50
    assert [line for line in lines if len(line) > COLUMNS and max(map(len, line.split())) < COLUMNS // 2] == []


def test_the_page_begins_with_the_installation_and_ends_with_ctrl_c() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text.index("make install") < text.index("thothy up")
    assert not any("make" in line for step in STEPS for command in step.commands for line in command)
    assert STEPS[0].stays
    assert STEPS[-1].stops


def test_a_page_that_shows_something_else_would_be_noticed() -> None:
    assert agrees(("ok  …", "…", "4 jobs"), ["ok   all", "x", "y", "4  jobs", ""])
    assert agrees(("…", "Stopped."), ["Stopped."])
    assert not agrees(("4 jobs",), ["40 jobs"])
    assert not agrees(("4 jobs",), ["4 jobs", "and a warning"])
    assert not agrees(("  4 jobs",), ["4 jobs"])


@pytest.mark.parametrize("row", ["\x1b[1m4 jobs", "[31mred", "Traceback (most recent call last):", "a\ufffdb"])
def test_garbage_on_a_screen_would_be_noticed(row: str) -> None:
    with pytest.raises(AssertionError):
        _expect_neat_screens([Frame(0.0, ("$ thothy drain", "4 jobs"))] * 50 + [Frame(1.0, (row,))])
