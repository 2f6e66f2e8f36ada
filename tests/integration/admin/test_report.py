"""The drain report's figures against rows with sums computed by hand."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from rich.console import Console
from sqlalchemy import Engine, insert, text
from uuid_utils.compat import uuid7

from thothy_ai.admin.report.drain_report import AttemptKey, DrainReport, drain_report
from thothy_ai.cli.views.report import ReportText
from thothy_ai.db.base import Base
from thothy_ai.db.models import ArtifactRow, AttemptRow, EngineSessionRow, JobRow

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
ONE = timedelta(minutes=1)
GPU, CPU = "cuda:0 NVIDIA H200", "cpu"


def at(minutes: float) -> datetime:
    """A moment, in minutes after noon."""
    return NOON + minutes * ONE


def add(engine: Engine, table: type[Base], **values: object) -> None:
    with engine.begin() as connection:
        connection.execute(insert(table), values)


def session(
    engine: Engine,
    *,
    start: datetime,
    end: datetime | None,
    gpus: int = 1,
    device: str = GPU,
    heartbeat: datetime | None = None,
) -> UUID:
    made = uuid4()
    sizes = {"model": "smollm2", "dtype": "bfloat16", "num_blocks": 100, "block_size": 16}
    times = {"started_at": start, "heartbeat_at": heartbeat or end or start, "ended_at": end}
    add(engine, EngineSessionRow, id=made, device=device, gpus=gpus, **sizes, **times)
    return made


def job(
    engine: Engine,
    kind: str,
    state: str,
    *,
    enqueued: datetime,
    finished: datetime | None = None,
    reason: str | None = None,
) -> UUID:
    made = uuid7()
    fixed = {"tenant": "t", "source_key": "s", "request_digest": "d", "max_attempts": 3}
    times = {"enqueued_at": enqueued, "finished_at": finished}
    add(engine, JobRow, id=made, kind=kind, state=state, reason=reason, **fixed, **times)
    return made


def attempt(engine: Engine, job_id: UUID, number: int, kind: str, outcome: str, at: datetime, **values: object) -> None:
    fixed = {"tenant": "t", "kind": kind, "worker": "w", "started_at": at - ONE, "finished_at": at, "outcome": outcome}
    add(engine, AttemptRow, job_id=job_id, attempt=number, **fixed, **values)


def used(box: UUID, prompt: int, cached: int, output: int, seconds: float) -> dict[str, object]:
    tokens = {"prompt_tokens": prompt, "cached_tokens": cached, "output_tokens": output}
    return {"engine_session_id": box, "compute_seconds": seconds, **tokens}


def artifact(
    engine: Engine,
    job_id: UUID,
    number: int,
    kind: str,
    at: datetime,
    reason: str | None = None,
    findings: list[dict[str, object]] | None = None,
) -> None:
    verdict = "rejected" if reason else "accepted"
    said = {"verdict": verdict, "reason": reason, "body": {"text": "x"}, "text": "x", "findings": findings or []}
    add(engine, ArtifactRow, job_id=job_id, attempt=number, kind=kind, locale="en", tenant="t", created_at=at, **said)


@pytest.fixture
def afternoon(engine: Engine) -> DrainReport:
    """Two GPUs from 11:00 to 13:00; the window is 12:00 to 14:00. Of hooks, 2 of 3 succeed; of translations, none."""
    box = session(engine, start=at(-60), end=at(60), gpus=2)
    first = job(engine, "hook", "succeeded", enqueued=at(-5), finished=at(10))
    attempt(engine, first, 1, "hook", "rejected", at(9), reason="repetition", **used(box, 100, 64, 20, 30))
    artifact(engine, first, 1, "hook", at(9), reason="repetition")
    attempt(engine, first, 2, "hook", "succeeded", at(10), **used(box, 100, 96, 30, 60))
    artifact(engine, first, 2, "hook", at(10))
    second = job(engine, "hook", "succeeded", enqueued=at(1), finished=at(20))
    attempt(engine, second, 1, "hook", "succeeded", at(20), **used(box, 50, 0, 40, 90))
    artifact(engine, second, 1, "hook", at(20))
    job(engine, "hook", "expired", enqueued=at(1), finished=at(40))
    third = job(engine, "translation", "dead", enqueued=at(2), finished=at(30), reason="wrong_language")
    attempt(engine, third, 1, "translation", "rejected", at(30), reason="wrong_language", **used(box, 150, 0, 60, 180))
    artifact(engine, third, 1, "translation", at(30), reason="wrong_language")
    job(engine, "translation", "cancelled", enqueued=at(2), finished=at(3))
    job(engine, "translation", "queued", enqueued=at(2))
    before = job(engine, "hook", "succeeded", enqueued=at(-50), finished=at(-1))
    attempt(engine, before, 1, "hook", "succeeded", at(-1), **used(box, 999, 0, 999, 999))
    artifact(engine, before, 1, "hook", at(-1))
    return drain_report(engine, NOON, at(120))


def test_headline(afternoon: DrainReport) -> None:
    total = afternoon.total
    assert afternoon.unit == "GPU-hour"
    assert total.resident_seconds == pytest.approx(2 * 3600)  # one hour of the window, on two GPUs
    assert total.busy_seconds == pytest.approx(2 * (30 + 60 + 90 + 180))
    assert total.jobs_per_compute_hour == pytest.approx(2 / 2)
    assert total.jobs_per_busy_hour == pytest.approx(2 / 0.2)
    assert total.drain_seconds == 40 * 60  # from the window's start: the first job is older than it


def test_the_three_yields_and_the_drafts_that_people_edit(engine: Engine) -> None:
    box = session(engine, start=at(0), end=at(60), gpus=1)
    found = [{"reason": "number_not_in_source", "detail": "'9' is not in the source", "weight": 0.9}]
    reviews = [(None, None), ("needs_review", None), ("approved", None)]
    reviews += [(review, "truncated") for review in ("needs_edit", "approved", "rejected")]
    for number, (review, reason) in enumerate(reviews):
        made = job(engine, "hook", "succeeded", enqueued=at(1), finished=at(10 + number))
        outcome = "rejected" if reason else "succeeded"
        attempt(engine, made, 1, "hook", outcome, at(10 + number), reason=reason, **used(box, 1, 0, 1, 10 + number))
        artifact(engine, made, 1, "hook", at(10 + number), reason=reason, findings=[] if review is None else found)
        with engine.begin() as connection:
            connection.execute(text("UPDATE job SET review = :review WHERE id = :id"), {"review": review, "id": made})
    total = drain_report(engine, NOON, at(60)).total
    assert (total.form_yield, total.clean_yield) == (pytest.approx(3 / 6), pytest.approx(1 / 6))
    assert total.approved_per_compute_hour == pytest.approx(2.0)
    assert (total.draft_seconds, total.redeemed_seconds, total.wasted_seconds) == (13, 14, 15)
    assert (total.to_edit, total.jobs_per_compute_hour) == (
        2,
        pytest.approx(4.0),
    )  # two drafts, of which nobody approved


@pytest.mark.parametrize(
    ("fields", "weights", "kept"),
    [((3, 1), (1, 1), 1), ((2, 2), (0.9, 0.4), 2), ((2, 2), (0.4, 0.9), 1), ((2, 2), (1, 1), 2)],
)
def test_the_draft_that_people_are_shown_is_the_one_that_is_no_waste(
    engine: Engine, fields: tuple[int, int], weights: tuple[float, float], kept: int
) -> None:
    box = session(engine, start=at(0), end=at(60), gpus=1)
    made = job(engine, "hook", "succeeded", enqueued=at(1), finished=at(20))
    for number, (size, weight) in enumerate(zip(fields, weights, strict=True), 1):
        spent = used(box, 1, 0, 1, 10.0 * number)
        attempt(engine, made, number, "hook", "rejected", at(10 * number), reason="truncated", **spent)
        artifact(engine, made, number, "hook", at(10 * number), reason="truncated", findings=[{"weight": weight}])
        with engine.begin() as connection:
            body = json.dumps({f"field{each}": "" for each in range(size)})
            change = "UPDATE artifact SET body = CAST(:body AS jsonb) WHERE attempt = :number"
            connection.execute(text(change), {"body": body, "number": number})
    for review, draft, redeemed in (("needs_edit", 10.0 * kept, 0), ("approved", 0, 10.0 * kept), ("rejected", 0, 0)):
        with engine.begin() as connection:
            connection.execute(text("UPDATE job SET review = :review"), {"review": review})
        report = drain_report(engine, NOON, at(60))
        for of in (report.total, report.bill.total.usage, report.bill.by("kind")["hook"].usage):
            assert (of.draft_seconds, of.redeemed_seconds, of.wasted_seconds) == (
                draft,
                redeemed,
                30 - draft - redeemed,
            )


def test_rates(afternoon: DrainReport) -> None:
    total, hook, translation = afternoon.total, afternoon.kinds["hook"], afternoon.kinds["translation"]
    assert dict(total.jobs) == {"succeeded": 2, "expired": 1, "dead": 1, "cancelled": 1, "queued": 1}
    assert (total.open, total.finished) == (1, 5)
    assert total.failure_rate == pytest.approx(2 / 4)  # the cancelled job does not count
    assert hook.failure_rate == pytest.approx(1 / 3)
    assert (total.form_yield, hook.form_yield, translation.form_yield) == (pytest.approx(2 / 3), 1.0, 0.0)
    assert (total.clean_yield, total.approved_per_compute_hour) == (pytest.approx(2 / 3), None)
    assert total.prefix_hit_rate == pytest.approx(160 / 400)
    assert (total.prompt_tokens, total.output_tokens) == (400, 150)
    assert dict(total.rejections) == {"repetition": 1, "wrong_language": 1}
    assert total.attempts == {
        AttemptKey("succeeded", None): 2,
        AttemptKey("rejected", "repetition"): 1,
        AttemptKey("rejected", "wrong_language"): 1,
    }


def test_residency_is_shared_between_kinds_by_what_they_used(afternoon: DrainReport) -> None:
    hook, translation = afternoon.kinds["hook"], afternoon.kinds["translation"]
    assert hook.resident_seconds == pytest.approx(7200 / 2)
    assert hook.jobs_per_compute_hour == pytest.approx(2.0)
    assert translation.jobs_per_compute_hour == 0.0


def test_all_that_led_to_no_artifact_is_wasted(engine: Engine) -> None:
    box = session(engine, start=NOON, end=at(60), gpus=2)
    done = job(engine, "hook", "succeeded", enqueued=at(1), finished=at(9))
    ends = (
        ("lost", "lease_lost", 7.0),
        ("released", "shutdown", 3.0),
        ("failed", "kind_error", 5.0),
        ("rejected", "x", 2.0),
    )
    for number, (outcome, reason, seconds) in enumerate(ends, 1):
        attempt(engine, done, number, "hook", outcome, at(number), reason=reason, **used(box, 0, 0, 0, seconds))
    attempt(engine, done, 5, "hook", "succeeded", at(9), **used(box, 0, 0, 0, 20))
    report = drain_report(engine, NOON, at(60))
    assert report.total.busy_seconds == pytest.approx(2 * 37)
    assert report.total.wasted_seconds == pytest.approx(2 * 17)
    assert report.to_json()["kinds"]["hook"]["wasted_seconds"] == pytest.approx(34)
    by_reason = {key.label: seconds for key, seconds in report.total.wasted.items()}
    assert by_reason == {
        "lost: lease_lost": 14, "released: shutdown": 6, "failed: kind_error": 10, "rejected: x": 4,
    }  # fmt: skip
    console = Console(width=120, record=True, file=StringIO())
    console.print(ReportText(report))
    assert re.search(r"wasted GPU-seconds +34\.0", console.export_text())


def test_json_is_plain_and_renders(afternoon: DrainReport) -> None:
    document = json.loads(json.dumps(afternoon.to_json()))
    assert document["since"] == "2026-11-20T12:00:00+00:00"
    assert document["total"]["jobs_per_gpu_hour"] == 1.0
    assert document["kinds"]["hook"]["jobs"]["succeeded"] == 2
    assert {"outcome": "rejected", "reason": "repetition", "count": 1, "wasted_seconds": 60.0} in document["total"][
        "attempts"
    ]
    console = Console(width=120, record=True, file=StringIO())
    console.print(ReportText(afternoon))
    shown = console.export_text()
    for words in ("1.0 jobs per GPU-hour", "1 job still open", "form yield 66.7%", "wrong_language"):
        assert words in shown


def test_on_a_cpu_an_hour_is_not_called_a_gpu_hour(engine: Engine) -> None:
    box = session(engine, start=NOON, end=NOON + 30 * ONE, device=CPU, gpus=0)
    done = job(engine, "hook", "succeeded", enqueued=NOON, finished=at(1))
    attempt(engine, done, 1, "hook", "succeeded", at(1), **used(box, 10, 0, 10, 90))
    report = drain_report(engine, NOON, NOON + 60 * ONE)
    assert report.unit == "compute-hour"
    assert report.to_json()["total"]["jobs_per_gpu_hour"] is None
    assert report.to_json()["total"]["jobs_per_compute_hour"] == pytest.approx(2.0)
    assert report.total.busy_seconds == pytest.approx(90)


def test_a_living_engine_is_resident_until_now_and_a_silent_one_until_its_last_heartbeat(engine: Engine) -> None:
    now = datetime.now(UTC)
    living = session(engine, start=now - 10 * ONE, end=None, heartbeat=now + 60 * ONE)
    silent = session(engine, start=now - 10 * ONE, end=None, heartbeat=now - 4 * ONE)
    report = drain_report(engine, now - 60 * ONE)
    seconds = {made.id: made.resident_seconds for made in report.sessions}
    assert seconds[str(living)] == pytest.approx((report.until - now).total_seconds() + 600, abs=0.1)
    assert seconds[str(silent)] == pytest.approx(360, abs=0.1)


def test_an_empty_database_has_no_rates(engine: Engine) -> None:
    report = drain_report(engine, NOON, NOON + ONE)
    figures = report.to_json()["total"]
    assert {figures[key] for key in ("jobs_per_compute_hour", "failure_rate", "form_yield", "drain_seconds")} == {None}
    console = Console(width=100, record=True, file=StringIO())
    console.print(ReportText(report))
    assert console.export_text().endswith("and none is open.\n")


def test_every_json_key_is_documented(afternoon: DrainReport) -> None:
    described = (Path(__file__).parents[3] / "docs/report.md").read_text()
    document = afternoon.to_json()
    keys = {*document, *document["total"], *document["engines"][0], *document["total"]["jobs"]}
    assert {key for key in keys if not re.search(rf"\b{key}\b", described)} == set()


def test_the_recorded_drains_of_the_window_are_counted(engine: Engine) -> None:
    """One that was cut after a day is not another one; neither is one that ended before the window."""
    record = text("INSERT INTO drain (started_at, ended_at, emptied) VALUES (:started, :ended, :emptied)")
    with engine.begin() as connection:
        for started, ended, emptied in (
            (-9, -1, True),
            (-5, 5, False),
            (5, 10, True),
            (20, 30, True),
            (130, 140, True),
        ):
            connection.execute(record, {"started": at(started), "ended": at(ended), "emptied": emptied})
    assert drain_report(engine, NOON, at(120)).drains == 2
