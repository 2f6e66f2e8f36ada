"""The commands against a real Postgres: enqueue, jobs, artifacts, queue, report, drain, migrate."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Engine, insert, text, update
from typer.testing import CliRunner, Result

from thothy_ai.cli import app
from thothy_ai.cli.artifacts import file_name
from thothy_ai.db.connect import make_engine
from thothy_ai.db.models import Artifact, Attempt, Job
from thothy_ai.errors import MigrationsBehindError
from thothy_ai.jobs import TrendSummary
from thothy_ai.producer import Producer
from thothy_ai.settings import Settings

SOURCE = "Home fermentation has moved from a hobby to a habit, say three makers of clay crocks in Lyon."
Run = Callable[..., Result]
MANY_DEAD = """
    INSERT INTO job (id, tenant, kind, source_key, request_digest, max_attempts, state, reason, finished_at)
    SELECT gen_random_uuid(), 't', 'hook', 's', 'd', 3, 'dead', 'empty', now() FROM generate_series(1, 70000)
"""


@pytest.fixture
def engine(settings: Settings) -> Iterator[Engine]:
    engine = make_engine(settings)
    yield engine
    engine.dispose()


@pytest.fixture
def run(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `thothy` in this process, with this test's settings."""
    monkeypatch.setenv("THOTHY_HOME", str(settings.home))
    monkeypatch.setenv("THOTHY_DATABASE_URL", settings.require_database_url())
    monkeypatch.setenv("THOTHY_REDIS_URL", settings.require_redis_url())

    def run(*arguments: object, exit_code: int = 0, stdin: str | bytes | None = None) -> Result:
        done = CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)
        assert done.exit_code == exit_code, done.output
        assert "Traceback" not in done.output
        return done

    return run


def one_line(done: Result) -> str:
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("thothy: ")
    return lines[0].removeprefix("thothy: ")


def enqueue(run: Run, *options: object) -> UUID:
    return UUID(run("enqueue", "trend_summary", "--source", SOURCE, *options).stdout.strip())


def end(engine: Engine, job_id: UUID, state: str, **values: object) -> None:
    with engine.begin() as connection:
        done = {"state": state, "finished_at": datetime.now(UTC), **values}
        connection.execute(update(Job).where(Job.id == job_id).values(**done))


def add_artifact(engine: Engine, job_id: UUID, *, locale: str = "en", reason: str | None = None) -> None:
    verdict = "rejected" if reason else "accepted"
    with engine.begin() as connection:
        connection.execute(
            insert(Artifact),
            {
                "job_id": job_id, "kind": "trend_summary", "locale": locale, "attempt": 1, "tenant": "default",
                "verdict": verdict, "reason": reason, "body": {"headline": "Crocks – à la mode"}, "text": "raw text",
            },
        )  # fmt: skip


def state_of(run: Run, job_id: UUID) -> str:
    shown: dict[str, Any] = json.loads(run("jobs", "show", job_id, "--json").stdout)
    return str(shown["state"])


