"""The bill: hours that are closed and hours that are not say the same; prices, idle time, restated hours, the check."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import Engine, text

from tests.integration.admin.test_report import artifact, attempt, job, session, used
from thothy_ai.admin.report.bill import Bill, Prices
from thothy_ai.admin.report.check import check_bill
from thothy_ai.admin.report.drain_report import AttemptKey, drain_report
from thothy_ai.admin.report.recorded_drains import list_drains
from thothy_ai.admin.report.usage import BilledUsage, read_usage
from thothy_ai.db.statements import statement
from thothy_ai.queue.books import close_hours

HOUR = timedelta(hours=1)
TOP = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - 5 * HOUR
UNTIL = TOP + 4 * HOUR


def at(minutes: float) -> datetime:
    return TOP + timedelta(minutes=minutes)


def model(engine: Engine, box: UUID, name: str) -> None:
    with engine.begin() as connection:
        connection.execute(
            text("UPDATE engine_session SET model_name = :name WHERE id = :id"), {"id": box, "name": name}
        )


@pytest.fixture
def boxes(engine: Engine) -> tuple[UUID, UUID]:
    """Two GPUs with `large` for two hours, one with `small` for one; hooks on both, of which one in three fails."""
    large, small = session(engine, start=at(0), end=at(120), gpus=2), session(engine, start=at(30), end=at(90))
    model(engine, large, "large")
    model(engine, small, "small")
    for number, box in enumerate((large, small, large)):
        for minute in (10, 70, 110):
            outcome = "rejected" if minute == 70 else "succeeded"
            state, reason = ("dead", "x") if minute == 70 else ("succeeded", None)
            one = job(engine, f"k{number % 2}", state, enqueued=at(0), finished=at(minute), reason=reason)
            attempt(engine, one, 1, f"k{number % 2}", outcome, at(minute), reason=reason, **used(box, 10, 5, 3, 60))
            artifact(engine, one, 1, f"k{number % 2}", at(minute), reason)
    with engine.begin() as connection:
        last = "SELECT engine_session_id FROM attempt WHERE job_id = id"
        connection.execute(text(f"UPDATE job SET engine_session_id = ({last})"))
    return large, small


def bill(engine: Engine, prices: Prices | None = None) -> Bill:
    return drain_report(engine, TOP, UNTIL, prices).bill


def settled(engine: Engine, busy: dict[UUID, float]) -> None:
    with engine.begin() as connection:
        for box, seconds in busy.items():
            change = text("UPDATE engine_session SET busy_seconds = :seconds, settled_at = now() WHERE id = :id")
            connection.execute(change, {"id": box, "seconds": seconds})


@pytest.mark.usefixtures("boxes")
class TestBill:
    def test_closed_hours_say_what_open_ones_said(self, engine: Engine) -> None:
        open_ = bill(engine)
        assert open_.total.usage.attempts == 9
        assert close_hours(engine)
        closed = bill(engine)
        assert [(row.hour, row.kind, row.tenant, row.model_name, row.usage) for row in closed.rows] == [
            (row.hour, row.kind, row.tenant, row.model_name, row.usage) for row in open_.rows
        ]
        assert {row.closed_seconds is None for row in closed.rows} == {False}
        assert drain_report(engine, TOP, UNTIL).to_json() == drain_report(engine, TOP, UNTIL).to_json()

    @pytest.mark.parametrize("minutes", [(0, 240), (5, 115), (10, 10.5), (65, 75), (59, 61)])
    def test_windows_may_begin_and_end_amid_an_hour(self, engine: Engine, minutes: tuple[float, float]) -> None:
        def total() -> BilledUsage:
            with engine.connect() as connection:
                rows = read_usage(connection, at(minutes[0]), at(minutes[1]))
                return sum((row.usage for row in rows), BilledUsage())

        before = total()
        close_hours(engine)
        assert total() == before
        assert before.attempts == 3 * sum(minutes[0] <= minute < minutes[1] for minute in (10, 70, 110))

    def test_sums_by_kind_model_tenant_and_hour(self, engine: Engine) -> None:
        close_hours(engine)
        found = bill(engine)
        kinds, models = found.by("kind"), found.by("model")
        assert {kind: line.usage.busy_seconds for kind, line in kinds.items()} == {"k0": 6 * 120, "k1": 3 * 60}
        assert {kind: line.usage.useful_seconds for kind, line in kinds.items()} == {"k0": 4 * 120, "k1": 2 * 60}
        assert {kind: line.usage.wasted_seconds for kind, line in kinds.items()} == {"k0": 2 * 120, "k1": 60}
        assert models["large"].usage.resident_seconds == 2 * 7200
        assert models["large"].idle_seconds == 2 * 7200 - 6 * 120
        assert models["small"].idle_seconds == 3600 - 3 * 60
        assert list(found.by("tenant")) == ["t"]
        assert list(found.by("hour")) == [at(0).isoformat(), at(60).isoformat()]
        total = found.total
        assert (total.usage.accepted, total.usage.rejected, total.usage.dead) == (6, 3, 3)
        assert total.usage.resident_seconds == total.usage.busy_seconds + total.idle_seconds

    def test_prices_give_the_cost_of_an_artifact_with_idle_time_beside_it(self, engine: Engine) -> None:
        found = bill(engine, Prices(3.6, {"large": 7.2}, "EUR"))
        kinds, total = found.by("kind"), found.total
        assert kinds["k0"].cost == pytest.approx(720 * 0.002)
        assert kinds["k1"].cost == pytest.approx(180 * 0.001)
        assert kinds["k0"].cost_per_artifact == pytest.approx(720 * 0.002 / 4)
        assert kinds["k0"].idle_cost == 0
        assert total.idle_cost == pytest.approx((2 * 7200 - 720) * 0.002 + (3600 - 180) * 0.001)
        assert total.full_cost_per_artifact == pytest.approx((2 * 7200 * 0.002 + 3.6) / 6)
        unknown = bill(engine, Prices(None, {"small": 1.0})).total
        assert (unknown.cost, unknown.full_cost_per_artifact) == (None, None)

    def test_what_is_known_late_is_said_to_be_restated(self, engine: Engine, boxes: tuple[UUID, UUID]) -> None:
        lost = job(engine, "k1", "dead", enqueued=at(0), finished=at(20), reason="lease_lost")
        attempt(engine, lost, 1, "k1", "lost", at(20), reason="lease_lost", engine_session_id=boxes[1])
        close_hours(engine)
        assert bill(engine).restated == []
        given = {"job_ids": [lost], "attempts": [1], "session_ids": [boxes[1]], "seconds": [30.0], "recorded": [0.0]}
        with engine.begin() as connection:
            connection.execute(statement("worker/record_usage"), given)
        [row] = bill(engine).restated
        assert (row.hour, row.kind, row.restated_by, row.usage.busy_seconds) == (at(0), "k1", 30.0, 90.0)
        [said] = bill(engine).to_json()["restated"]
        assert (said["seconds_before"], said["seconds"]) == (60.0, 90.0)

    def test_the_report_keeps_what_was_deleted(self, engine: Engine) -> None:
        close_hours(engine)
        before = drain_report(engine, TOP, UNTIL).total
        with engine.begin() as connection:
            connection.execute(text("DELETE FROM attempt"))
        after = drain_report(engine, TOP, UNTIL).total
        assert (after.busy_seconds, after.output_tokens) == (before.busy_seconds, before.output_tokens)
        assert after.wasted_seconds == pytest.approx(before.wasted_seconds)
        assert after.attempts == {AttemptKey("succeeded", None): 6, AttemptKey("deleted", None): 3}

    def test_what_came_of_jobs_and_drafts_outlives_them(self, engine: Engine) -> None:
        with engine.begin() as connection:
            connection.execute(text("UPDATE job SET state = 'succeeded', review = 'needs_edit' WHERE state = 'dead'"))
            connection.execute(text("UPDATE job SET review = 'approved' WHERE kind = 'k0' AND review IS NULL"))
        close_hours(engine)
        before = bill(engine)
        assert before.by("kind")["k0"].usage.draft_seconds == 2 * 120
        assert before.by("kind")["k0"].approved_per_compute_hour == pytest.approx(4 / (18_000 * 720 / 900 / 3600))
        assert before.by("kind")["k1"].approved_per_compute_hour is None
        month = {"month": f"{datetime.now(UTC):%Y_%m}", "before": UNTIL, "limit": 4}
        deleted = 4
        while deleted == 4:
            with engine.begin() as connection:
                deleted = connection.execute(statement("queue/history_delete"), month).rowcount
        after = bill(engine)
        assert after.to_json()["by_kind"] == before.to_json()["by_kind"]

    def test_the_check_finds_seconds_that_nobody_is_billed_for(self, engine: Engine, boxes: tuple[UUID, UUID]) -> None:
        settled(engine, {boxes[0]: 360, boxes[1]: 180})
        assert check_bill(engine, TOP, UNTIL).findings == ()
        close_hours(engine)
        checked = check_bill(engine, TOP, UNTIL)
        assert (checked.busy_seconds, checked.billed_seconds, checked.findings) == (540, 540, ())
        settled(engine, {boxes[0]: 365})
        [finding] = check_bill(engine, TOP, UNTIL).findings
        assert str(boxes[0]) in finding
        assert "busy for 365.0 s, and its attempts are billed for 360.0 s" in finding
        settled(engine, {boxes[0]: 361})
        assert check_bill(engine, TOP, UNTIL).findings == ()

    def test_the_check_finds_attempts_that_came_after_their_hour(self, engine: Engine) -> None:
        close_hours(engine)
        late = job(engine, "k0", "succeeded", enqueued=at(0), finished=at(50))
        attempt(engine, late, 1, "k0", "succeeded", at(50))
        [finding] = check_bill(engine, TOP, UNTIL).findings
        assert "for k0 of t on no model has 0 attempts" in finding

    def test_every_key_of_a_bill_is_documented(self, engine: Engine) -> None:
        described = (Path(__file__).parents[3] / "docs/report.md").read_text()
        document = json.loads(json.dumps(bill(engine).to_json()))
        keys = {*document, *document["total"], *check_bill(engine, TOP, UNTIL).to_json()}
        with engine.begin() as connection:
            connection.execute(text("INSERT INTO drain (started_at, ended_at) VALUES (:at, :at)"), {"at": at(1)})
        [drain] = list_drains(engine, TOP, UNTIL)
        assert {key for key in keys | set(drain.to_json()) if not re.search(rf"\b{key}\b", described)} == set()
