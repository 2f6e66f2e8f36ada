"""A frame of `thothy top` fits 80 columns and 24 lines, whatever is in it, and nothing that matters is cut."""

from __future__ import annotations

import io
from datetime import UTC, datetime

import pytest
from rich.console import Console

from thothy_ai.admin.durations import spell_whole
from thothy_ai.admin.top.engines import EngineFigures
from thothy_ai.admin.top.polling import Unreachable
from thothy_ai.admin.top.queue import HourFigures, QueueFigures, RecordFigures, WorkerFigures
from thothy_ai.cli.views.top import Frame, render
from thothy_ai.jobs import RejectionReason
from thothy_ai.queue.forecast.outlook import Basis, Forecast
from thothy_ai.queue.status import QueueStatus, StateCount

ENGINE = EngineFigures(
    model="SmolLM2-135M-Instruct.Q4_1",
    device="cuda:0 NVIDIA H200",
    running=1024,
    waiting=1234,
    kv_blocks=123_456,
    kv_used=0.987,
    prompt_tokens_per_second=123_456.7,
    output_tokens_per_second=45_678.9,
    step_seconds=0.0234,
    mask_seconds=0.00123,
    busy_share=0.9876,
    prefix_hit_rate=0.831,
    preemptions=3,
)
STATES = {
    "queued": StateCount(jobs=1_234_567, due_age=200_000.0, delayed=12_345, due_1h=4321),
    "dispatched": StateCount(jobs=2048, due_age=1.0),
    "running": StateCount(jobs=1024, expired_leases=3),
}
REASONS = tuple((f"rejected: {reason}", 10_000 - 100 * at) for at, reason in enumerate(list(RejectionReason)[:11]))
OTHERS = (("lost: engine_lost", 7), ("failed: no_finite_score", 6), ("released: connection_lost", 5), ("expired", 4))
HOUR = HourFigures(123_456, 98_765, 61_728, 234_567, REASONS + OTHERS)
WORKERS = WorkerFigures(workers=16, hints=2048)


def status(*, paused: bool = False) -> QueueStatus:
    return QueueStatus(STATES, paused, datetime.now(UTC), "new worker image, back at 14:00" if paused else None)


def record(*, paused: bool = False, age: float = 0.0, rate: float = 123.4) -> RecordFigures:
    return RecordFigures(QueueFigures(status(paused=paused), age, rate), HOUR)


def shown(frame: Frame, columns: int = 80) -> str:
    out = io.StringIO()
    console = Console(file=out, width=columns, height=24, highlight=False)
    console.print(render(frame, live=True))
    lines = out.getvalue().splitlines()
    assert len(lines) <= 24
    assert all(len(line) <= columns for line in lines)
    return out.getvalue()


def test_a_full_frame_shows_every_figure() -> None:
    text = shown(Frame(record(), WORKERS, ENGINE))
    for figure in (
        "1,222,222", "12,345", "2,048", "1,024, 3 expired leases", "16 connected", "waits 2 d 07 h", "4,321",
        "123.4 jobs/s", "2 h 45 m", "SmolLM2-135M-Instruct.Q4_1", "cuda:0 NVIDIA H200", "1,024 running, 1,234 waiting",
        "98.7% of 123,456 blocks", "123,457 tok/s", "45,679 tok/s", "23.4 ms, masks 1.2 ms", "98.8%",
        "83.1% cached",
        "form yield 80.0%, clean yield 50.0%: 98,765 of 123,456 jobs with output",
        "104,522 of 234,567 attempts without an artifact",
        "q quits",
    ):  # fmt: skip
        assert figure in text, figure
    for reason, number in HOUR.reasons[:14]:
        assert f"{number:,} {reason}" in text, reason
    assert "…" not in text


def test_a_paused_queue_and_an_old_count_say_so() -> None:
    text = shown(Frame(record(paused=True, age=7.2, rate=0.5), WORKERS, ENGINE))
    assert "Queue (counted 7 s ago)" in text
    assert "new worker image, back" in text
    assert "30.0 jobs/min" in text


@pytest.mark.parametrize("columns", [80, 200])
def test_what_is_unreachable_says_so_in_its_panel(columns: int) -> None:
    why = "Postgres cannot be reached at /a/very/long/path/" + "that/goes/on/" * 30
    away = Unreachable(why)
    text = shown(Frame(away, away, away), columns)
    assert text.count("not connected") == 3
    assert "Postgres cannot be reached" in text
    text = shown(Frame(record(), away, away), columns)
    assert "unknown without Redis" in text
    assert text.count("not connected") == 1


def test_an_idle_service_has_dashes_and_no_nonsense() -> None:
    idle = EngineFigures("null", "none", 0, 0, 0, None, None, None, None, None, None, None, 0)
    nothing = RecordFigures(
        QueueFigures(QueueStatus({}, paused=False, changed_at=None, note=None), 0.0, 0.0), HourFigures(0, 0, 0, 0, ())
    )
    text = shown(Frame(nothing, WorkerFigures(0, 0), idle))
    assert "nothing" in text
    assert "form yield -, clean yield -: 0 of 0 jobs with output" in text
    assert "step    -, masks -" in text


def test_control_characters_do_not_reach_the_terminal() -> None:
    bad = HourFigures(1, 0, 0, 1, (("rejected: \x1b[2J", 1),))
    assert "\x1b" not in shown(Frame(RecordFigures(record().queue, bad), WORKERS, ENGINE))


def test_the_time_to_go_is_the_forecast_s_as_in_a_drain() -> None:
    made = Forecast(0.0, Basis.LEARNT, False, 9.0, 0.0, 0.0, 1, None, 5400.0, None, None, 0.0, 0.0, 0.0)
    assert QueueFigures(status(), 0.0, 123.4, made).seconds_to_go == 5400.0
    forecast = RecordFigures(QueueFigures(status(), 0.0, 123.4, made), HOUR)
    assert f"about {spell_whole(5400.0)}" in shown(Frame(forecast, WORKERS, ENGINE))
