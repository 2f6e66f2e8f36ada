"""What a drain's display says, and when: never a rate or a time to go that nothing supports."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest
from rich.console import Console

from thothy_ai.admin.drain import DrainProgress, Obstacles, Rate
from thothy_ai.cli.views.drain import Lines, display_on, words
from thothy_ai.cli.views.queue import obstacle_sentences
from thothy_ai.queue.control import Control
from thothy_ai.queue.forecast.learning import History
from thothy_ai.queue.forecast.outlook import forecast
from thothy_ai.queue.forecast.values import Key, Observation, WaitingJobs
from thothy_ai.queue.status import Unserved

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
START = DrainProgress(
    queued=0, dispatched=0, running=0, later=0, finished=0, oldest=NOW, next_due=None, all_wait=False, now=NOW
)


LATER = NOW + timedelta(days=2, hours=3)
SOON = NOW + timedelta(seconds=11.2)


@pytest.mark.parametrize(
    ("progress", "rate", "said"),
    [
        (replace(START, running=20), None, "20 running, none finished yet"),
        (replace(START, running=20, queued=3, dispatched=4), None, "20 running, 7 queued, none finished yet"),
        (replace(START, queued=1_200), None, "1,200 queued"),
        (replace(START, running=4, finished=3), None, "4 running"),
        (replace(START, running=4, finished=9), 1.26, "4 running, 1.3 jobs/s"),
        (replace(START, queued=2, all_wait=True, next_due=SOON), 1.0, "2 queued, the next is due in 12 s"),
        (replace(START, later=3, next_due=LATER), None, "3 delayed, the next is due in 2 d 03 h"),
        (replace(START, later=3, running=1, finished=9), 1.0, "1 running, 3 delayed, 1.0 jobs/s"),
    ],
)  # fmt: skip
def test_words(progress: DrainProgress, rate: float | None, said: str) -> None:
    assert words(progress, rate) == said


AHEAD = forecast(History(), Observation(at=0.0, waiting=(WaitingJobs(Key("hook"), 9),), engines={"m": 1}))
KNOWN = replace(AHEAD, p50=989.5, p90=1_100.0)


def test_words_of_the_forecast() -> None:
    waiting = replace(START, queued=99, finished=9)
    assert words(waiting, 0.1, KNOWN) == "99 queued, 6.0 jobs/min, about 16 m 30 s left (90 %: 18 m 20 s)"
    assert words(waiting, None, KNOWN) == "99 queued, about 16 m 30 s left (90 %: 18 m 20 s)"
    unproved = replace(KNOWN, p90=None)
    assert words(waiting, None, unproved) == "99 queued, about 16 m 30 s left (90 %: not enough history yet)"
    assert words(waiting, 0.1, AHEAD) == "99 queued, 6.0 jobs/min"  # nothing is learnt
    assert words(waiting, 0.1, replace(KNOWN, paused=True)) == "99 queued, 6.0 jobs/min"
    assert words(replace(START, later=3, running=1), 1.0, KNOWN) == "1 running, 3 delayed, 1.0 jobs/s"


def test_a_rate_needs_several_finished_jobs_and_seconds() -> None:
    rate = Rate()
    assert rate.update(0.0, 0) is None
    assert rate.update(25.0, 4) is None  # since then: what came before says how long a job takes, not how many finish
    assert rate.update(26.0, 12) is None
    assert rate.update(29.0, 8) is None
    assert rate.update(30.0, 14) == pytest.approx(2.0)
    assert rate.update(200.0, 14) is None  # nothing has finished for longer than the window


class TestLines:
    """Without a terminal."""

    @pytest.fixture(autouse=True)
    def _clock(self) -> None:
        self.now = 0.0

    def lines(self) -> Lines:
        return Lines(lambda: self.now)

    def test_a_line_when_something_changed_and_otherwise_every_half_minute(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        lines, printed = self.lines(), []
        for second, running in enumerate([20] * 3 + [19] * 70):
            self.now = float(second)
            lines.update(replace(START, running=running, finished=20 - running), None)
            seen = capsys.readouterr()
            assert seen.out == ""
            printed += [(second, line) for line in seen.err.splitlines()]
        assert printed == [
            (0, "20 running, none finished yet"),
            (5, "1 of 20 finished, 19 running"),
            (35, "1 of 20 finished, 19 running"),
            (65, "1 of 20 finished, 19 running"),
        ]

    def test_an_obstacle_is_said_at_once_and_again_when_it_comes_back(self, capsys: pytest.CaptureFixture[str]) -> None:
        lines = self.lines()
        for said in (["paused"], ["paused"], [], ["paused", "no worker"]):
            lines.say(said)
        assert capsys.readouterr().err.splitlines() == ["paused", "paused", "no worker"]


def test_on_a_terminal_a_bar_is_drawn_and_removed_and_sentences_stay() -> None:
    out = StringIO()
    console = Console(file=out, force_terminal=True, width=80, height=24)
    with display_on(console) as display:
        display.say(["No worker is connected."])
        display.update(replace(START, running=20, queued=1_000_000, finished=123_456), 2_000.0, KNOWN)
        display.say(["No worker is connected."])
    printed = out.getvalue()
    assert printed.count("No worker is connected.") == 1
    assert "20 running, 1,000,000 queued, 2,000.0 jobs/s, about 16 m 30 s left" in printed
    assert "123456/1123476" in printed


def test_obstacles_say_what_to_type() -> None:
    pause = Control(paused=True, changed_at=NOW, note="new image\x1b[2J")
    (paused,) = obstacle_sentences(Obstacles(pause, ()))
    assert paused.startswith("The queue has been paused since 2026-11-20 ")
    assert paused.endswith(" (new image\ufffd[2J). `thothy queue resume` resumes it.")
    (missing,) = obstacle_sentences(Obstacles(None, ("dispatcher", "worker")))
    assert missing == "No dispatcher or worker is connected. `thothy doctor` says what to do."
    assert list(obstacle_sentences(Obstacles(None, ()))) == []
    unserved = Unserved({"huge": 1, "house": 2}, 2_000, {"house": "large"})
    one, two, others = obstacle_sentences(Obstacles(None, (), unserved))
    assert one.startswith("1 job waits for huge, which no engine serves: start an engine with it, or ")
    assert two == (
        "2 jobs wait for house, an alias of large, which no engine serves: start an engine with large, or let another"
        " run them: `thothy models alias house MODEL`."
    )
    assert others == "2,000 jobs wait for other models that no engine serves."
