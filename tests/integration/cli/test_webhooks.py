"""`thothy webhooks`, and `--webhook` of `thothy enqueue`: as typed."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import Engine, text

from tests.support.command_line import SOURCE, Run, one_line
from thothy_ai.errors import InvalidJobError
from thothy_ai.producer.batches import draft_batch
from thothy_ai.queue.webhooks.signing import receiver_secret

URL = "https://hooks.example/done"


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    file = tmp_path / "jobs.jsonl"
    file.write_text("".join(json.dumps({"kind": "hook", "request": {"source": SOURCE}}) + "\n" for _ in range(2)))
    return file


def rows(engine: Engine, query: str) -> list[tuple[object, ...]]:
    with engine.begin() as connection:
        done = connection.execute(text(query))
        return [tuple(row) for row in done] if done.returns_rows else []


def test_enqueue_asks_for_webhooks(run: Run, engine: Engine, lines: Path) -> None:
    run("enqueue", "hook", "--source", SOURCE, "--webhook", URL)
    made = json.loads(run("enqueue", "--jsonl", lines, "--webhook", URL, "--json").stdout)
    run("enqueue", "--jsonl", lines, "--webhook", URL, "--notify", "job")
    assert rows(engine, "SELECT notify, jobs FROM batch ORDER BY id") == [("job", 1), ("batch", 2), ("job", 2)]
    assert made["batch_id"] in {str(row[0]) for row in rows(engine, "SELECT id FROM batch")}
    assert "batch_id" not in json.loads(run("enqueue", "--jsonl", lines, "--json").stdout)
    said = one_line(run("enqueue", "--jsonl", lines, "--webhook", "ftp://x", exit_code=2))
    assert said == "webhook: must look like https://host/path"
    said = one_line(run("enqueue", "--webhook", URL, "hook", "--source", SOURCE, exit_code=2))
    assert "comes after its kind" in said


def test_when_to_tell_without_a_url_to_tell_is_refused(run: Run, engine: Engine, lines: Path) -> None:
    said = one_line(run("enqueue", "--jsonl", lines, "--notify", "job", exit_code=2))
    assert said.startswith("--notify needs --webhook, the URL to notify")
    said = one_line(run("enqueue", "--notify", "job", "hook", "--source", SOURCE, exit_code=2))
    assert said.startswith("--notify is for --jsonl")
    said = one_line(run("enqueue", "--notify", "job", exit_code=2))
    assert said.startswith("--notify needs --jsonl FILE, the file of the jobs (see")
    said = one_line(run("enqueue", "--webhook", URL, "--notify", "job", exit_code=2))
    assert said.startswith("--webhook needs --jsonl FILE; that of a single job comes after its kind (see")
    assert rows(engine, "SELECT FROM job") == []
    with pytest.raises(InvalidJobError, match="notify: needs a webhook"):
        draft_batch(None, "job")


def test_dead_ones_are_listed_and_sent_again(run: Run, engine: Engine, lines: Path) -> None:
    assert run("webhooks", "list").stdout == "0 waiting, 0 delivered, 0 dead\n"
    run("enqueue", "--jsonl", lines, "--webhook", URL, "--notify", "job")
    rows(engine, "UPDATE job SET state = 'cancelled', finished_at = now()")
    rows(
        engine,
        "UPDATE webhook_delivery SET dead_at = now(), error = 'HTTP 500 no' WHERE id = (SELECT min(id::text)::uuid"
        " FROM webhook_delivery)",
    )
    said = run("webhooks", "list", "--state", "dead").stdout
    assert said.startswith("1 waiting, 0 delivered, 1 dead\n")
    assert "HTTP 500 no" in said
    [dead] = json.loads(run("webhooks", "list", "--state", "dead", "--json").stdout)["deliveries"]
    assert run("webhooks", "list", "--tenant", "other").stdout == "0 waiting, 0 delivered, 0 dead\n"
    assert json.loads(run("webhooks", "list", "--tenant", "other", "--json").stdout)["deliveries"] == []
    assert run("webhooks", "retry", dead["id"]).stdout == "1 webhook due now.\n"
    assert json.loads(run("webhooks", "retry", "--all", "--json").stdout) == {"due": 0}
    assert "unknown or already delivered" in one_line(run("webhooks", "retry", uuid4(), "--json", exit_code=1))
    assert "not the id" in one_line(run("webhooks", "retry", "x", exit_code=2))
    for arguments in ((), ("--all", dead["id"])):
        assert "pass --all alone" in one_line(run("webhooks", "retry", *arguments, exit_code=2))


def test_the_receivers_secret(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "THOTHY_WEBHOOK_SECRETS is not set" in one_line(run("webhooks", "secret", exit_code=2))
    for wrong in ("short", ",".join(["x" * 24] * 3)):
        monkeypatch.setenv("THOTHY_WEBHOOK_SECRETS", wrong)
        said = one_line(run("webhooks", "secret", exit_code=2))
        assert "one or two secrets" in said
        assert wrong not in said
    monkeypatch.setenv("THOTHY_WEBHOOK_SECRETS", f"{'n' * 24}, {'o' * 24}")
    assert "the tenant is empty" in one_line(run("webhooks", "secret", "--tenant", "", exit_code=2))
    wanted = [receiver_secret(secret * 24, "acme") for secret in "no"]
    assert run("webhooks", "secret", "--tenant", "acme").stdout.split() == wanted
    assert json.loads(run("webhooks", "secret", "--tenant", "acme", "--json").stdout)["secrets"] == wanted
    monkeypatch.setenv("THOTHY_WEBHOOK_NETWORKS", "10.0.0.0/8, nowhere")
    assert "must be networks such as 10.1.0.0/16" in one_line(run("webhooks", "secret", exit_code=2))
