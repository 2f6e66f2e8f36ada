"""`thothy enqueue` against a real Postgres."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest

from tests.support.command_line import SOURCE, Run, enqueue, one_line
from thothy_ai.settings import Settings


def test_from_flags_and_a_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text(SOURCE)
    done = run(
        "enqueue", "trend_summary", "--source-file", tmp_path / "notes.txt", "--audience", "indie founders",
        "--translate-to", "de", "--translate-to", "fr", "--priority", 5, "--deadline", "2h", "--key", "k1",
        "--json",
    )  # fmt: skip
    job_id = json.loads(done.stdout)["id"]
    shown = json.loads(run("jobs", "show", job_id, "--json").stdout)
    assert shown["request"]["source"] == SOURCE
    assert shown["request"]["translate_to"] == ["de", "fr"]
    assert (shown["priority"], shown["idempotency_key"], shown["state"]) == (5, "k1", "queued")
    left = datetime.fromisoformat(shown["deadline"]) - datetime.now(UTC)
    assert timedelta(minutes=119) < left <= timedelta(hours=2)
    assert shown["deadline"].endswith("+00:00")


def test_from_standard_input(run: Run) -> None:
    done = run("enqueue", "hook", "--source-file", "-", stdin=SOURCE)
    assert UUID(done.stdout.strip())


def test_the_same_key_is_the_same_job_and_another_body_is_an_error(run: Run) -> None:
    assert enqueue(run, "--key", "k") == enqueue(run, "--key", "k")
    refused = run("enqueue", "hook", "--source", SOURCE, "--key", "k", exit_code=2)
    assert "'k' already belongs to a different request" in one_line(refused)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["hook"], "source: is missing"),
        (["hook", "--source", " "], "source: is empty"),
        (["hook", "--source", SOURCE, "--channel", "fax"], "channel: must be 'newsletter', 'social post', 'video'"),
        (["translation", "--source", SOURCE, "--target-locale", "tlh"], "target_locale: is not a supported locale"),
        (["hook", "--source", SOURCE, "--deadline", "2001-01-01"], "deadline: 2001-01-01"),
    ],
    ids=["missing", "empty", "choice", "locale", "past"],
)
def test_a_bad_request_names_the_field(run: Run, arguments: list[str], words: str) -> None:
    assert words in one_line(run("enqueue", *arguments, exit_code=2))


def test_many_from_jsonl(run: Run, tmp_path: Path) -> None:
    lines = [{"kind": "hook", "request": {"source": f"{SOURCE} {n}"}, "priority": n} for n in range(30)]
    file = tmp_path / "jobs.jsonl"
    file.write_text("\n".join(json.dumps(line) for line in lines) + "\n\n")
    ids = json.loads(run("enqueue", "--jsonl", file, "--json").stdout)["ids"]
    assert len(set(ids)) == 30
    assert run("enqueue", "--jsonl", "-", stdin=file.read_text()).stdout == "30 jobs enqueued.\n"
    assert run("enqueue", "--jsonl", "-", stdin=file.read_text().splitlines()[0]).stdout == "1 job enqueued.\n"


def test_jobs_that_existed_already_are_counted_apart(run: Run, tmp_path: Path) -> None:
    lines = [{"kind": "hook", "request": {"source": SOURCE}, "idempotency_key": f"k{n}"} for n in range(18)]
    text = "\n".join(json.dumps(line) for line in lines)
    run("enqueue", "--jsonl", "-", stdin="\n".join(text.splitlines()[:15]))
    document = json.loads(run("enqueue", "--jsonl", "-", "--json", stdin=text).stdout)
    assert (len(document["ids"]), document["created"], document["existing"]) == (18, 3, 15)
    assert run("enqueue", "--jsonl", "-", stdin=text).stdout == "0 jobs enqueued; 18 already existed.\n"


def test_a_conflict_in_a_file_names_its_line(run: Run, tmp_path: Path) -> None:
    held = enqueue(run, "--key", "k")
    good = {"kind": "hook", "request": {"source": SOURCE}, "idempotency_key": "mine"}
    file = tmp_path / "jobs.jsonl"
    file.write_text("\n\n".join(json.dumps(good | change) for change in ({}, {"idempotency_key": "k"})))
    said = "already belongs to a different request, that of"
    refused = one_line(run("enqueue", "--jsonl", file, exit_code=2))
    assert refused == f"{file}:3: idempotency key 'k' {said} job {held}"
    file.write_text("\n\n".join(json.dumps(good | change) for change in ({}, {"request": {"source": "b"}})))
    refused = one_line(run("enqueue", "--jsonl", file, exit_code=2))
    assert refused == f"{file}:3: idempotency key 'mine' {said} {file}:1"


def test_an_option_of_a_line_is_checked_by_the_producer_and_names_the_line(run: Run) -> None:
    line = {"kind": "hook", "request": {"source": SOURCE}, "max_attempts": 0}
    text = json.dumps({**line, "max_attempts": 1}) + "\n\n" + json.dumps(line)
    refused = one_line(run("enqueue", "--jsonl", "-", stdin=text, exit_code=2))
    assert refused == "standard input:3: max_attempts: 0 is not a whole number from 1 to 32767"


def test_a_job_that_existed_is_said_so_on_stderr(run: Run) -> None:
    first = run("enqueue", "hook", "--source", SOURCE, "--key", "k")
    again = run("enqueue", "hook", "--source", SOURCE, "--key", "k")
    assert (again.stdout, first.stderr) == (first.stdout, "")
    assert one_line(again) == "a job with this idempotency key already existed; nothing was enqueued"
    shown = [json.loads(run("enqueue", "hook", "--source", "b", "--key", "b", "--json").stdout) for _ in range(2)]
    assert [document["existed"] for document in shown] == [False, True]


def test_a_limit_of_attempts(run: Run) -> None:
    shown = json.loads(run("jobs", "show", enqueue(run, "--max-attempts", 7), "--json").stdout)
    assert shown["max_attempts"] == 7
    run("enqueue", "hook", "--source", SOURCE, "--max-attempts", 0, exit_code=2)


def test_an_unknown_kind_lists_those_there_are(run: Run) -> None:
    refused = run("enqueue", "haiku", "--source", SOURCE, exit_code=2)
    message, _, listed = refused.stderr.strip().partition("; available: ")
    assert message == "thothy: no kind 'haiku'"
    assert {"hook", "report", "report_section", "translation", "trend_summary"} <= {*listed.split(", ")}


@pytest.mark.parametrize("heading", ['The "new" normal', "#1: why", "Up 🎉"])
def test_a_heading_may_have_any_characters(run: Run, heading: str) -> None:
    job_id = run("enqueue", "report_section", "--source", SOURCE, "--heading", heading).stdout.strip()
    assert json.loads(run("jobs", "show", job_id, "--json").stdout)["request"]["heading"] == heading


def test_no_regular_expression_is_shown(run: Run) -> None:
    refused = one_line(run("enqueue", "report_section", "--source", SOURCE, "--heading", "a\nb", exit_code=2))
    assert refused.startswith("heading: must be one line of text, without control characters (see `thothy")


def test_a_misspelt_variable_is_named_once(run: Run, settings: Settings) -> None:
    environment = os.environ | {"THOTHY_WORKER_INFLIGHT": "9"}
    command = [sys.executable, "-m", "thothy_ai.cli", "enqueue", "hook", "--source", SOURCE]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    meant = "did you mean THOTHY_WORKER_IN_FLIGHT?"
    assert done.stderr == f"thothy: THOTHY_WORKER_INFLIGHT is not a setting; {meant}\n"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{nonsense", "is not JSON"),
        ('{"kind": "hook"\n', "Expecting ',' delimiter at column 16"),
        ("[1]", "is not a JSON object"),
        ('{"kind": "poem", "request": {}}', "unknown kind 'poem'"),
        ('{"kind": "hook"}', "request: is missing"),
        ('{"kind": "hook", "request": {"source": 7}}', "source: must be text"),
        ('{"kind": "hook", "request": 7}', "request: must be an object"),
        ('{"kind": "hook", "request": {"source": "a b", "tonne": "dry"}}', "tonne: is not a known field"),
        ('{"kind": "hook", "request": {"source": "a b"}, "prio": 3}', "prio: is not a known key"),
        ('{"kind": "hook", "request": {"source": "a b"}, "priority": "high"}', "priority: 'high'"),
        ('{"kind": "hook", "request": {"source": "a b"}, "deadline": "soon"}', "deadline: 'soon' is neither"),
        ('{"kind": "hook", "kind": "hook", "request": {"source": "a b"}}', "kind: occurs twice"),
        ('{"kind": "hook", "request": {"tone": "dry", "source": "a b", "tone": "wry"}}', "tone: occurs twice"),
        ('{"kind": "translation", "request": {"source": "a b", "glossary": {"a": "x", "a": "y"}}}', "a: occurs twice"),
        ('{"kind": "hook", "request": {"source": "a\\u0000b"}}', "source: contains a NUL"),
        ('{"kind": "hook", "request": {"source": "\\ud800"}}', "source: contains a lone surrogate"),
        (b'{"kind": "\xff"}', "is not UTF-8"),
        ("[" * 200_000, "is not JSON"),
    ],
)  # fmt: skip
def test_a_bad_line_is_named_and_nothing_is_enqueued(run: Run, tmp_path: Path, line: str | bytes, words: str) -> None:
    good = json.dumps({"kind": "hook", "request": {"source": SOURCE}}).encode()
    bad = line if isinstance(line, bytes) else line.encode()
    file = tmp_path / "jobs.jsonl"
    file.write_bytes(b"\n".join([good, bad, good]))
    message = one_line(run("enqueue", "--jsonl", file, exit_code=2))
    assert message.startswith(f"{file}:2: ")
    assert words in message
    assert run("jobs", "list").stdout == "No jobs.\n"


def test_a_file_that_is_not_there(run: Run) -> None:
    assert "No such file" in run("enqueue", "--jsonl", "/nowhere.jsonl", exit_code=2).output
