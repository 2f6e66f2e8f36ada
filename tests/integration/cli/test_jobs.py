"""`thothy jobs` against a real Postgres."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Engine, insert, text

from tests.support.command_line import (
    SOURCE,
    Run,
    add_artifact,
    add_attempt,
    end,
    enqueue,
    ids_of,
    one_line,
    set_job,
    shown,
)
from thothy_ai.db.models import EngineSessionRow

MANY_DEAD = """
    INSERT INTO job (id, tenant, kind, source_key, request_digest, max_attempts, state, reason, finished_at)
    SELECT gen_random_uuid(), 't', 'hook', 's', 'd', 3, 'dead', 'empty', now() FROM generate_series(1, 70000)
"""


def add_session(engine: Engine, *, gpus: int) -> UUID:
    session = uuid4()
    row = {
        "id": session, "model": "tiny", "device": "d", "dtype": "float32", "gpus": gpus, "num_blocks": 1,
        "block_size": 16, "started_at": datetime.now(UTC),
    }  # fmt: skip
    with engine.begin() as connection:
        connection.execute(insert(EngineSessionRow), row)
    return session


def enqueue_as(run: Run, tenant: str) -> UUID:
    """Enqueue a hook of this tenant."""
    return UUID(run("enqueue", "hook", "--source", SOURCE, environment={"THOTHY_TENANT": tenant}).stdout.strip())


class TestList:
    def test_by_state_kind_and_time(self, run: Run, engine: Engine) -> None:
        first, second = enqueue(run), enqueue(run)
        end(engine, first, "dead", reason="repetition")
        assert ids_of(run, "jobs", "list") == [str(second), str(first)]
        dead = json.loads(
            run("jobs", "list", "--state", "dead", "--kind", "trend_summary", "--since", "1h", "--json").stdout
        )
        assert [(job["id"], job["reason"]) for job in dead] == [(str(first), "repetition")]
        assert ids_of(run, "jobs", "list", "--kind", "hook") == []
        assert ids_of(run, "jobs", "list", "--until", "1h") == []
        assert ids_of(run, "jobs", "list", "--limit", "1") == [str(second)]

    def test_in_a_pipe_nothing_is_shortened(self, run: Run, engine: Engine) -> None:
        job_id = enqueue(run, "--key", "k" * 300)
        end(engine, job_id, "dead", reason="number_not_in_source")
        table = run("jobs", "list").stdout
        for whole in (str(job_id), "k" * 300, "number_not_in_source"):
            assert whole in table
        assert "…" not in table

    def test_by_key_whole_or_its_beginning(self, run: Run) -> None:
        monday, tuesday, other = (str(enqueue(run, "--key", key)) for key in ("mon/1", "mon/2", "m%"))
        assert ids_of(run, "jobs", "list", "--key", "mon/1") == [monday]
        assert ids_of(run, "jobs", "list", "--key", "mon/*") == [tuesday, monday]
        assert ids_of(run, "jobs", "list", "--key", "mon") == []
        assert ids_of(run, "jobs", "list", "--key", "m%*") == [other]

    def test_tenants_are_shown_if_jobs_are_of_another_than_the_settings_name(self, run: Run) -> None:
        own = enqueue(run)
        assert "tenant" not in run("jobs", "list").stdout
        other = enqueue_as(run, "acme")
        head, _, *rows = run("jobs", "list").stdout.splitlines()
        assert head.split()[:3] == ["id", "tenant", "kind"]
        assert [row.split()[:2] for row in rows] == [[str(other), "acme"], [str(own), "default"]]
        assert "tenant" not in run("jobs", "list", "--kind", "trend_summary").stdout
        assert "tenant" in run("jobs", "list", "--kind", "hook").stdout

    def test_by_tenant(self, run: Run) -> None:
        enqueue(run)
        other = enqueue_as(run, "acme")
        assert ids_of(run, "jobs", "list", "--tenant", "acme") == [str(other)]
        assert ids_of(run, "jobs", "list", "--tenant", "acme", "--kind", "trend_summary") == []
        assert run("jobs", "list", "--tenant", "nobody").stdout == "No jobs match --tenant nobody.\n"
        assert "the tenant is empty" in one_line(run("jobs", "list", "--tenant", "", exit_code=2))

    def test_by_source_text_file_or_key(self, run: Run, tmp_path: Path) -> None:
        job_id = str(enqueue(run))
        run("enqueue", "hook", "--source", "another source altogether")
        (tmp_path / "source.txt").write_text(SOURCE)
        key = shown(run, UUID(job_id))["source_key"]
        for source in (("--source", SOURCE), ("--source", key), ("--source", key[:6])):
            assert ids_of(run, "jobs", "list", *source) == [job_id]
        assert ids_of(run, "jobs", "list", "--source-file", tmp_path / "source.txt") == [job_id]
        both = run("jobs", "list", "--source", "a", "--source-file", "b", exit_code=2)
        assert "mutually exclusive" in one_line(both)

    def test_by_parent(self, run: Run, engine: Engine) -> None:
        parent, child = enqueue(run), enqueue(run)
        set_job(engine, child, parent_id=parent)
        assert ids_of(run, "jobs", "list", "--parent", str(parent)[-8:]) == [str(child)]

    def test_by_batch(self, run: Run, engine: Engine) -> None:
        """The jobs of one call, without the follow-ups that were enqueued in the same instant."""
        lines = "\n".join(json.dumps({"kind": "hook", "request": {"source": f"{SOURCE} {n}"}}) for n in range(3))
        batch = json.loads(run("enqueue", "--jsonl", "-", "--json", stdin=lines).stdout)["ids"]
        run("enqueue", "--jsonl", "-", stdin=lines)
        follow_up = enqueue(run)
        set_job(engine, follow_up, parent_id=uuid4())
        with engine.begin() as connection:
            instant = text("UPDATE job SET enqueued_at = (SELECT enqueued_at FROM job WHERE id = :one) WHERE id = :it")
            connection.execute(instant, {"one": batch[0], "it": follow_up})
        for member in batch:
            assert set(ids_of(run, "jobs", "list", "--batch", member)) == set(batch)

    @pytest.mark.parametrize("command", [("jobs", "list"), ("artifacts", "list"), ("dead", "list"), ("jobs", "cancel")])
    def test_an_unknown_kind_names_those_there_are(self, run: Run, engine: Engine, command: tuple[str, ...]) -> None:
        set_job(engine, enqueue(run), kind="of_another_version")
        message = one_line(run(*command, "--kind", "nope", exit_code=2))
        named = message.partition("'nope' is not one of ")[2].partition(" (see")[0].split(", ")
        assert named == sorted(named)  # other tests may have registered kinds of theirs
        assert {"hook", "of_another_version", "report", "report_section"} <= set(named)
        run(*command, "--kind", "of_another_version", *(["--yes"] if command[1] == "cancel" else []))

    @pytest.mark.parametrize(
        "command",
        [
            ("dead", "list"),
            ("dead", "redrive"),
            ("dead", "purge", "--yes"),
            ("jobs", "retry", "--state", "dead", "--yes"),
        ],
    )
    def test_an_unknown_reason_names_those_there_are(self, run: Run, engine: Engine, command: tuple[str, ...]) -> None:
        end(engine, enqueue(run), "dead", reason="of_another_version")
        message = one_line(run(*command, "--reason", "lease_lost", "--reason", "banana", exit_code=2))
        assert "invalid value for --reason: 'banana' is not one of adapter_changed, adapter_load, " in message
        for known in ("of_another_version", "engine_draining", "off_schema", "lease_lost"):
            assert f" {known}, " in message
            run(*command, "--reason", known)

    def test_an_empty_result_says_what_was_searched(self, run: Run) -> None:
        assert run("jobs", "list").stdout == "No jobs.\n"
        done = run("jobs", "list", "--state", "dead", "--state", "expired", "--kind", "hook", "--key", "a*")
        assert done.stdout == "No jobs match --state dead --state expired --kind hook --key a*.\n"
        assert run("artifacts", "list", "--verdict", "rejected").stdout == "No rejected artifacts.\n"
        assert run("dead", "list", "--reason", "empty").stdout == "No dead jobs match --reason empty.\n"


class TestShow:
    def test_attempts_artifacts_and_events(self, run: Run, engine: Engine) -> None:
        job_id = enqueue(run)
        add_attempt(engine, job_id, outcome="rejected", reason="repetition", detail="'and and'")
        add_artifact(engine, job_id, reason="repetition")
        run("jobs", "cancel", job_id)
        printed = run("jobs", "show", job_id).stdout
        for words in ("w@1", "repetition", "Crocks", "cancelled", SOURCE[:30]):
            assert words in printed
        document = shown(run, job_id)
        assert [len(document[part]) for part in ("attempts", "artifacts", "events")] == [1, 1, 1]

    def test_findings_at_their_places(self, run: Run, engine: Engine) -> None:
        job_id = enqueue(run)
        finding = {
            "reason": "name_not_in_source", "detail": "'mode' is not in the source", "part": "headline", "start": 14,
            "end": 18, "source_start": None, "source_end": None, "weight": 0.9, "by": "rule",
        }  # fmt: skip
        outside = finding | {"part": "subtitle", "detail": "is gone"}
        add_artifact(engine, job_id, findings=[finding, outside])
        end(engine, job_id, "succeeded", review="needs_review")
        document = shown(run, job_id)
        assert document["review"] == "needs_review"
        assert [each["text"] for each in document["findings"]] == ["mode", None]
        printed = run("jobs", "show", job_id).stdout
        for words in ("review", "needs_review", "headline", "name_not_in_source", "'mode' is not in the source"):
            assert words in printed

    def test_parent_and_follow_ups(self, run: Run, engine: Engine) -> None:
        parent, child = enqueue(run), enqueue(run)
        set_job(engine, child, parent_id=parent)
        assert [each["id"] for each in shown(run, parent)["follow_ups"]] == [str(child)]
        assert str(child) in run("jobs", "show", parent).stdout
        assert f"parent      {parent}" in run("jobs", "show", child).stdout

    def test_cost_is_the_device_time_of_all_attempts(self, run: Run, engine: Engine) -> None:
        job_id, session = enqueue(run), add_session(engine, gpus=2)
        add_attempt(engine, job_id, 1, outcome="rejected", engine_session_id=session, compute_seconds=1.5)
        add_attempt(engine, job_id, 2, engine_session_id=session, compute_seconds=0.5)
        document = shown(run, job_id)
        assert document["cost"] == {
            "compute_seconds": 4,
            "useful_seconds": 1,
            "price": None,
            "currency": "USD",
            "declared": False,
        }
        assert [each["model"] for each in document["attempts"]] == ["tiny", "tiny"]
        printed = run("jobs", "show", job_id).stdout
        assert "cost        4.00 GPU-seconds, 3.00 of them in attempts without an artifact\n" in printed

    def test_cost_in_money(self, run: Run, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        job_id = enqueue(run)
        add_attempt(engine, job_id, engine_session_id=add_session(engine, gpus=0), compute_seconds=3.6)
        monkeypatch.setenv("THOTHY_PRICE_PER_COMPUTE_HOUR", "2.5")
        monkeypatch.setenv("THOTHY_CURRENCY", "EUR")
        assert "3.60 compute-seconds; 0.002500 EUR\n" in run("jobs", "show", job_id).stdout
        assert shown(run, job_id)["cost"]["price"] == pytest.approx(0.0025)

    def test_an_unknown_job(self, run: Run) -> None:
        missing = uuid4()
        assert one_line(run("jobs", "show", missing, exit_code=1)) == f"no job with id {missing}"


class TestIds:
    """Where an id is taken, so is its beginning or its end."""

    @pytest.mark.parametrize("command", ["jobs show", "jobs retry", "artifacts show", "dead show", "dead redrive"])
    def test_a_part_is_enough(self, run: Run, engine: Engine, command: str) -> None:
        job_id = enqueue(run)
        parts = (str(job_id)[-8:], str(job_id)[:13], str(job_id).upper(), job_id.hex, job_id.hex[-16:])
        add_artifact(engine, job_id, reason="empty")
        for part in parts:
            end(engine, job_id, "dead", reason="empty")
            run(*command.split(), part)

    def test_an_ambiguous_part_names_the_candidates(self, run: Run) -> None:
        first, second = enqueue(run), enqueue(run)
        message = one_line(run("jobs", "show", str(first)[:4], exit_code=1))
        assert message == f"several job ids begin or end with {str(first)[:4]}: {first}, {second}"

    def test_an_unknown_part(self, run: Run) -> None:
        assert one_line(run("jobs", "cancel", "ffffffff", exit_code=1)) == "no job with id ffffffff"

    @pytest.mark.parametrize("text", ["abc", "----", "xyz12345", "a" * 33, "é" * 8])
    def test_what_cannot_be_one_is_a_usage_error(self, run: Run, text: str) -> None:
        assert "is not a job id" in one_line(run("jobs", "show", "--", text, exit_code=2))


class TestRetry:
    def test_keeps_history_and_resets_failures(self, run: Run, engine: Engine) -> None:
        job_id = enqueue(run)
        past = datetime.now(UTC) - timedelta(hours=1)
        end(engine, job_id, "expired", attempt=3, failures=3, engine_deaths=2, deadline=past)
        assert run("jobs", "retry", job_id).stdout == "1 job queued again.\n"
        job = shown(run, job_id)
        kept = {
            name: job[name] for name in ("state", "attempt", "failures", "engine_deaths", "deadline", "finished_at")
        }
        assert kept == {
            "state": "queued",
            "attempt": 3,
            "failures": 0,
            "engine_deaths": 0,
            "deadline": None,
            "finished_at": None,
        }
        assert [event["event"] for event in job["events"]] == ["redriven"]

    def test_by_state_kind_and_reason(self, run: Run, engine: Engine) -> None:
        lost, rejected = enqueue(run), enqueue(run)
        end(engine, lost, "dead", reason="lease_lost")
        end(engine, rejected, "dead", reason="repetition")
        selection = ("--state", "dead", "--kind", "trend_summary", "--reason", "lease_lost", "--deadline", "1h")
        assert run("jobs", "retry", *selection, "--yes").stdout == "1 job queued again.\n"
        assert [shown(run, job_id)["state"] for job_id in (lost, rejected)] == ["queued", "dead"]
        assert run("jobs", "retry", "--state", "dead", "--reason", "empty").stdout == "No dead jobs match.\n"

    @pytest.mark.parametrize("options", [(), ("--json",)])
    def test_without_a_terminal_many_want_yes(self, run: Run, engine: Engine, options: tuple[str, ...]) -> None:
        job_id = enqueue(run)
        end(engine, job_id, "cancelled")
        asked = run("jobs", "retry", "--state", "cancelled", *options, exit_code=2)
        assert "pass --yes to confirm" in one_line(asked)
        assert ("trend_summary" in asked.stdout) is (not options)  # what would be queued again
        assert shown(run, job_id)["state"] == "cancelled"
        retried = json.loads(run("jobs", "retry", "--state", "cancelled", "--yes", "--json").stdout)
        assert retried == {"changed": [str(job_id)], "unchanged": {}}
        assert json.loads(run("jobs", "retry", "--state", "cancelled", "--json").stdout)["changed"] == []

    def test_jobs_that_cannot_be_retried_are_reported(self, run: Run, engine: Engine) -> None:
        done = enqueue(run)
        end(engine, done, "succeeded")
        message = one_line(run("jobs", "retry", done, exit_code=1))
        assert message == f"not queued again: {done}: its state is succeeded"
        missing = uuid4()
        assert "2 of 2 jobs not queued again" in one_line(run("jobs", "retry", done, missing, exit_code=1))

    def test_more_jobs_than_a_statement_has_parameters(self, run: Run, engine: Engine) -> None:
        with engine.begin() as connection:
            connection.execute(text(MANY_DEAD))
        assert run("jobs", "retry", "--state", "dead", "--yes").stdout == "70,000 jobs queued again.\n"


class TestChange:
    def test_given_jobs(self, run: Run, engine: Engine) -> None:
        job_id = enqueue(run)
        assert run("jobs", "change", job_id, "--priority", "5", "--deadline", "2h").stdout == "1 job changed.\n"
        job = shown(run, job_id)
        assert job["priority"] == 5
        assert [event["event"] for event in job["events"]] == ["changed"]
        late = one_line(run("jobs", "change", job_id, "--not-before", "3h", exit_code=1))
        assert late == f"not changed: {job_id}: it could not start before its deadline"
        run("jobs", "change", job_id, "--no-deadline", "--not-before", "3h")
        assert shown(run, job_id)["deadline"] is None
        end(engine, job_id, "succeeded")
        message = one_line(run("jobs", "change", job_id, "--priority", "6", exit_code=1))
        assert message == f"not changed: {job_id}: its state is succeeded"

    def test_by_filters(self, run: Run, engine: Engine) -> None:
        first, running = enqueue(run), enqueue(run)
        now = datetime.now(UTC)
        set_job(engine, running, state="running", worker="w", lease_until=now, started_at=now)
        change = ("jobs", "change", "--kind", "trend_summary", "--priority", "5")
        assert run(*change, "--dry-run").stdout.endswith("1 job would be changed.\n")
        assert "pass --yes to confirm" in run(*change, exit_code=2).stderr
        assert shown(run, first)["priority"] == 0
        assert json.loads(run(*change, "--yes", "--json").stdout) == {"changed": [str(first)], "unchanged": {}}
        assert [shown(run, job_id)["priority"] for job_id in (first, running)] == [5, 0]
        nothing = run("jobs", "change", "--kind", "hook", "--no-deadline").stdout
        assert nothing == "No waiting jobs match --kind hook.\n"


class TestCancel:
    def test_given_jobs(self, run: Run) -> None:
        job_id = enqueue(run)
        assert run("jobs", "cancel", str(job_id)[-8:]).stdout == "1 job cancelled.\n"
        assert shown(run, job_id)["state"] == "cancelled"
        message = one_line(run("jobs", "cancel", job_id, exit_code=1))
        assert message == f"not cancelled: {job_id}: its state is cancelled"

    def test_by_filters(self, run: Run, engine: Engine) -> None:
        old, fresh, running = enqueue(run), enqueue(run), enqueue(run)
        set_job(engine, old, enqueued_at=datetime.now(UTC) - timedelta(days=3))
        now = datetime.now(UTC)
        set_job(engine, running, state="running", worker="w", lease_until=now, started_at=now)
        selection = ("--state", "queued", "--kind", "trend_summary", "--older-than", "2d")
        assert run("jobs", "cancel", *selection, "--yes").stdout == "1 job cancelled.\n"
        assert [shown(run, job_id)["state"] for job_id in (old, fresh, running)] == ["cancelled", "queued", "running"]

    def test_all(self, run: Run, engine: Engine) -> None:
        ended, _, running = enqueue(run), enqueue(run), enqueue(run)
        end(engine, ended, "dead", reason="empty")
        now = datetime.now(UTC)
        set_job(engine, running, state="running", worker="w", lease_until=now, started_at=now)
        printed = run("jobs", "cancel", "--all", "--yes").stdout
        assert printed == "2 jobs cancelled.\n1 of them is running; its worker stops it within a heartbeat.\n"
        assert shown(run, running)["cancel_requested"]
        assert shown(run, ended)["state"] == "dead"

    def test_a_dry_run_counts_and_changes_nothing(self, run: Run) -> None:
        job_id = enqueue(run)
        printed = run("jobs", "cancel", "--all", "--dry-run").stdout
        assert "trend_summary" in printed
        assert printed.endswith("1 job would be cancelled.\n")
        assert json.loads(run("jobs", "cancel", "--all", "--dry-run", "--json").stdout) == {"selected": [str(job_id)]}
        assert "queued" in run("jobs", "cancel", job_id, "--dry-run").stdout
        assert shown(run, job_id)["state"] == "queued"

    def test_without_a_terminal_it_wants_yes(self, run: Run) -> None:
        job_id = enqueue(run)
        assert "pass --yes to confirm" in run("jobs", "cancel", "--all", exit_code=2).stderr
        assert shown(run, job_id)["state"] == "queued"

    def test_nothing_matches(self, run: Run) -> None:
        printed = run("jobs", "cancel", "--kind", "hook", "--yes").stdout
        assert printed == "No open jobs match --kind hook.\n"

    @pytest.mark.parametrize("arguments", [(), ("--all", "--kind", "hook"), ("abcd1234", "--kind", "hook")])
    def test_a_forgotten_filter_selects_nothing(self, run: Run, arguments: tuple[str, ...]) -> None:
        message = one_line(run("jobs", "cancel", *arguments, exit_code=2))
        assert "pass job ids, or filters" in message

    def test_more_jobs_than_a_transaction_takes(self, run: Run, engine: Engine) -> None:
        with engine.begin() as connection:
            connection.execute(text(MANY_DEAD.replace("'dead', 'empty', now()", "'queued', NULL, NULL")))
        assert run("jobs", "cancel", "--all", "--yes").stdout == "70,000 jobs cancelled.\n"
