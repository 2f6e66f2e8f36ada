"""`thothy review`: what waits, decisions by one command or by a key, edits in an editor, all at 80 columns."""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.support.command_line import one_line, type_command, typed
from tests.support.command_terminal import on_terminal
from tests.support.decided import FINDING, written
from tests.support.home import THOTHY
from tests.support.queue_bench import Queue
from thothy_ai.db.states import ReviewState
from thothy_ai.jobs import registry
from thothy_ai.jobs.checks.gates import measure

SOON, LATER = (datetime.now(UTC) + timedelta(hours=hours) for hours in (1, 5))
DECISIONS = "SELECT version, action, decided_by, note FROM decision ORDER BY decided_at"


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THOTHY_KINDS", "tests.support.echo_kind")
    registry.load_extra(("tests.support.echo_kind",))


def test_what_waits_is_listed_by_deadline(queue: Queue) -> None:
    clean, later, held, soon = (
        written(queue, review, deadline=deadline)
        for review, deadline in (
            (None, None), (ReviewState.NEEDS_REVIEW, LATER), (ReviewState.HELD, None), (ReviewState.NEEDS_EDIT, SOON),
        )
    )  # fmt: skip
    written(queue, ReviewState.APPROVED)

    def listed(*options: str) -> list[str]:
        return [
            each["job_id"] for each in json.loads(typed(queue.settings, "review", "list", "--json", *options).stdout)
        ]

    assert listed() == [str(soon), str(later)]
    assert listed("--held") == [str(soon), str(later), str(held)]
    assert listed("--clean-since", "1h") == [str(soon), str(later), str(clean)]
    assert listed("--kind", "hook") == listed("--tenant", "other") == []
    assert "needs edit" in typed(queue.settings, "review", "list").stdout


def test_one_command_decides(queue: Queue, tmp_path: Path) -> None:
    job_id = written(queue)
    settings = queue.settings
    wide, narrow = (
        type_command("review", "show", job_id, environment={**settings.environment(), "COLUMNS": columns}).stdout
        for columns in ("", "40")
    )
    assert max(map(len, narrow.splitlines())) <= 40
    assert "echo:\n  The [1: first] words." in wide
    assert (
        f"[1] number_not_in_source ({measure(FINDING, 'en')}) in echo: '40' is not in the source\n"
        "    source: [ok] and all of it" in wide
    )
    edit = tmp_path / "edit.txt"
    edit.write_text("== echo\nThe last words.\n")
    assert "echo: The [-first-]{+last+} words." in typed(settings, "review", "edit", job_id, edit, "--by", "Ann").stdout
    assert "is decided: Ann chose to edit at " in one_line(
        typed(settings, "review", "approve", job_id, "--version", 1, "--by", "Bo", exit_code=1)
    )
    approved = typed(settings, "review", "approve", job_id, "--by", "Bo", "--voice", "acme").stdout
    assert approved == f"Version 2 of job {job_id} is approved.\n"
    assert "Ann chose" not in one_line(typed(settings, "review", "hold", job_id, "--by", "Cy", exit_code=1))
    typed(settings, "review", "reopen", job_id, "--by", "Bo")
    typed(settings, "review", "reject", job_id, "--note", "no news", "--by", "Bo")
    assert [row[:3] for row in queue.rows(DECISIONS)] == [
        (1, "edit", "Ann"), (2, "approve", "Bo"), (2, "reopen", "Bo"), (2, "reject", "Bo"),
    ]  # fmt: skip
    assert json.loads(typed(settings, "review", "show", job_id, "--json").stdout)["body"] == {"echo": "The last words."}


@pytest.mark.parametrize(
    ("arguments", "says", "code"),
    [
        (("send-back", "ID", "--note", "n" * 2**20), "note: has 1,048,576 characters; the limit is 2,000", 1),
        (("reject", "ID"), "missing option '--note'", 2),
        (("approve", "ffffffff"), "no job with id ffffffff", 1),
        (("--by", "Ann", "approve", "ID"), "options of `approve` follow its name", 2),
        (("edit", "ID", "-"), "body: has no field", 1),
        ((), "stdin is not a terminal: see `thothy review list`", 2),
    ],
)
def test_what_cannot_be_decided_is_one_line(queue: Queue, arguments: tuple[str, ...], says: str, code: int) -> None:
    job_id = str(written(queue))
    done = typed(queue.settings, "review", *(job_id if each == "ID" else each for each in arguments), exit_code=code)
    assert says in one_line(done).replace("Missing", "missing")


