"""Measures how Postgres runs the frequent statements on a full queue, for `python -m benchmarks.backlog --plans`.

Every statement is executed (EXPLAIN ANALYZE) in a transaction that is rolled back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from uuid import UUID

from sqlalchemy import Connection, Engine, text

from benchmarks.results import record
from benchmarks.stand_in import ENGINE, IN_FLIGHT, WORKER, finish_row
from thothy_ai.db.statements import statement
from thothy_ai.queue.dispatcher import BY_INDEX

LONG_LIST = re.compile(r"\{[0-9a-f-]{36}(?:,[0-9a-f-]{36}){3,}\}")
EXECUTION = re.compile(r"^Execution Time: (.*)$", re.MULTILINE)
NEXT = {"models": [], "teams": [], "limits": [], "floors": []}  # jobs that name no model
RETRY = {"retry_base_seconds": 2, "retry_cap_seconds": 300}


def record_plans(engine: Engine) -> None:
    """Run each statement once, on the state that the previous one left; print the plans and record the times."""
    times: list[tuple[str, str]] = []
    with engine.connect() as connection:
        for order in BY_INDEX:  # the session settings of the dispatcher
            connection.execute(text(order))
        _start_some(connection)
        for name, what, plan in _plans(connection):
            print(f"\n{name}: {what}\n\n{plan}", flush=True)
            times += [(f"`{name}`", time) for time in EXECUTION.findall(plan)]
        connection.rollback()
    times.sort(key=lambda each: -float(each[1].split()[0]))
    record("Hot statements on a million queued jobs", "Queue", "python -m benchmarks.backlog --plans", times)


def _plans(connection: Connection) -> Iterator[tuple[str, str, str]]:
    def explained(name: str, what: str, **parameters: object) -> tuple[str, str, str]:
        return name, what, _explain(connection, name, parameters)

    yield explained("queue/admit_delayed", "No delayed job has become due.", limit=5000)
    yield explained("queue/engines", "Which engines are known.", worker_seconds=22)
    yield explained(
        "queue/due", "The next jobs, twice as many as are running.", any_limit=2 * IN_FLIGHT, models=["m"], teams=[0],
        limits=[64], floors=[None],
    )  # fmt: skip
    ids = _next(connection, 2 * IN_FLIGHT)
    yield explained("queue/dispatch", "Dispatches them to one of several engines.", ids=ids, engine=ENGINE)
    yield explained(
        "queue/dispatch_next", "Both at once, where there is one engine.", **NEXT, any_limit=2 * IN_FLIGHT,
        engine=ENGINE, lowest=None, places=2 * IN_FLIGHT, urgent_places=0,
    )  # fmt: skip
    connection.execute(text("RESET enable_seqscan; RESET enable_bitmapscan"))  # only the dispatcher sets them
    hints = connection.execute(
        text("SELECT id, dispatch_no FROM job WHERE state = 'dispatched' LIMIT :n"), {"n": IN_FLIGHT}
    ).all()
    ids, numbers = [row.id for row in hints], [row.dispatch_no for row in hints]
    yield explained(
        "worker/claim", f"{IN_FLIGHT} jobs at once.", ids=ids, dispatch_nos=numbers, worker=WORKER, lease_seconds=60,
        engine_session_id=None, model_name="",
    )  # fmt: skip
    claimed = connection.execute(text("SELECT id, attempt FROM job WHERE worker = :worker"), {"worker": WORKER}).all()
    yield explained(
        "worker/heartbeat", f"{len(claimed)} leases.", ids=[row.id for row in claimed],
        attempts=[row.attempt for row in claimed], worker=WORKER, lease_seconds=60,
    )  # fmt: skip
    rows = json.dumps([finish_row(row.id, row.attempt) for row in claimed[:IN_FLIGHT]])
    yield explained("worker/finish", f"{IN_FLIGHT} jobs at once.", rows=rows, worker=WORKER)
    yield explained("queue/reap_leases", "No lease has expired.", **RETRY)
    yield explained("queue/unclaimed_dispatches", "No dispatched job has stayed unclaimed.", timeout_seconds=15)
    yield explained("queue/reap_expired", "No deadline has passed.", limit=5000)
    yield explained("queue/recall_lost", "No engine is lost.", worker_seconds=22)
    yield explained("queue/reap_lost", "No machine is lost.", lease_seconds=60, worker_seconds=15)
    yield explained("queue/unserved", "No job names a model.", limit=100_000, names=200)
    yield explained(
        "worker/claim_quarantined", "No job is in quarantine.", ids=[], dispatch_nos=[], worker=WORKER,
        lease_seconds=60, engine_session_id=None, model_name="", once=128, twice=16, lone=16,
    )  # fmt: skip
    yield explained("queue/drain_state", "Whether a drain is over: jobs are open.", empty_at=None, absence_seconds=60)
    yield explained("queue/end_batches", "No batch is waited for.", limit=100)
    yield explained("queue/status", "Used by the metrics and by `thothy queue status`; counts all open jobs.")
    yield explained("forecast/waiting", "The forecast's view of all waiting jobs.")
    yield explained("forecast/running", "Those that run.")
    yield explained("forecast/engines", "No engine is known.")
    now = connection.scalar(text("SELECT now()"))
    recent = {"since": now - timedelta(seconds=10), "until": now}
    yield explained("forecast/attempts", "The attempts of the last ten seconds.", **recent)
    yield explained("forecast/finished", "The jobs that have ended in the last ten seconds.", **recent)


def _start_some(connection: Connection) -> None:
    """Start `IN_FLIGHT` jobs, so that the dispatcher may dispatch as many again."""
    dispatched = {"ids": _next(connection, IN_FLIGHT), "engine": ENGINE}
    hints = connection.execute(statement("queue/dispatch"), dispatched).all()
    ids, numbers = [row.id for row in hints], [row.dispatch_no for row in hints]
    taking = {"worker": WORKER, "lease_seconds": 60, "engine_session_id": None, "model_name": ""}
    connection.execute(statement("worker/claim"), {"ids": ids, "dispatch_nos": numbers, **taking})


def _next(connection: Connection, jobs: int) -> list[UUID]:
    return [row.id for row in connection.execute(statement("queue/due"), NEXT | {"any_limit": jobs})]


def _explain(connection: Connection, name: str, parameters: Mapping[str, object]) -> str:
    explained = text("EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF, SUMMARY ON) " + statement(name).text)
    lines = connection.execute(explained, parameters).scalars()
    return "\n".join(LONG_LIST.sub(_counted, line.rstrip()) for line in lines)


def _counted(ids: re.Match[str]) -> str:
    return f"{{… {ids[0].count(',') + 1:,} ids}}"