class TestEnqueue:
    def test_from_flags_and_a_file(self, run: Run, tmp_path: Path) -> None:
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

    def test_from_standard_input(self, run: Run) -> None:
        done = run("enqueue", "hook", "--source-file", "-", stdin=SOURCE)
        assert UUID(done.stdout.strip())

    def test_the_same_key_is_the_same_job_and_another_body_is_an_error(self, run: Run) -> None:
        assert enqueue(run, "--key", "k") == enqueue(run, "--key", "k")
        refused = run("enqueue", "hook", "--source", SOURCE, "--key", "k", exit_code=1)
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
    def test_a_bad_request_names_the_field(self, run: Run, arguments: list[str], words: str) -> None:
        assert words in one_line(run("enqueue", *arguments, exit_code=1))

    def test_many_from_jsonl(self, run: Run, tmp_path: Path) -> None:
        lines = [{"kind": "hook", "request": {"source": f"{SOURCE} {n}"}, "priority": n} for n in range(30)]
        file = tmp_path / "jobs.jsonl"
        file.write_text("\n".join(json.dumps(line) for line in lines) + "\n\n")
        ids = json.loads(run("enqueue", "--jsonl", file, "--json").stdout)["ids"]
        assert len(set(ids)) == 30
        assert run("enqueue", "--jsonl", "-", stdin=file.read_text()).stdout == "30 jobs enqueued.\n"
        assert run("enqueue", "--jsonl", "-", stdin=file.read_text().splitlines()[0]).stdout == "1 job enqueued.\n"

    def test_jobs_that_existed_already_are_counted_apart(self, run: Run, tmp_path: Path) -> None:
        lines = [{"kind": "hook", "request": {"source": SOURCE}, "idempotency_key": f"k{n}"} for n in range(18)]
        text = "\n".join(json.dumps(line) for line in lines)
        run("enqueue", "--jsonl", "-", stdin="\n".join(text.splitlines()[:15]))
        document = json.loads(run("enqueue", "--jsonl", "-", "--json", stdin=text).stdout)
        assert (len(document["ids"]), document["created"], document["existing"]) == (18, 3, 15)
        assert run("enqueue", "--jsonl", "-", stdin=text).stdout == "0 jobs enqueued; 18 already existed.\n"

    def test_a_conflict_in_a_file_names_its_line(self, run: Run, tmp_path: Path) -> None:
        held = enqueue(run, "--key", "k")
        good = {"kind": "hook", "request": {"source": SOURCE}, "idempotency_key": "mine"}
        file = tmp_path / "jobs.jsonl"
        file.write_text("\n\n".join(json.dumps(good | change) for change in ({}, {"idempotency_key": "k"})))
        said = "already belongs to a different request, that of"
        refused = one_line(run("enqueue", "--jsonl", file, exit_code=1))
        assert refused == f"{file}:3: idempotency key 'k' {said} job {held}"
        file.write_text("\n\n".join(json.dumps(good | change) for change in ({}, {"request": {"source": "b"}})))
        refused = one_line(run("enqueue", "--jsonl", file, exit_code=1))
        assert refused == f"{file}:3: idempotency key 'mine' {said} {file}:1"

    def test_an_option_of_a_line_is_checked_by_the_producer_and_names_the_line(self, run: Run) -> None:
        line = {"kind": "hook", "request": {"source": SOURCE}, "max_attempts": 0}
        text = json.dumps({**line, "max_attempts": 1}) + "\n\n" + json.dumps(line)
        refused = one_line(run("enqueue", "--jsonl", "-", stdin=text, exit_code=1))
        assert refused == "standard input:3: max_attempts: 0 is not a whole number from 1 to 32767"

    def test_a_job_that_existed_is_said_so_on_stderr(self, run: Run) -> None:
        first = run("enqueue", "hook", "--source", SOURCE, "--key", "k")
        again = run("enqueue", "hook", "--source", SOURCE, "--key", "k")
        assert (again.stdout, first.stderr) == (first.stdout, "")
        assert one_line(again) == "a job with this idempotency key already existed; nothing was enqueued"
        shown = [json.loads(run("enqueue", "hook", "--source", "b", "--key", "b", "--json").stdout) for _ in range(2)]
        assert [document["existed"] for document in shown] == [False, True]

    def test_a_limit_of_attempts(self, run: Run) -> None:
        shown = json.loads(run("jobs", "show", enqueue(run, "--max-attempts", 7), "--json").stdout)
        assert shown["max_attempts"] == 7
        run("enqueue", "hook", "--source", SOURCE, "--max-attempts", 0, exit_code=2)

    def test_an_unknown_kind_lists_those_there_are(self, run: Run) -> None:
        refused = run("enqueue", "haiku", "--source", SOURCE, exit_code=2)
        assert "no kind 'haiku'; available: hook, report_section, translation, trend_summary" in refused.stderr

    @pytest.mark.parametrize("heading", ['The "new" normal', "#1: why", "Up 🎉"])
    def test_a_heading_may_have_any_characters(self, run: Run, heading: str) -> None:
        job_id = run("enqueue", "report_section", "--source", SOURCE, "--heading", heading).stdout.strip()
        assert json.loads(run("jobs", "show", job_id, "--json").stdout)["request"]["heading"] == heading

    def test_no_regular_expression_is_shown(self, run: Run) -> None:
        refused = one_line(run("enqueue", "report_section", "--source", SOURCE, "--heading", "a\nb", exit_code=1))
        assert refused == "heading: must be one line of text, without control characters"

    def test_a_misspelt_variable_is_named_once(self, run: Run, settings: Settings) -> None:
        environment = os.environ | {"THOTHY_WORKER_INFLIGHT": "9"}
        command = [sys.executable, "-m", "thothy_ai.cli", "enqueue", "hook", "--source", SOURCE]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        meant = "did you mean THOTHY_WORKER_IN_FLIGHT?"
        assert done.stderr == f"thothy: THOTHY_WORKER_INFLIGHT is not a setting; {meant}\n"

    @pytest.mark.parametrize(
        ("line", "words"),
        [
            ("{nonsense", "is not JSON"),
            ("[1]", "is not a JSON object"),
            ('{"kind": "poem", "request": {}}', "unknown kind 'poem'"),
            ('{"kind": "hook"}', "request: is missing"),
            ('{"kind": "hook", "request": {"source": 7}}', "source: must be text"),
            ('{"kind": "hook", "request": 7}', "request: must be an object"),
            ('{"kind": "hook", "request": {"source": "a b", "tonne": "dry"}}', "tonne: is not a known field"),
            ('{"kind": "hook", "request": {"source": "a b"}, "prio": 3}', "prio: is not a known key"),
            ('{"kind": "hook", "request": {"source": "a b"}, "priority": "high"}', "priority: 'high'"),
            ('{"kind": "hook", "request": {"source": "a b"}, "deadline": "soon"}', "deadline: 'soon' is neither"),
            ('{"kind": "hook", "request": {"source": "a\\u0000b"}}', "source: contains a NUL"),
            ('{"kind": "hook", "request": {"source": "\\ud800"}}', "source: contains a lone surrogate"),
            (b'{"kind": "\xff"}', "is not UTF-8"),
            ("[" * 200_000, "is not JSON"),
        ],
    )  # fmt: skip
    def test_a_bad_line_is_named_and_nothing_is_enqueued(
        self, run: Run, tmp_path: Path, line: str | bytes, words: str
    ) -> None:
        good = json.dumps({"kind": "hook", "request": {"source": SOURCE}}).encode()
        bad = line if isinstance(line, bytes) else line.encode()
        file = tmp_path / "jobs.jsonl"
        file.write_bytes(b"\n".join([good, bad, good]))
        message = one_line(run("enqueue", "--jsonl", file, exit_code=1))
        assert message.startswith(f"{file}:2: ")
        assert words in message
        assert run("jobs", "list").stdout == "No jobs.\n"

    def test_a_file_that_is_not_there(self, run: Run) -> None:
        assert "No such file" in run("enqueue", "--jsonl", "/nowhere.jsonl", exit_code=2).output


