"""Housekeeping rules fail one by one: what holds up or breaks one of them leaves the others and the lead alone."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Connection, text

from tests.integration.queue.test_reaper import reaping, run_away
from tests.support.queue_bench import Queue, eventually
from thothy_ai.db.statements import statement
from thothy_ai.queue.metrics import RULE_AGE, RULE_FAILURES
from thothy_ai.queue.reaper import Reaper
from thothy_ai.queue.rules import Rule

LEASE = 4.0


@contextmanager
def locked(queue: Queue, table: str, mode: str) -> Iterator[Connection]:
    """Another session's transaction has a lock on this table."""
    with queue.engine.connect() as other, other.begin():
        other.execute(text(f"LOCK TABLE {table} IN {mode} MODE"))
        yield other


def failures(rule: str) -> float:
    return RULE_FAILURES.labels(rule)._value.get()


def failed(rule: str, before: float) -> bool:
    return failures(rule) > before


def test_partitions_that_wait_behind_a_backup_do_not_stop_the_recovery_of_leases(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "thothy_ai.queue.leader")
    [newest] = queue.rows(
        "SELECT max(inhrelid::regclass::text) FROM pg_inherits WHERE inhparent = 'attempt'::regclass"
        " AND inhrelid <> 'attempt_default'::regclass"
    )
    queue.rows(f"DROP TABLE {newest[0]}")
    [lost] = queue.enqueue("ok")
    run_away(queue, lost)
    before = failures("partitions")
    with reaping(queue) as reaper:
        with locked(queue, "attempt_default", "ACCESS SHARE"):  # as pg_dump's, for as long as it takes
            eventually(lambda: failed("partitions", before))
            eventually(lambda: queue.job(lost).state == "queued")
            assert reaper._leader.leads
        eventually(lambda: queue.rows("SELECT to_regclass(:name)", name=newest[0])[0][0])
    assert [record.getMessage() for record in caplog.records if "now leading" in record.getMessage()] == [
        "reaper: now leading"
    ]
    assert any("rule partitions failed" in record.getMessage() for record in caplog.records)


def test_a_locked_table_holds_up_the_rule_that_needs_it(queue: Queue) -> None:
    [late] = queue.enqueue("ok", deadline=datetime.now(UTC) + timedelta(hours=1))
    [lost] = queue.enqueue("ok 2")
    before = failures("usage")
    with locked(queue, "usage_progress", "ACCESS EXCLUSIVE"), reaping(queue):
        eventually(lambda: failed("usage", before))
        queue.rows("UPDATE job SET deadline = now() WHERE id = :id", id=late)
        eventually(lambda: queue.job(late).state == "expired")
        run_away(queue, lost)
        eventually(lambda: queue.job(lost).state == "queued")
        ages = {sample.labels["rule"]: sample.value for sample in next(iter(RULE_AGE.collect())).samples}
        assert ages["usage"] > ages["leases"]


def test_a_lock_on_the_jobs_keeps_leases_that_nobody_could_extend(queue: Queue) -> None:
    [job_id] = queue.enqueue("ok")
    with reaping(queue, lease_seconds=LEASE) as reaper:
        eventually(lambda: reaper._leader.led_seconds > LEASE)
        [hint] = queue.dispatch()
        before = failures("leases")
        with locked(queue, "job", "SHARE") as other:  # reading goes on
            claimed = {"ids": [job_id], "dispatch_nos": [hint.dispatch_no], "worker": "gone", "lease_seconds": -1}
            other.execute(statement("worker/claim"), claimed | {"engine_session_id": None, "model_name": ""})
            blocked_at = time.monotonic()
            eventually(lambda: failed("leases", before))
        eventually(lambda: queue.job(job_id).state == "queued")
    assert time.monotonic() - blocked_at > LEASE  # an unlocked one is taken a second after its lock


def test_a_bug_in_a_rule_is_logged_with_its_traceback_and_the_others_run(
    queue: Queue, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: Reaper, why: str, name: str) -> None:
        raise KeyError("a bug", why, name)

    monkeypatch.setattr(Reaper, "_end", broken)  # of the rules `expired` and `cancelled`
    [lost] = queue.enqueue("ok")
    run_away(queue, lost)
    before = failures("expired")
    with reaping(queue):
        eventually(lambda: queue.job(lost).state == "queued")
    assert failed("expired", before)
    [first, *_] = [record for record in caplog.records if "rule expired failed" in record.getMessage()]
    assert first.exc_info


def test_a_lost_connection_ends_the_lead_and_another_begins(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "thothy_ai.queue.leader")
    with reaping(queue) as reaper:
        eventually(lambda: reaper._leader.leads)
        queue.rows("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'thothy-reaper'")
        eventually(lambda: sum("now leading" in record.getMessage() for record in caplog.records) > 1)


def test_a_rule_that_keeps_failing_is_tried_less_often_but_within_its_own_interval() -> None:
    often, hourly = Rule("often", 0.0, lambda: None), Rule("hourly", 3600.0, lambda: None)
    assert [often.pause(count) for count in (1, 2, 1000)] == [1.0, 1.0, 1.0]
    assert [hourly.pause(count) for count in (1, 2, 3, 1000)] == [1.0, 2.0, 4.0, 600.0]