def test_keys_walk_through_what_waits(queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = {"echo": "Ein Satz, und noch viele Wörter, die auf keine Zeile von achtzig Spalten passen."}
    first = written(queue, deadline=SOON, body=body)
    second = written(
        queue, deadline=LATER, body={"echo": "Mehr \x1b[31m\u202e und noch viele Wörter auf einer Zeile." * 3}
    )
    third, fourth = (written(queue, deadline=LATER) for _ in range(2))
    editor = tmp_path / "editor.py"
    editor.write_text("import sys; f = sys.argv[1]; t = open(f).read(); open(f, 'w').write(t.replace('Ein', 'Kein'))")
    monkeypatch.setenv("EDITOR", f"{sys.executable} {editor}")
    for name, value in queue.settings.environment().items():
        monkeypatch.setenv(name, value)
    with on_terminal([*THOTHY, "review", "--by", "Ann"], os.environ) as screen:
        for prompt, key in (
            ("[1/4] a approve", "e"), ("{+Kein+}", ""), ("[1/4] a approve", "a"), ("[2/4] a approve", "r"),
            ("Why", "too long\r"), ("[3/4] a approve", "s"), ("Note for the next", "Name it.\r"),
            ("[4/4] a approve", "x"), (": x", "q"),
        ):  # fmt: skip
            screen.wait_for(prompt, times=2 if key == "a" else 1)
            screen.press(key)
        assert screen.ended() == 0
    assert all(len(line) <= 80 for line in screen.lines), screen.lines
    assert "\x1b[31m" not in screen.text
    assert screen.lines[-1] == "4 decisions made."
    assert queue.rows(DECISIONS) == [
        (1, "edit", "Ann", None), (2, "approve", "Ann", None), (1, "reject", "Ann", "too long"),
        (1, "send_back", "Ann", "Name it."),
    ]  # fmt: skip
    states = {job_id: queue.job(job_id).review for job_id in (first, second, third, fourth)}
    assert states == {first: "approved", second: "rejected", third: None, fourth: "needs_review"}


def test_only_the_exact_keys_decide(queue: Queue) -> None:
    job_id = written(queue)
    with on_terminal([*THOTHY, "review"], os.environ | queue.settings.environment()) as screen:
        for times, keys in enumerate(("\x1b[A", "\x1b[H", "\x1b[a", "\x1bOA", "A", "\x1ba", "has", "é", "q"), start=1):
            screen.wait_for("[1/1] a approve", times=times)
            screen.press(keys)
        assert screen.ended() == 0
    assert screen.lines[-1] == "0 decisions made."
    assert queue.job(job_id).review == "needs_review"


def test_a_key_decides_only_what_was_on_the_screen(queue: Queue) -> None:
    first, second = written(queue, deadline=SOON), written(queue, deadline=LATER)
    with on_terminal([*THOTHY, "review"], os.environ | queue.settings.environment()) as screen:
        screen.wait_for("[1/2] a approve")
        screen.press("hh")
        screen.wait_for("[2/2] a approve")
        screen.press("q")
        assert screen.ended() == 0
    assert screen.lines[-1] == "1 decision made."
    assert [queue.job(job_id).review for job_id in (first, second)] == ["held", "needs_review"]


def test_a_conflict_keeps_what_was_written_and_shows_the_version_anew(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, purged = written(queue, deadline=SOON), written(queue, deadline=LATER)
    last = written(queue)
    editor = tmp_path / "editor.py"
    editor.write_text("import sys; f = sys.argv[1]; t = open(f).read(); open(f, 'w').write(t.replace('first', 'Ann'))")
    monkeypatch.setenv("EDITOR", f"{sys.executable} {editor}")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with on_terminal([*THOTHY, "review", "--by", "Ann"], os.environ | queue.settings.environment()) as screen:
        screen.wait_for("[1/3] a approve")
        queue.producer.job(first).artifact().decide("edit", by="Bo", body={"echo": "The words of Bo."})
        queue.rows("DELETE FROM job WHERE id = :id", id=purged)
        screen.press("e")
        screen.wait_for("Bo chose to", "The words of Bo.")
        screen.wait_for("[1/3] a approve", times=2)
        screen.press("a")
        screen.wait_for("skipped", "[3/3] a approve")
        screen.press("h")
        assert screen.ended() == 0
    assert screen.lines[-1] == "2 decisions made."
    kept = next(line for line in screen.lines if line.startswith("thothy review edit ")).split()[-1]
    assert Path(kept).read_text() == "== echo\nThe Ann words.\n"
    assert [queue.job(job_id).review for job_id in (first, last)] == ["approved", "held"]


FAILS = "t = t.replace('first', 'Ann'); open(f, 'w').write(t); sys.exit(3)"
REFUSED = "open(f, 'w').write(t.replace('== echo', '') + 'Ann')"
LATIN = "open(f, 'wb').write(b'== echo\\nAnn \\xe9\\n')"


@pytest.mark.parametrize(
    ("editor", "says", "kept", "code"),
    [
        (FAILS, "failed: Command", b"The Ann words.", 1),
        (REFUSED, "Edit it again?", b"The first words.\nAnn", 0),
        (LATIN, "is not UTF-8", b"Ann \xe9", 1),
    ],
)
def test_what_was_written_is_kept_when_the_editor_fails_or_the_edit_is_refused(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, editor: str, says: str, kept: bytes, code: int
) -> None:
    job_id = written(queue)
    script = tmp_path / "editor.py"
    script.write_text(f"import sys; f = sys.argv[1]; t = open(f).read(); {editor}")
    monkeypatch.setenv("EDITOR", f"{sys.executable} {script}")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with on_terminal([*THOTHY, "review", "edit", str(job_id)], os.environ | queue.settings.environment()) as screen:
        screen.wait_for(says)
        if not code:
            screen.press("n\r")
        screen.wait_for("thothy review edit ")
        assert screen.ended() == code
    file = Path(screen.text.split("thothy review edit ")[1].split()[1])
    assert kept in file.read_bytes()
    assert not queue.rows(DECISIONS)


@pytest.mark.parametrize("echo", ["x" * 2**20, ""])
def test_an_edit_that_breaks_the_schema_is_kept_as_a_draft(queue: Queue, tmp_path: Path, echo: str) -> None:
    job_id, file = str(written(queue)), tmp_path / "edit.json"
    file.write_text(json.dumps({"echo": echo}))
    assert (
        "A draft, which breaks the schema: echo: must" in typed(queue.settings, "review", "edit", job_id, file).stdout
    )
    refused = one_line(typed(queue.settings, "review", "approve", job_id, exit_code=1))
    assert "version 2 is a draft, edit it first: echo: must" in refused
    assert queue.job(UUID(job_id)).review == "needs_edit"


def test_lists_and_exports_have_what_people_decided(queue: Queue) -> None:
    edited, draft, rejected, open_, needs_edit = (
        written(queue, review)
        for review in (
            ReviewState.NEEDS_REVIEW, ReviewState.NEEDS_EDIT, ReviewState.NEEDS_REVIEW, None, ReviewState.NEEDS_EDIT,
        )
    )  # fmt: skip
    for job_id in (edited, draft):
        artifact = queue.producer.job(job_id).artifact().decide("edit", by="Ann", body={"echo": "Other words."})
        assert artifact.decide("approve", by="Ann")
    queue.producer.job(rejected).artifact().decide("reject", by="Ann", note="no news")

    def exported(*options: str) -> dict[str, Any]:
        lines = typed(queue.settings, "artifacts", "export", "-", *options).stdout.splitlines()
        rows = map(json.loads, lines)
        decided = ("approved_version", "decided_by")
        return {row["job_id"]: (row["body"]["echo"], row["text"] is None, *map(row.get, decided)) for row in rows}

    approved = {str(each): ("Other words.", True, 2, "Ann") for each in (edited, draft)}
    assert exported("--approved") == approved
    assert exported() == {**approved, str(open_): ("The first words.", False, None, None)}
    assert exported("--verdict", "rejected").keys() == {str(rejected), str(needs_edit)}
    listed = json.loads(typed(queue.settings, "artifacts", "list", "--json", "--verdict", "rejected").stdout)
    assert {row["job_id"]: row["reason"] for row in listed} == {
        str(rejected): "rejected",
        str(needs_edit): "repetition",
    }