class TestJobs:
    def test_list_filters(self, run: Run, engine: Engine) -> None:
        first, second = enqueue(run), enqueue(run)
        end(engine, first, "dead", reason="repetition")
        assert [job["id"] for job in json.loads(run("jobs", "list", "--json").stdout)] == [str(second), str(first)]
        dead = json.loads(
            run("jobs", "list", "--state", "dead", "--kind", "trend_summary", "--since", "1h", "--json").stdout
        )
        assert [(job["id"], job["reason"]) for job in dead] == [(str(first), "repetition")]
        assert json.loads(run("jobs", "list", "--kind", "hook", "--json").stdout) == []
        table = run("jobs", "list").stdout
        assert str(first) in table
        assert "repetition" in table

    def test_show_prints_attempts_artifacts_and_events(self, run: Run, engine: Engine) -> None:
        job_id = enqueue(run)
        now = datetime.now(UTC)
        with engine.begin() as connection:
            fixed = {"tenant": "default", "kind": "trend_summary", "worker": "w@1", "started_at": now}
            outcome = {"outcome": "rejected", "reason": "repetition", "detail": "'and and'"}
            connection.execute(insert(Attempt), {"job_id": job_id, "attempt": 1, **fixed, **outcome})
        add_artifact(engine, job_id, reason="repetition")
        run("jobs", "cancel", job_id)
        shown = run("jobs", "show", job_id).stdout
        for words in ("w@1", "repetition", "raw text", "cancelled", SOURCE[:30]):
            assert words in shown
        document = json.loads(run("jobs", "show", job_id, "--json").stdout)
        assert [len(document[part]) for part in ("attempts", "artifacts", "events")] == [1, 1, 1]

    def test_show_of_an_unknown_job(self, run: Run) -> None:
        missing = uuid4()
        assert one_line(run("jobs", "show", missing, exit_code=1)) == f"no job with id {missing}"

    def test_retry_keeps_history_and_resets_failures(self, run: Run, engine: Engine) -> None:
        job_id = enqueue(run)
        past = datetime.now(UTC) - timedelta(hours=1)
        end(engine, job_id, "expired", attempt=3, failures=3, engine_deaths=2, deadline=past)
        assert "1 of 1 jobs queued again" in run("jobs", "retry", job_id).stdout
        shown = json.loads(run("jobs", "show", job_id, "--json").stdout)
        kept = {
            name: shown[name] for name in ("state", "attempt", "failures", "engine_deaths", "deadline", "finished_at")
        }
        assert kept == {
            "state": "queued",
            "attempt": 3,
            "failures": 0,
            "engine_deaths": 0,
            "deadline": None,
            "finished_at": None,
        }
        assert [event["event"] for event in shown["events"]] == ["redriven"]

    def test_retry_by_state_kind_and_reason(self, run: Run, engine: Engine) -> None:
        lost, rejected = enqueue(run), enqueue(run)
        end(engine, lost, "dead", reason="lease_lost")
        end(engine, rejected, "dead", reason="repetition")
        run("jobs", "retry", "--state", "dead", "--kind", "trend_summary", "--reason", "lease_lost", "--deadline", "1h")
        assert (state_of(run, lost), state_of(run, rejected)) == ("queued", "dead")

    def test_jobs_that_cannot_be_retried_are_reported(self, run: Run, engine: Engine) -> None:
        done = enqueue(run)
        end(engine, done, "succeeded")
        assert "its state is succeeded" in one_line(run("jobs", "retry", done, exit_code=1))
        assert "no such job" in one_line(run("jobs", "retry", uuid4(), exit_code=1))

    def test_cancel(self, run: Run) -> None:
        job_id = enqueue(run)
        assert "1 of 1 jobs cancelled" in run("jobs", "cancel", job_id).stdout
        assert state_of(run, job_id) == "cancelled"
        assert "its state is cancelled" in one_line(run("jobs", "cancel", job_id, exit_code=1))

    def test_more_jobs_than_a_statement_has_parameters(self, run: Run, engine: Engine) -> None:
        with engine.begin() as connection:
            connection.execute(text(MANY_DEAD))
        assert "70000 of 70000 jobs queued again." in run("jobs", "retry", "--state", "dead").stdout


