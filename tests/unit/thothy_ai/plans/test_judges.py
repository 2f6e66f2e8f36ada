"""The processes that run kinds' code: what hangs, ends or is cancelled in one of them disturbs no other task."""

from __future__ import annotations

import asyncio
import io
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.loops import on_a_loop
from tests.support.patience import PATIENCE
from thothy_ai.engine.wire.codec import FrameBuffer
from thothy_ai.jobs import Early, Output, RejectionReason
from thothy_ai.plans import judge_process
from thothy_ai.plans.advance import Judgement, PlanError, PlannedJob, PlanStep
from thothy_ai.plans.judge_messages import ANSWERS, TASKS, AdvanceTask, Answer, Started, StartTask
from thothy_ai.plans.judges import Judges, default_processes

pytestmark = pytest.mark.slow

KINDS = ("tests.support.echo_kind", "tests.support.plan_kind")
ECHO = PlannedJob("echo", {"text": "ok"})
STEP = PlanStep((), "de", "3")
ENGLISH = '{"echo": "Families in Freiburg buy cargo bikes in place of a second car, and dealers cannot keep up'


@pytest.fixture
def processor_time_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task may wait for a busy machine as long as it takes."""
    monkeypatch.setattr("thothy_ai.plans.judges.WAITING_FACTOR", 1000)


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def has_detector(pid: int) -> bool:
    """Whether a process has loaded the library that detects languages."""
    return "lingua" in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8")


def kind_with(folder: Path, code: str, other: str) -> tuple[str, ...]:
    """A file with the echo kind, and other code in it."""
    text = Path("tests/support/echo_kind.py").read_text(encoding="utf-8")
    assert code in text
    file = folder / "other_echo.py"
    file.write_text(text.replace(code, other), encoding="utf-8")
    return (str(file),)


@asynccontextmanager
async def judges(seconds: float = 10, processes: int = 2, kinds: tuple[str, ...] = KINDS) -> AsyncIterator[Judges]:
    made = Judges(kinds, seconds, processes)
    try:
        yield made
    finally:
        await made.close()


def says(text: str) -> list[tuple[Output, ...]]:
    return [(Output(f'{{"echo":"{text}"}}'),)]


async def judged(by: Judges, text: str) -> Judgement:
    step = await by.advance(ECHO, says(text), STEP)
    assert isinstance(step, Judgement)
    return step


@on_a_loop
async def test_a_task_is_done_in_another_process() -> None:
    async with judges() as by:
        step = await by.advance(ECHO, [], None)
        assert isinstance(step, PlanStep)
        assert step.calls[0].messages[0].content == "ok"
        assert step.calls[0].template_options == {"style": "plain"}
        assert (await judged(by, "ok")).body == {"echo": "ok"}
        with pytest.raises(PlanError, match="unknown_kind"):
            await by.advance(PlannedJob("nothing", {}), [], None)


@pytest.mark.usefixtures("processor_time_alone")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("raise", "ZeroDivisionError"),
        ("exit", "ended its process, with exit status 3"),
        ("stall", "did not end within"),
    ],
)
@on_a_loop
async def test_a_validator_that_fails_rejects_its_output_and_nothing_else(text: str, words: str) -> None:
    async with judges(seconds=0.2, processes=1) as by:
        failed, fine = await asyncio.gather(judged(by, text), judged(by, "ok"))
    assert (failed.accepted, failed.reason) == (False, RejectionReason.VALIDATOR_ERROR)
    assert words in failed.detail
    if text != "raise":  # the process that knew is gone
        assert (failed.locale, failed.version) == ("de", "3")
    assert fine.accepted


@pytest.mark.usefixtures("processor_time_alone")
@pytest.mark.parametrize(
    ("echo", "reason", "words"),
    [
        ("doubt it", "number_not_in_source", "no number"),
        ("raise it", "validator_error", "ZeroDivisionError"),
        ("exit it", "validator_error", "ended its process"),
        ("stall it", "validator_error", "did not end within"),
    ],
)
@on_a_loop
async def test_an_edit_is_checked_there_and_never_lost(echo: str, reason: str, words: str) -> None:
    async with judges(seconds=0.2, processes=1) as by:
        edit = await by.check_edit("echo", {"text": "ok"}, {"echo": echo})
        draft = await by.check_edit("echo", {"text": "ok"}, {"echo": ""})
    assert (edit.body, edit.problem) == ({"echo": echo}, None)
    assert [(each["reason"], words in each["detail"]) for each in edit.findings] == [(reason, True)]
    assert (draft.body, draft.findings) == ({"echo": ""}, [])
    assert str(draft.problem).startswith("echo: ")


@on_a_loop
async def test_processes_give_way_to_an_engine_on_the_same_processors() -> None:
    async with judges(processes=1) as by:
        await judged(by, "ok")
        [process] = [judge._process for judge in by._judges if judge._process is not None]
        own = os.getpriority(os.PRIO_PROCESS, 0)
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == min(19, own + judge_process.NICENESS)


@on_a_loop
async def test_while_one_hangs_the_others_go_on() -> None:
    async with judges(seconds=3600) as by:
        hanging = asyncio.create_task(judged(by, "stall"))
        for _ in range(5):
            assert (await judged(by, "ok")).accepted
        assert not hanging.done()
        hanging.cancel()


@on_a_loop
async def test_no_task_waits_for_a_process_that_starts_while_another_becomes_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with judges(processes=2) as by:
        await judged(by, "ok")
        [other] = by._unstarted
        monkeypatch.setattr(other, "start", lambda **_: asyncio.Event().wait())
        async with asyncio.timeout(PATIENCE):
            assert all(each.accepted for each in await asyncio.gather(judged(by, "ok"), judged(by, "ok")))
        assert not by._unstarted


@on_a_loop
async def test_one_that_waits_without_working_is_ended_too(tmp_path: Path) -> None:
    kinds = kind_with(tmp_path, 're.match("(a+)+$", "a" * 64 + "b")', "__import__('threading').Event().wait()")
    async with judges(seconds=0.3, kinds=kinds) as by:
        failed = await judged(by, "stall")
    assert failed.detail == "the kind's code did not end within 1.8 s"


@on_a_loop
async def test_a_task_whose_caller_is_cancelled_leaves_its_process_usable() -> None:
    async with judges(processes=1) as by:
        await judged(by, "ok")
        asking = asyncio.create_task(judged(by, "retry"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        asking.cancel()
        assert (await judged(by, "ok then")).body == {"echo": "ok then"}


@on_a_loop
async def test_a_task_whose_caller_is_cancelled_while_it_waits_is_never_done() -> None:
    async with judges(seconds=3600, processes=1) as by:
        await judged(by, "ok")
        judge = await by._free.get()  # it is busy with another's task
        waiting = asyncio.create_task(judged(by, "stall"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        waiting.cancel()
        by._free.put(judge)
        async with asyncio.timeout(PATIENCE):
            assert (await judged(by, "ok")).accepted


@on_a_loop
async def test_who_still_waits_for_a_process_when_they_end_is_told() -> None:
    by = Judges(KINDS, 10, 1)
    await judged(by, "ok")
    judge = await by._free.get()
    waiting = asyncio.create_task(by.advance(ECHO, says("ok"), STEP))
    await asyncio.sleep(0)
    await by.close()
    by._free.put(judge)
    assert (await waiting).detail == "the worker has ended"
    assert judge._process is None


@on_a_loop
async def test_after_their_end_no_process_is_started() -> None:
    by = Judges(KINDS, 10, 2)
    starting = asyncio.create_task(judged(by, "ok"))
    await asyncio.sleep(0)
    await by.close()
    async with asyncio.timeout(PATIENCE):
        assert (await starting).detail == "the worker has ended"
        assert (await judged(by, "ok")).detail == "the worker has ended"
    assert all(judge._process is None for judge in by._judges)


@on_a_loop
async def test_a_kind_that_hangs_before_its_first_call_says_so(tmp_path: Path) -> None:
    kinds = kind_with(tmp_path, 'Message("user", request.text)', "exec('while 1: 0')")
    async with judges(seconds=0.2, kinds=kinds) as by:
        with pytest.raises(PlanError, match="kind_error: the kind's code did not end within"):
            await by.advance(ECHO, [], None)


@on_a_loop
async def test_kinds_that_cannot_be_imported_are_an_error_of_each_job(capfd: pytest.CaptureFixture[str]) -> None:
    async with judges(kinds=("nowhere_to_be_found",)) as by:
        with pytest.raises(PlanError, match="kind_error"):
            await by.advance(ECHO, [], None)
    assert "no module 'nowhere_to_be_found'" in capfd.readouterr().err


@on_a_loop
async def test_any_json_value_crosses_and_comes_back() -> None:
    async with judges(processes=1) as by:
        refused = await judged(by, "ok \ud800")  # a lone surrogate, which the artifact's class refuses
        assert refused.reason is RejectionReason.OFF_SCHEMA
        assert await by.near_duplicate("echo", {"echo": "ok", "number": 2**70}, [{"number": 2**70}]) is None


@on_a_loop
async def test_a_value_that_cannot_cross_takes_no_process_away() -> None:
    nested: object = "ok"
    for _ in range(100_000):
        nested = [nested]
    async with judges(processes=1) as by:
        for _ in range(2):
            refused = await by.near_duplicate("echo", {"echo": nested}, [])
            assert refused is not None
            assert refused.reason is RejectionReason.VALIDATOR_ERROR
        assert (await judged(by, "ok")).accepted


@on_a_loop
async def test_near_duplicates_and_languages_are_judged_there_too() -> None:
    text = {"text": "ok Families in Freiburg buy cargo bikes in place of a second car."}
    async with judges() as by:
        found = await by.near_duplicate("parts", text, [text])
        assert found is not None
        assert found.reason is RejectionReason.NEAR_DUPLICATE
        assert await by.near_duplicate("parts", text, [{"text": "ok Something else."}]) is None
        broken = await by.near_duplicate("parts", {"no": "text"}, [text])
        assert broken is not None
        assert broken.reason is RejectionReason.VALIDATOR_ERROR
        foreign = await by.early_rejection(ENGLISH, "de", None)
        assert foreign is not None
        assert foreign.reason is RejectionReason.WRONG_LANGUAGE
        assert await by.early_rejection(ENGLISH, "en", None) is None
        assert await by.early_rejection(ENGLISH, "nobody knows", None) is None, "when in doubt, the output goes on"


@on_a_loop
async def test_unfinished_outputs_are_judged_unless_all_processes_are_busy() -> None:
    early = Early(("body",), ("new_name", "banned"), "Rents rose in Leeds, as Maria Hill says.", banned=("unlock",))
    written = (
        '{"body":"Rents rose, as Karl Jonathan says. That is a lot. It is far more than in any of the other towns there'
    )
    async with judges(processes=1) as by:
        await judged(by, "ok")
        found = await by.early_rejection(written, None, early)
        assert found is not None
        assert found.reason is RejectionReason.NAME_NOT_IN_SOURCE
        assert await by.early_rejection(written.replace("Karl Jonathan", "Maria Hill"), None, early) is None
        assert await by.early_rejection("[1, 2", None, early) is None
        busy = asyncio.create_task(judged(by, "ok"))
        await asyncio.sleep(0)
        assert await by.early_rejection(written, None, early) is None, "it does not wait"
        await busy


@on_a_loop
async def test_nothing_is_left_behind() -> None:
    async with judges(seconds=3600) as by:
        hanging = asyncio.create_task(judged(by, "stall"))
        await judged(by, "ok")
        processes = [judge._process.pid for judge in by._judges if judge._process is not None]
        assert len(processes) == 2
    for pid in processes:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    with pytest.raises(asyncio.CancelledError):
        await hanging


@on_a_loop
async def test_jobs_of_a_source_are_done_by_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    by_source: dict[str, list[int]] = {"a": [], "b": []}
    async with judges(processes=3) as by:
        await by.start_early()

        def note(number: int, ask: Callable[[bytes], Awaitable[Answer]]) -> Callable[[bytes], Awaitable[Answer]]:
            def noting(frame: bytes) -> Awaitable[Answer]:
                [payload] = FrameBuffer().feed(frame)
                task = TASKS.decode(payload)
                assert isinstance(task, AdvanceTask)
                by_source[task.job.source_key].append(number)
                return ask(frame)

            return noting

        for number, judge in enumerate(by._judges):
            monkeypatch.setattr(judge, "ask", note(number, judge.ask))
        of_a, of_b = (by.advance(replace(ECHO, source_key=source), (), None) for source in by_source)
        await asyncio.gather(of_a, of_b)
        for source in "abab":
            await by.advance(replace(ECHO, source_key=source), (), None)
    [a], [b] = map(set, by_source.values())
    assert a != b


@pytest.mark.parametrize(("processes", "started"), [(2, 0), (3, 3)])
@on_a_loop
async def test_many_processes_are_started_before_a_task_and_with_what_validators_load(
    processes: int, started: int
) -> None:
    async with judges(processes=processes) as by:
        await by.start_early()
        pids = [judge._process.pid for judge in by._judges if judge._process is not None]
        assert len(pids) == len(by._free) == started
        assert all(map(has_detector, pids))
        assert (await judged(by, "ok")).accepted


@on_a_loop
async def test_processes_that_are_being_started_end_with_the_others() -> None:
    async with judges(processes=3) as by:
        starting = asyncio.create_task(by.start_early())
        assert (await judged(by, "ok")).accepted
    with suppress(asyncio.CancelledError):
        await starting
    assert all(judge._process is None for judge in by._judges)


def test_there_are_at_least_two_for_each_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(32)))
    assert [default_processes(workers) for workers in (1, 2, 4, 8, 64)] == [12, 12, 6, 3, 2]
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    assert default_processes() == 2


def test_a_warm_up_loads_what_validators_need() -> None:
    loaded = (
        "import sys; from thothy_ai.plans.warm_up import warm_up; warm_up(); "
        "from thothy_ai.jobs.checks import vocabulary; assert vocabulary.is_known.cache_info().currsize; "
        "assert {'lingua', 'simplemma', 'icu4py', 'babel'} <= sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", loaded], check=True)


def test_a_process_whose_warm_up_fails_serves_all_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> None:
        raise ImportError("no lingua")

    monkeypatch.setattr(judge_process, "warm_up", broken)
    given = io.BytesIO(TASKS.encode(StartTask((), tuple(sys.path), 20.0, warm=True)))
    written = io.BytesIO()
    stream = io.BufferedRWPair(given, written)  # type: ignore[arg-type]  # closed with it
    judge_process.serve(stream)
    [answer] = FrameBuffer().feed(written.getvalue())
    assert ANSWERS.decode(answer) == Started()
    assert "no lingua" in capsys.readouterr().err


@on_a_loop
async def test_a_process_that_cannot_be_started_leaves_no_socket_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("no more processes")

    async with judges() as made:
        await made.advance(ECHO, [], None)
        monkeypatch.setattr("thothy_ai.plans.judges.subprocess.Popen", refuse)
        before = open_files()
        for judge in made._judges:
            await judge.kill()
            with pytest.raises(OSError, match="no more processes"):
                await judge.ask(b"")
        await asyncio.sleep(0)
        assert open_files() < before
