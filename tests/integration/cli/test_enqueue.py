"""`thothy enqueue` against a real Postgres."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest

from tests.support.command_line import (
    SOURCE,
    Run,
    enqueue,
    one_line,
)


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
    refused = run("enqueue", "hook", "--source", SOURCE, "--key", "k", exit_code=1)
    assert "'k' already belongs to a different request" in one_line(refused)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["hook"], "source: Field required"),
        (["hook", "--source", " "], "source: is empty"),
        (["hook", "--source", SOURCE, "--channel", "fax"], "channel: Input should be 'newsletter'"),
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
    assert "30 jobs enqueued" in run("enqueue", "--jsonl", "-", stdin=file.read_text()).stdout


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{nonsense", "is not JSON"),
        ("[1]", "is not a JSON object"),
        ('{"kind": "poem", "request": {}}', "unknown kind 'poem'"),
        ('{"kind": "hook"}', "request: is missing"),
        ('{"kind": "hook", "request": {"source": 7}}', "source: Input should be a valid string"),
        ('{"kind": "hook", "request": {"source": "a b"}, "prio": 3}', "prio: is not a known key"),
        ('{"kind": "hook", "request": {"source": "a b"}, "priority": "high"}', "priority: 'high'"),
        ('{"kind": "hook", "request": {"source": "a b"}, "deadline": "soon"}', "deadline: 'soon' is neither"),
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
