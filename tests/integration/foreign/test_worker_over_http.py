"""A worker whose engine is a server over HTTP: jobs, sessions, seconds and reports, as with an engine of ours."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support.answering_backend import AnsweringBackend
from tests.support.door import door
from tests.support.queue_bench import Queue, eventually, runner_bench
from thothy_ai.admin.jobs import show_job
from thothy_ai.admin.report.check import check_bill
from thothy_ai.admin.report.drain_report import drain_report
from thothy_ai.cli.views.report import report_lines
from thothy_ai.engine.api import GenerationRequest
from thothy_ai.foreign import connect, declared_by
from thothy_ai.queue.books import settle_sessions


def echo(request: GenerationRequest) -> list[str]:
    if "zq7" in (request.schema or ""):
        return ['{"word": "zq7"}']
    return [f'{{"echo": "{request.messages[0].content}"}}' if request.messages else "x"]


def test_jobs_through_our_door_are_billed_as_declared(queue: Queue, tmp_path: Path) -> None:
    began = datetime.now(UTC) - timedelta(minutes=1)
    with door(AnsweringBackend(echo), tmp_path) as address:
        changes: dict[str, Any] = {"engine_url": f"{address}/v1", "engine_gpus": 2, "engine_name": "far"}
        settings = queue.settings.model_copy(update=changes)
        engine = connect(f"{address}/v1", None, declared_by(settings))
        with runner_bench(queue, cast("Any", engine), **changes) as bench:
            eventually(lambda: queue.rows("SELECT 1 FROM engine_session WHERE state = 'ready'"))
            ids = bench.work(*(f"ok {number}" for number in range(20)), "retry me")
            bench.settle()
    assert [queue.job(job_id).state for job_id in ids] == ["succeeded"] * 20 + ["dead"]

    [session] = queue.rows("SELECT * FROM engine_session")
    assert (session.engine_name, session.model_name, session.gpus, session.declared) == ("far", "answering", 2, True)
    assert (session.state, session.end_reason, session.address) == ("ended", "stopped", f"{address}/v1")
    billed = queue.rows("SELECT sum(compute_seconds) FROM attempt")[0][0]
    assert 0 < billed == pytest.approx(session.busy_seconds)
    assert session.direct_seconds == 0

    with queue.engine.begin() as connection:
        settle_sessions(connection)
    until = datetime.now(UTC) + timedelta(minutes=1)
    assert check_bill(queue.engine, began, until).findings == ()
    report = drain_report(queue.engine, began, until)
    where = f"answering on 2 declared GPUs at {address.removeprefix('http://')}"
    assert report.bill.declared == (where,)
    assert report.to_json()["engines"][0]["declared"] is True
    text = "\n".join(report_lines(report, 200))
    assert f"Declared, not measured; divided among jobs by their tokens:\n  {where}" in text
    cost = show_job(queue.engine, ids[0])["cost"]
    assert (cost.declared, cost.unit) == (True, "GPU-second")
