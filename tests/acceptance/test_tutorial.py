"""The tutorial, typed word for word into a terminal of 80 columns and 24 rows, as a newcomer does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.support.terminal import COLUMNS, Frame
from tests.support.tutorial import PAGE, Played, agrees, steps, tutorial

STEPS = steps()
NAMES = [step.commands[0][0] if step.commands else "Ctrl-C" for step in STEPS]
GARBAGE = re.compile(r"[\x00-\x1f\x7f-\x9f\ufffd]|\[\d+(?:;\d+)*m|Traceback|Error:|Warning:")


@dataclass(frozen=True)
class Session:
    """All steps as they ended, every screen of both terminals, and the Markdown files that were exported."""

    played: list[Played]
    frames: list[Frame]
    exported: list[str]


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with tutorial() as page:
        played = list(page.play())
        exported = [file.read_text(encoding="utf-8") for file in page.folder.glob("out/*.md")]
        yield Session(played, page.service.frames + page.shell.frames, exported)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", range(len(STEPS)), ids=NAMES)
def test_each_step_prints_what_the_page_shows(session: Session, number: int) -> None:
    played = session.played[number]
    assert played.as_written, "\n".join(["the page:", *(played.step.expected or ()), "", "the screen:", *played.rows])


def test_each_command_succeeds(session: Session) -> None:
    """Except for `thothy ask`, whose answer may be that the output is rejected."""
    allowed = {"thothy ask": {0, 1}}
    for played in session.played:
        for command, ran in zip(played.step.commands or [("Ctrl-C",)], played.ran, strict=False):
            assert ran.code in allowed.get(command[0][:10], {0}), (command, played.rows)


def test_the_jobs_became_artifacts(session: Session) -> None:
    """One of five at most may be dead by chance."""
    assert len(session.exported) >= 4
    for text in session.exported:
        assert re.match(r"---\n.*^kind: \S*trend_summary.*^---\n.*\w+ \w+", text, re.DOTALL | re.MULTILINE), text


def test_no_line_is_wider_than_the_terminal(session: Session) -> None:
    """A line may be longer if a word in it, such as a path, leaves no choice, or if a model wrote it."""
    ours = [each for each in session.played if not str(each.step.commands).count("thothy ask")]
    lines = [line for each in ours for ran in each.ran for line in ran.lines]
    assert len(lines) > 50
    assert [line for line in lines if len(line) > COLUMNS and max(map(len, line.split())) < COLUMNS // 2] == []


def test_the_screens_hold_no_garbage(session: Session) -> None:
    assert len(session.frames) > 50
    for frame in session.frames:
        found = [row for row in frame.rows if GARBAGE.search(row)]
        assert found == [], str(frame)


def test_the_page_begins_with_the_installation() -> None:
    assert PAGE.read_text(encoding="utf-8").index("make install") < PAGE.read_text(encoding="utf-8").index("thothy up")
    assert not any("make" in line for step in STEPS for command in step.commands for line in command)
    assert STEPS[0].stays
    assert STEPS[-1].stops


def test_a_page_that_shows_something_else_is_noticed() -> None:
    assert agrees(("ok  …", "…", "4 jobs"), ["ok   all", "x", "y", "4  jobs", ""])
    assert agrees(("…", "Stopped."), ["Stopped."])
    assert not agrees(("4 jobs",), ["40 jobs"])
    assert not agrees(("4 jobs",), ["4 jobs", "and a warning"])
    assert not agrees(("  4 jobs",), ["4 jobs"])
