"""`thothy doctor` on real servers: what is wrong is named, together with how to fix it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4

import pytest
from pydantic import SecretStr
from sqlalchemy import make_url, text
from typer.testing import CliRunner

from tests.support.command_line import environment_of
from tests.support.command_terminal import lines_on_terminal
from tests.support.engine_rows import register
from tests.support.home import THOTHY
from tests.support.next_revision import next_revision
from tests.support.queue_bench import Queue, eventually
from thothy_ai.admin.doctor import CHECKS, Diagnosis, Level, examine
from thothy_ai.admin.model_aliases import set_alias
from thothy_ai.cli import app
from thothy_ai.db.connect import make_engine
from thothy_ai.db.revisions import code_revision
from thothy_ai.db.roles import create_role, drop_role
from thothy_ai.errors import ConfigError
from thothy_ai.queue.control import set_paused
from thothy_ai.queue.pauses import pause_part
from thothy_ai.settings import Settings

Look = Callable[..., list[Diagnosis]]


@pytest.fixture
def look(settings: Settings) -> Look:
    def look(*only: str, **changed: object) -> list[Diagnosis]:
        return examine(lambda: settings.model_copy(update=changed), only)

    return look


def only_wrong(findings: list[Diagnosis]) -> Diagnosis:
    (wrong,) = [finding for finding in findings if finding.level is Level.WRONG]
    assert wrong.fix
    return wrong


def test_what_is_healthy_is_ok(look: Look) -> None:
    findings = look("settings", "postgres", "schema", "redis", "celery", "queue", "webhooks")
    assert {finding.level for finding in findings} == {Level.OK}, findings
    names = {"settings", "postgres", "schema", "redis", "celery", "queue", "webhooks"}
    assert {finding.check for finding in findings} == names


@pytest.mark.parametrize("name", ["dispatcher", "reaper", "worker"])
def test_missing_processes(look: Look, name: str) -> None:
    assert only_wrong(look(name)).fix == f"start it: `thothy {name}`"


def test_a_leader_is_distinguished_from_a_standby(look: Look, settings: Settings) -> None:
    """The leader holds an advisory lock on the connection that it works on."""
    engine = make_engine(settings, application="reaper", pool_size=1)
    with engine.connect() as connection:
        connection.execute(text("SELECT 1"))
        assert "none leads" in only_wrong(look("reaper")).says
        connection.execute(text("SELECT pg_advisory_lock(hashtext('reaper'))"))
        assert [finding.level for finding in look("reaper")] == [Level.OK]
        assert only_wrong(look("dispatcher")).says == "no dispatcher is connected to Postgres"
    engine.dispose()  # its process in Postgres takes a moment to end
    eventually(lambda: only_wrong(look("reaper")).says == "no reaper is connected to Postgres")


@pytest.mark.parametrize("check", ["postgres", "schema", "dispatcher", "queue"])
def test_an_unreachable_postgres(look: Look, check: str) -> None:
    wrong = only_wrong(look(check, database_url=SecretStr("postgresql+psycopg://u:sesame@127.0.0.1:9/db")))
    assert wrong.says == "Postgres cannot be reached at 127.0.0.1:9: Connection refused"


@pytest.mark.parametrize(("free", "level"), [(1 << 29, Level.WARNING), (1 << 20, Level.WRONG)])
def test_little_room_on_the_disk_of_the_home(
    look: Look, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, level: Level
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=free))
    room, fine = look("postgres", home=tmp_path)
    assert (room.level, fine.level) == (level, Level.OK)
    assert f"the disk of {tmp_path} has only {free / 1e6:,.0f} MB left" == room.says


def test_a_database_without_a_schema(look: Look, empty_database: str) -> None:
    assert "thothy migrate" in str(only_wrong(look("schema", database_url=SecretStr(empty_database))).fix)


def test_a_database_role_without_rights_is_not_told_to_migrate(look: Look, settings: Settings) -> None:
    engine = make_engine(settings, application="test")
    role = create_role(engine, f"acme_{uuid4().hex[:8]}", "acme")
    url = make_url(settings.require_database_url()).set(username=role.name, password=role.password)
    try:
        wrong = only_wrong(look("schema", database_url=SecretStr(url.render_as_string(hide_password=False))))
    finally:
        drop_role(engine, role.name)
        engine.dispose()
    assert "alembic_version" in wrong.says
    assert str(wrong.fix).startswith("run the service as the owner of the tables")


def test_redis_unreachable_or_refusing(look: Look, settings: Settings) -> None:
    away = only_wrong(look("redis", redis_url=SecretStr("redis://:sesame@127.0.0.1:9/0")))
    assert away.says.startswith("Redis cannot be reached at 127.0.0.1:9")
    right = settings.require_redis_url()
    refused = only_wrong(look("redis", redis_url=SecretStr(f"redis://:sesame@{right.rpartition('@')[2]}")))
    assert "refuses the password" in refused.says
    assert "sesame" not in away.says + refused.says


def test_an_engine_that_is_away(look: Look, tmp_path: Path) -> None:
    wrong = only_wrong(look("engine", engine_url=f"unix://{tmp_path}/engine.sock"))
    assert f"{tmp_path}/engine.sock" in wrong.says
    assert "thothy engine" in str(wrong.fix)
    assert "THOTHY_ENGINE_URL is not set" in only_wrong(look("engine")).says


def test_models(look: Look, tmp_path: Path) -> None:
    (tmp_path / "text.gguf").write_text("not a model")
    (tmp_path / "real.gguf").write_bytes(b"GGUF\x03")
    (tmp_path / "config.json").write_text("{}")
    assert "No such file" in only_wrong(look("model", model=tmp_path / "missing")).says
    assert "not a GGUF file" in only_wrong(look("model", model=tmp_path / "text.gguf")).says
    assert "no *.safetensors" in only_wrong(look("model", model=tmp_path)).says
    assert look("model", model=tmp_path / "real.gguf")[0].level is Level.OK
    assert look("model") == [
        Diagnosis("model", Level.OK, "THOTHY_MODEL is not set here; only the engine's process needs it")
    ]


def test_conflicting_times(look: Look) -> None:
    assert "THOTHY_SHUTDOWN_DEADLINE_SECONDS" in str(only_wrong(look("celery", shutdown_deadline_seconds=300.0)).fix)


def test_a_paused_queue_is_worth_a_warning(look: Look, settings: Settings) -> None:
    engine = make_engine(settings)
    set_paused(engine, paused=True, note="maintenance")
    engine.dispose()
    (warning,) = [finding for finding in look("queue") if finding.level is Level.WARNING]
    assert "maintenance" in warning.says


def test_adapters(look: Look, queue: Queue) -> None:
    register(queue, "a", "base", adapters={"acme": "1", "nova": "1"})
    register(queue, "b", "base", adapters={"acme": "2"})
    set_alias(queue.engine, "nova", "base")
    set_alias(queue.engine, "house", "absent")
    queue.enqueue("ok", model="house")
    pause_part(queue.engine, "model", "acme", by="test")
    findings = look("engines", "queue")
    warned = {each.says: each.fix for each in findings if each.level is Level.WARNING}
    assert [
        fix for says, fix in warned.items() if "different weights as the adapter acme (1 on a; 2 on b)" in says
    ] == ["load the same folder on all of them: `thothy adapters load`"]
    assert "the adapter nova gets no jobs: nova is an alias of base" in warned
    [fix] = [
        fix
        for says, fix in warned.items()
        if says == "1 job waits for house, an alias of absent, which no engine serves"
    ]
    assert "`thothy adapters load absent=FOLDER`" in str(fix)
    assert "model acme is paused by test: none of its jobs is dispatched" in warned
    [ok] = [each.says for each in findings if each.check == "engines" and each.level is Level.OK]
    assert ok == "a (base with 2 adapters) ready, b (base with 1 adapter) ready"


def test_webhooks_that_cannot_be_signed_or_sent(look: Look, settings: Settings) -> None:
    engine = make_engine(settings)

    def warnings(**changed: object) -> list[str]:
        return [finding.says for finding in look("webhooks", **changed) if finding.level is Level.WARNING]

    def change(query: str) -> None:
        with engine.begin() as connection:
            connection.execute(text(query))

    assert [finding.says for finding in look("webhooks")] == ["none was asked for"]
    change("INSERT INTO batch (id, tenant, url, notify, jobs) VALUES (gen_random_uuid(), 't', 'https://h', 'job', 1)")
    assert warnings()[0].startswith("jobs ask for webhooks, and THOTHY_WEBHOOK_SECRETS is not set here")
    assert warnings(webhook_secrets=SecretStr("x" * 24)) == []
    change(
        "INSERT INTO webhook_delivery (batch_id, tenant, url, origin, payload, created_at)"
        " SELECT id, 't', url, url, '{}', now() - interval '2 minutes' FROM batch"
    )
    untried = "1 webhook has waited for over a minute, and nothing has tried to send it"
    assert warnings() == warnings(webhook_secrets=SecretStr("x" * 24)) == [untried]
    change("UPDATE webhook_delivery SET attempts = 9, dead_at = now()")
    assert warnings()[1:] == ["1 webhook could not be delivered"]
    change("UPDATE webhook_delivery SET dead_at = NULL, delivered_at = now()")
    assert warnings() == []  # the reaper has the secret
    engine.dispose()


class TestExpiredLeases:
    """Who is to blame for them depends on the reaper."""

    RUNS = """
        INSERT INTO job (
            id, tenant, kind, source_key, request_digest, max_attempts, state, worker, started_at, lease_until
        )
        SELECT gen_random_uuid(), 't', 'hook', 's', 'd', 3, 'running', 'w', now(), now() - make_interval(secs => :ago)
        FROM generate_series(1, :jobs)
    """

    @pytest.fixture
    def expire(self, settings: Settings) -> Iterator[Callable[[int, float], None]]:
        engine = make_engine(settings)

        def expire(jobs: int, ago: float) -> None:
            with engine.begin() as connection:
                connection.execute(text("DELETE FROM job"))
                connection.execute(text(self.RUNS), {"jobs": jobs, "ago": ago})

        yield expire
        engine.dispose()

    @pytest.fixture
    def leading(self, settings: Settings) -> Iterator[None]:
        """A reaper that leads."""
        engine = make_engine(settings, application="reaper", pool_size=1)
        with engine.connect() as connection:
            connection.execute(text("SELECT pg_advisory_lock(hashtext('reaper'))"))
            yield
        engine.dispose()

    def finding(self, look: Look, **changed: object) -> tuple[str, str | None]:
        (warning,) = [finding for finding in look("queue", **changed) if finding.level is Level.WARNING]
        return warning.says, warning.fix

    def test_without_a_reaper(self, look: Look, expire: Callable[[int, float], None]) -> None:
        expire(1, 5)
        says, fix = self.finding(look)
        assert says == "1 lease has expired: its worker died or hangs, and no reaper takes the jobs back"
        assert fix == "start one: `thothy reaper`"

    @pytest.mark.usefixtures("leading")
    def test_with_a_reaper_that_waits_for_live_workers(self, look: Look, expire: Callable[[int, float], None]) -> None:
        expire(3, 500)
        says, fix = self.finding(look, lease_seconds=900.0)
        assert says.startswith(
            "3 leases have expired: their worker died or hangs, and the reaper, which has just started"
        )
        assert "900 s" in says
        assert str(fix).startswith("wait")

    @pytest.mark.usefixtures("leading")
    def test_with_a_reaper_that_has_led_for_longer(self, look: Look, expire: Callable[[int, float], None]) -> None:
        expire(2, 0.001)
        says, fix = self.finding(look, lease_seconds=0.001, reap_interval_seconds=900.0)
        assert says.endswith("the reaper will soon take the jobs back")
        assert str(fix).startswith("wait")
        expire(2, 500)
        says, fix = self.finding(look, lease_seconds=0.001)
        assert "the reaper has not taken the jobs back for 5" in says
        assert fix == "look at its log, and restart the reaper"


def test_checks_with_one_cause_have_one_finding(look: Look, settings: Settings) -> None:
    findings = look(database_url=SecretStr("postgresql+psycopg://u:sesame@127.0.0.1:9/db"))
    wrong = [finding.check for finding in findings if finding.level is Level.WRONG]
    skipped = {finding.check: finding.says for finding in findings if finding.level is Level.SKIPPED}
    assert wrong == ["postgres", "engine"]
    needing = ("schema", "dispatcher", "reaper", "worker", "engines", "queue", "webhooks")
    assert skipped == dict.fromkeys(needing, "needs postgres")
    assert [finding.check for finding in findings] == list(CHECKS)


def test_a_schema_of_newer_code_is_named_once(look: Look, settings: Settings) -> None:
    engine = make_engine(settings)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    engine.dispose()
    says = f"the database is at revision 9999; this version knows up to {code_revision()}"
    _check_schema_finding(look(), says, "upgrade Thothy AI")


def test_a_schema_of_older_code_is_named_once(look: Look, settings: Settings, tmp_path: Path) -> None:
    with next_revision(tmp_path) as older:
        says = f"the database is at revision {older}; this version requires {code_revision()}"
        _check_schema_finding(look(), says, "run `thothy migrate`")


def _check_schema_finding(findings: Sequence[Diagnosis], says: str, fix: str) -> None:
    [schema] = [finding for finding in findings if finding.check == "schema"]
    assert (schema.level, schema.fix, schema.says) == (Level.WRONG, fix, says)
    skipped = {finding.check: finding.says for finding in findings if finding.level is Level.SKIPPED}
    needing = ("dispatcher", "reaper", "worker", "engines", "queue", "webhooks")
    assert skipped == dict.fromkeys(needing, "needs schema")


def test_without_a_stack_that_is_said_once(tmp_path: Path, clean_environment: None) -> None:
    environment = {"THOTHY_HOME": str(tmp_path / "none")}
    done = CliRunner().invoke(app, ["doctor"], env=environment)
    assert done.exit_code == 1
    first, fix, *_, last = done.stdout.splitlines()
    assert first.startswith("wrong    settings    no stack runs in ")
    assert "`thothy up`" in fix
    assert last == (
        "skipped  postgres, schema, redis, celery, engine, dispatcher, reaper, worker, engines, queue, webhooks:"
        " no stack runs here"
    )
    assert done.stdout.count("wrong") == 1
    found = json.loads(CliRunner().invoke(app, ["doctor", "--json"], env=environment).stdout)
    assert [finding["check"] for finding in found] == list(CHECKS)
    alone = CliRunner().invoke(app, ["doctor", "--only", "postgres"], env=environment)
    assert "THOTHY_DATABASE_URL is not set" in alone.stdout


def test_it_fits_80_columns_and_breaks_no_command(settings: Settings) -> None:
    environment = environment_of(settings) | {"THOTHY_HOME": "/nowhere"}  # a path is not broken, however long
    lines = lines_on_terminal([*THOTHY, "doctor"], environment, exit_code=1)
    assert max(map(len, lines)) <= 80
    assert "`thothy engine --model PATH`" in "\n".join(lines)
    assert [line for line in lines if line.count("`") % 2] == []
    assert sum("fix: start it" in line for line in lines) == 4


def test_settings_that_can_t_be_read() -> None:
    def load() -> Settings:
        raise ConfigError("THOTHY_REDIS_URL: must look like redis://:password@host:port/0")

    (wrong,) = examine(load)
    assert (wrong.check, wrong.level) == ("settings", Level.WRONG)


def test_the_command(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THOTHY_HOME", str(settings.home))
    monkeypatch.setenv("THOTHY_DATABASE_URL", settings.require_database_url())
    monkeypatch.setenv("THOTHY_REDIS_URL", settings.require_redis_url())
    fine = CliRunner().invoke(app, ["doctor", "--only", "postgres", "--only", "redis"])
    assert fine.exit_code == 0, fine.output
    assert settings.require_redis_url().split("@")[0].split(":")[-1] not in fine.output
    whole = CliRunner().invoke(app, ["doctor", "--json"])
    assert whole.exit_code == 1
    findings = json.loads(whole.stdout)
    assert all(set(finding) == {"check", "level", "says", "fix"} for finding in findings)
    assert list(dict.fromkeys(finding["check"] for finding in findings)) == list(CHECKS)
    assert "fix: start it: `thothy worker`" in CliRunner().invoke(app, ["doctor", "--only", "worker"]).output
