"""Commands typed at a terminal of 80 columns: nothing is broken over lines, and what is shown can be typed."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

import pytest
from sqlalchemy import Engine

from tests.support.command_line import SOURCE, Run, add_artifact, add_attempt, end, enqueue, set_job, shown
from tests.support.command_terminal import on_terminal
from tests.support.home import THOTHY

CTRL_C = "\x03"
REASON = "number_not_in_source"  # the longest
SHORT_ID = re.compile(r"^([0-9a-f]{8}) ", re.MULTILINE)


@dataclass(frozen=True)
class Shown:
    """What a command showed, and its exit code."""

    lines: list[str]
    exit_code: int

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


def typed(command: str, **answers: str) -> Shown:
    """What a command shows; it inherits this test's settings. Where it shows a key of `answers`, its value is typed."""
    with on_terminal([*THOTHY, *command.split()], os.environ) as screen:
        for prompt, answer in answers.items():
            screen.wait_for(prompt)
            if answer != CTRL_C:
                screen.press(answer)
        code = screen.interrupt_at_prompt() if CTRL_C in answers.values() else screen.ended()
        return Shown(screen.lines, code)


@pytest.fixture
def jobs(run: Run, engine: Engine) -> list[UUID]:
    """Jobs in several states, with much to show of the second."""
    dead, succeeded, child, waiting = (enqueue(run, "--key", f"2026-11-21/fermentation/{n}") for n in range(4))
    end(engine, dead, "dead", reason=REASON, detail=f"'38' is not in the source, which is: {SOURCE}", attempt=1)
    end(engine, succeeded, "succeeded", started_at=datetime.now(UTC), attempt=2)
    set_job(engine, child, parent_id=succeeded)
    add_attempt(engine, succeeded, 1, outcome="rejected", reason=REASON, detail="d" * 300, worker="w" * 80)
    add_attempt(engine, succeeded, 2, compute_seconds=2.5)
    add_artifact(engine, succeeded, attempt=1, reason=REASON, body=None, text="text " * 100)
    add_artifact(engine, succeeded, attempt=2, body={"summary": f"{SOURCE} 漬物 " * 5})
    run("jobs", "cancel", waiting)
    return [dead, succeeded, child, waiting]


@pytest.mark.parametrize(
    "command",
    ["jobs list", "jobs list --key 2026*", "jobs list --limit 1", "artifacts list", "dead list",
     "jobs cancel --all --dry-run"],
)  # fmt: skip
def test_lists_fit_and_their_ids_are_accepted(run: Run, jobs: list[UUID], command: str) -> None:
    list_ = typed(command)
    assert list_.exit_code == 0
    assert max(map(len, list_.lines)) <= 80
    assert not re.search("…  ", list_.text.replace("text…", ""))  # only texts are cut, and they come last
    assert REASON in list_.text or "limit" in command or "cancel" in command
    for short in SHORT_ID.findall(list_.text):
        assert shown(run, short)["id"].endswith(short)
    assert SHORT_ID.search(list_.text) or "cancel" in command


def test_a_long_tenant_is_cut_and_drops_no_column(run: Run) -> None:
    tenant = "acme-with-a-very-long-name-of-41-characters"[:41]
    run("enqueue", "hook", "--source", SOURCE, "--key", "mon/1", environment={"THOTHY_TENANT": tenant})
    head, _, row = typed("jobs list").lines
    assert {"attempt", "enqueued", "key"} <= set(head.split())
    assert row.split()[1].startswith("acme-with-a")
    assert row.split()[1].endswith("…")


def test_jobs_and_artifacts_fit_in_full(jobs: list[UUID]) -> None:
    for command in (f"jobs show {str(jobs[1])[-8:]}", f"dead show {jobs[0]}", f"artifacts show {jobs[1]}"):
        page = typed(command)
        assert page.exit_code == 0
        assert max(map(len, page.lines)) <= 80
        assert REASON in page.text
    job = typed(f"jobs show {jobs[1]}").text
    for whole in (str(jobs[1]), "2026-11-21/fermentation/1", str(jobs[2])[-8:], "2.50 compute-seconds"):
        assert whole in job
    assert "漬物" in typed(f"artifacts show {jobs[1]}").text


def test_a_reader_is_told_that_a_list_goes_on(jobs: list[UUID]) -> None:
    assert typed("jobs list --limit 2").lines[-1] == "The newest 2 are shown; --limit shows more."
    assert "--limit" not in typed("jobs list --limit 4").text


@pytest.mark.parametrize(
    "command", ["jobs cancel --all", "jobs retry --state dead", "dead purge --all", "dead redrive --all"]
)
@pytest.mark.parametrize(
    ("answer", "exit_code", "last"), [("n\n", 1, "thothy: aborted; nothing was changed"), (CTRL_C, 130, None)]
)
def test_a_confirmation_that_is_not_given_changes_nothing(
    run: Run, jobs: list[UUID], command: str, answer: str, exit_code: int, last: str | None
) -> None:
    asked = typed(command, **{"[y/N]: ": answer})
    assert asked.exit_code == exit_code
    assert "1 job" in asked.text
    assert "Traceback" not in asked.text
    assert last is None or asked.lines[-1] == last
    assert [shown(run, job_id)["state"] for job_id in jobs[:3]] == ["dead", "succeeded", "queued"]


def test_dead_jobs_that_are_named_are_queued_again_without_a_question(run: Run, jobs: list[UUID]) -> None:
    assert typed(f"dead redrive {str(jobs[0])[-8:]}").lines[-1] == "1 job queued again."
    assert shown(run, jobs[0])["state"] == "queued"
    assert typed("dead redrive --all --yes").lines[-1] == "No dead jobs."


def test_a_confirmation_that_is_given(run: Run, jobs: list[UUID]) -> None:
    done = typed("jobs cancel --state queued", **{"[y/N]: ": "y\n"})
    assert (done.exit_code, done.lines[-1]) == (0, "1 job cancelled.")
    assert shown(run, jobs[2])["state"] == "cancelled"
    again = typed("jobs retry --state cancelled", **{"[y/N]: ": "y\n"})
    assert (again.exit_code, again.lines[-1]) == (0, "2 jobs queued again.")
    assert shown(run, jobs[2])["state"] == "queued"