class TestArtifacts:
    def test_list_and_show(self, run: Run, engine: Engine) -> None:
        job_id = enqueue(run)
        missing = one_line(run("artifacts", "show", job_id, exit_code=1))
        assert f"job {job_id} has no artifact: its state is queued" in missing
        add_artifact(engine, job_id)
        add_artifact(engine, job_id, locale="de", reason="wrong_language")
        assert len(json.loads(run("artifacts", "list", "--json").stdout)) == 2
        rejected = json.loads(run("artifacts", "list", "--verdict", "rejected", "--json").stdout)
        assert [artifact["reason"] for artifact in rejected] == ["wrong_language"]
        assert "à la mode" in run("artifacts", "show", job_id).stdout

    def test_model_output_cannot_control_the_terminal(self, run: Run, engine: Engine) -> None:
        job_id = enqueue(run)
        add_artifact(engine, job_id, reason="repetition")
        with engine.begin() as connection:
            connection.execute(update(Artifact).values(body=None, text="a\x1b]0;owned\x07\n\tb\x9b2J"))
        assert "a\ufffd]0;owned\ufffd\n\tb\ufffd2J" in run("artifacts", "show", job_id).stdout
        for command in (("artifacts", "list"), ("jobs", "show", job_id)):
            assert not set("\x1b\x07\x9b") & set(run(*command).stdout)

    def test_export_to_a_folder_and_to_jsonl(self, run: Run, engine: Engine, tmp_path: Path) -> None:
        jobs = [enqueue(run) for _ in range(3)]
        for job_id in jobs:
            add_artifact(engine, job_id)
        add_artifact(engine, jobs[0], locale="../../etc/passwd", reason="wrong_language")
        run("artifacts", "export", tmp_path / "out")
        files = sorted((tmp_path / "out").iterdir())
        assert {json.loads(file.read_text())["job_id"] for file in files} == {str(job_id) for job_id in jobs}
        run("artifacts", "export", tmp_path / "all.jsonl")
        assert len((tmp_path / "all.jsonl").read_text().splitlines()) == 3
        run("artifacts", "export", tmp_path / "bad", "--verdict", "rejected")
        (bad,) = (tmp_path / "bad").iterdir()
        assert bad.name.startswith("trend_summary._.._etc_passwd.") or "etc_passwd" in bad.name
        assert not any(part == ".." for part in bad.relative_to(tmp_path).parts)

    def test_export_to_an_unwritable_path(self, run: Run, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        assert "cannot write" in one_line(run("artifacts", "export", tmp_path / "file" / "deeper", exit_code=1))

    @pytest.mark.parametrize("locale", ["..", "/", "a/../../b", "x" * 400, "", "de\x00", "日本"])
    def test_file_names_stay_in_their_folder(self, locale: str) -> None:
        name = file_name({"kind": "../k", "locale": locale, "job_id": uuid4(), "attempt": 2})
        assert "/" not in name
        assert not name.startswith(".")
        assert name.isascii()
        assert len(name) < 255


class TestQueue:
    def test_pause_status_resume(self, run: Run) -> None:
        assert "The queue is empty" in run("queue", "status").stdout
        enqueue(run, "--deadline", "30m")
        enqueue(run, "--not-before", "2h")
        run("queue", "pause", "--note", "GPU maintenance")
        status = json.loads(run("queue", "status", "--json").stdout)
        assert (status["paused"], status["note"], status["open"]) == (True, "GPU maintenance", 2)
        assert (status["states"]["queued"]["due_1h"], status["states"]["queued"]["delayed"]) == (1, 1)
        assert "GPU maintenance" in run("queue", "status").stdout
        run("queue", "resume")
        assert json.loads(run("queue", "status", "--json").stdout)["paused"] is False


class TestDrainAndReport:
    def test_an_empty_queue_is_drained_immediately(self, run: Run) -> None:
        assert "jobs per compute-hour" in run("drain").stdout

    def test_drain_times_out_and_reports_open_jobs(self, run: Run) -> None:
        enqueue(run)
        done = run("drain", "--timeout", "1s", "--json", exit_code=1)
        assert json.loads(done.stdout)["total"]["jobs"]["queued"] == 1
        assert "1 jobs are still open after 1.0 s" in done.stderr

    def test_report(self, run: Run, engine: Engine) -> None:
        end(engine, enqueue(run), "succeeded")
        report = json.loads(run("report", "--since", "2h", "--json").stdout)
        assert report["kinds"]["trend_summary"]["jobs"]["succeeded"] == 1
        assert "trend_summary" in run("report").stdout
        assert "later than --since" in run("report", "--since", "1h", "--until", "2h", exit_code=2).output


class TestDatabase:
    def test_migrate_twice(self, run: Run, empty_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("THOTHY_DATABASE_URL", empty_database)
        for command in (["jobs", "list"], ["report"], ["queue", "status"]):
            assert "run `thothy migrate`" in one_line(run(*command, exit_code=1))
        assert "is at revision" in run("migrate").stdout
        assert "is at revision" in run("migrate").stdout
        assert run("jobs", "list").stdout == "No jobs.\n"

    @pytest.mark.parametrize(
        "command", [["jobs", "list"], ["enqueue", "hook", "--source", SOURCE], ["migrate"], ["drain"]]
    )
    def test_an_unreachable_postgres_is_named(
        self, run: Run, monkeypatch: pytest.MonkeyPatch, command: list[str]
    ) -> None:
        monkeypatch.setenv("THOTHY_DATABASE_URL", "postgresql+psycopg://u:sesame@127.0.0.1:9/db")
        message = one_line(run(*command, exit_code=1))
        assert message.startswith("Postgres cannot be reached at 127.0.0.1:9")
        assert "sesame" not in message

    def test_a_failing_statement_is_reported_in_one_line(self, run: Run, engine: Engine) -> None:
        with engine.begin() as connection:
            connection.execute(text("ALTER TABLE artifact RENAME TO damaged"))
            connection.execute(text("CREATE VIEW artifact AS SELECT *, 1 / 0 AS broken FROM damaged WHERE 1 / 0 = 1"))
        assert "refused a statement" in one_line(run("artifacts", "list", exit_code=1))


def test_as_a_program(settings: Settings) -> None:
    environment = {
        **os.environ,
        "THOTHY_DATABASE_URL": settings.require_database_url(),
        "THOTHY_HOME": str(settings.home),
    }
    command = [sys.executable, "-m", "thothy_ai.cli"]
    done = subprocess.run([*command, "queue", "status"], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "The queue is empty.\n", "")
    broken = {**environment, "THOTHY_DATABASE_URL": "mysql://x:sesame@y/z"}
    done = subprocess.run([*command, "jobs", "list"], env=broken, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("thothy: THOTHY_DATABASE_URL: must look like postgresql+psycopg://")
    assert "sesame" not in done.stderr


class TestOldSchema:
    """On a database that was not migrated, every entry point reports that in one line."""

    @pytest.fixture(autouse=True)
    def _unmigrated(self, run: Run, empty_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("THOTHY_DATABASE_URL", empty_database)
        monkeypatch.setenv("THOTHY_ENGINE_URL", "unix:///nowhere/engine.sock")

    @pytest.mark.parametrize("service", ["worker", "dispatcher", "reaper"])
    def test_a_service_does_not_start(self, service: str) -> None:
        command = [sys.executable, "-m", "thothy_ai.cli", service]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        assert "run `thothy migrate`" in done.stderr.splitlines()[-1]

    def test_enqueue_says_what_to_do(self, run: Run) -> None:
        done = run("enqueue", "trend_summary", "--source", SOURCE, exit_code=1)
        assert "run `thothy migrate`" in one_line(done)

    def test_a_producer_raises_it(self) -> None:
        with Producer.from_env() as producer, pytest.raises(MigrationsBehindError):
            producer.enqueue(TrendSummary(source=SOURCE))
