"""The engine's two processes as a supervisor and a client see them, with a small random model."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.support.tiny_models import tiny_model
from tests.support.tiny_tokenizer import make_tokenizer
from thothy_ai.engine.api import (
    BeamSearch,
    Choice,
    GenerationRequest,
    GenerationResult,
    LogitBias,
    Message,
    SamplingParams,
    SchedulerStats,
)
from thothy_ai.engine.client import EngineClient, Generation, LocalEngineClient, connect
from thothy_ai.engine.errors import (
    ConnectionLostError,
    EngineError,
    EngineLostError,
    GrammarError,
    UninvolvedError,
)
from thothy_ai.engine.options import EngineOptions
from thothy_ai.engine.process.resident import load_engine

PATIENCE = 120
RUN = "from pathlib import Path; from thothy_ai.engine.main import run_engine; from thothy_ai.engine.options import *; "
ENDLESS = SamplingParams(max_tokens=200, ignore_eos=True)
ASKING = SamplingParams(
    max_tokens=12,
    temperature=0.9,
    seed=5,
    min_tokens=8,
    stop_token_ids=(7, 8),
    frequency_penalty=0.5,
    presence_penalty=0.1,
    logit_bias=(LogitBias(9, 2.0),),
    logprobs=2,
)
BREAKS_THE_CORE = """
import sys
if "thothy_ai.engine.process.core_process" in sys.orig_argv:
    import time
    from thothy_ai.engine.execution.runner import Runner
    def forward(self, step):
        {}
    Runner.forward = forward
"""

SLOW_UNTIL_IT_FAILS = """
import sys
if "thothy_ai.engine.process.core_process" in sys.orig_argv:
    import time
    from pathlib import Path
    from thothy_ai.engine.execution.runner import Runner
    original = Runner.forward
    def forward(self, step):
        if (Path(__file__).parent / "now").exists():
            raise RuntimeError("CUDA error: illegal")
        time.sleep(0.25)  # so that none of them ends before the test looks
        return original(self, step)
    Runner.forward = forward
"""

KILLING_GRAMMARS = """
import sys
if "thothy_ai.engine.process.core_process" in sys.orig_argv:
    import os, signal, time
    from thothy_ai.engine.process import resident
    class Compiler(resident.GrammarCompiler):
        def compile(self, schema):
            time.sleep(0.5)
            os.kill(os.getpid(), signal.SIGKILL)
    resident.GrammarCompiler = Compiler
"""

REPORTS_AT_ONCE = """
import sys
if "thothy_ai.engine.process.core_process" in sys.orig_argv:
    import threading
    from thothy_ai.engine.process import resident
    from thothy_ai.engine.remote.channel import Channel
    reported = threading.Event()
    send = Channel.send
    def recorded(self, word, *parts):
        send(self, word, *parts)
        if word == "step":
            reported.set()
    Channel.send = recorded
    class Host(resident.CoreHost):
        def __init__(self, core, grammars, on_events, admissions):
            super().__init__(core, grammars, on_events, admissions)
            on_events([])
    resident.CoreHost = Host
    thread_start = threading.Thread.start
    def started(self):
        thread_start(self)
        if self.name == "engine-reports":
            reported.wait()
    threading.Thread.start = started
"""

FAILING_GRAMMARS = """
import sys
if "thothy_ai.engine.process.core_process" in sys.orig_argv:
    from thothy_ai.engine.errors import GrammarError
    from thothy_ai.engine.process import resident
    class Failing:
        finished, left = False, 5
        def limit(self, budget):
            pass
        def fill_mask(self, row):
            row.fill_(-1)
        def may_force_after(self, token):
            return True
        def forced(self):
            return []
        def advance(self, token):
            self.left -= 1
            if not self.left:
                raise GrammarError("grew too complex")
    class Compiler(resident.GrammarCompiler):
        def compile(self, schema):
            return Failing()
    resident.GrammarCompiler = Compiler
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tiny_model("llama", tmp_path_factory.mktemp("model"), vocab_size=700)
    make_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"unix://{tmp_path}/e.sock"


def options(model: Path, url: str, **more: object) -> EngineOptions:
    return EngineOptions(**({"url": url, "model": model, "device": "cpu", "kv_tokens": 2048, "threads": 1} | more))


@contextlib.contextmanager
def started(chosen: EngineOptions, patch: Path | None = None) -> Iterator[subprocess.Popen[str]]:
    """A supervisor's engine; `patch` is a folder whose sitecustomize.py its processes run first."""
    with subprocess.Popen(
        [sys.executable, "-c", f"{RUN} from pathlib import PosixPath; run_engine({chosen!r})"],
        env=os.environ | ({"PYTHONPATH": str(patch)} if patch else {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    if not process.stdout.readline().startswith("thothy engine: ready"):
        pytest.fail("\n".join(ended(process)[1]))


def ended(process: subprocess.Popen[str]) -> tuple[int, list[str]]:
    _, errors = process.communicate(timeout=PATIENCE)
    return process.returncode, errors.splitlines()


def core_of(process: subprocess.Popen[str]) -> int:
    """The id of the core's process."""
    (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(child)


def is_alive(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] not in {"Z", "X"}


def until_dead(pid: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while is_alive(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def play(url: str, scene: Callable[[EngineClient], Awaitable[None]]) -> None:
    async def staged() -> None:
        client = connect(url)
        await client.start()
        async with asyncio.timeout(PATIENCE):
            await scene(client)
        await client.close()

    asyncio.run(staged())


def some_requests() -> list[GenerationRequest]:
    schema = '{"type":"object","properties":{"a":{"type":"integer","maximum":9}},"required":["a"]}'
    return [
        GenerationRequest("text", text="The garden", sampling=SamplingParams(max_tokens=12)),
        GenerationRequest("chat", messages=(Message("user", "Café 🙂?"),), sampling=SamplingParams(max_tokens=9)),
        GenerationRequest("json", text="points", schema=schema, sampling=SamplingParams(max_tokens=30)),
        GenerationRequest("drawn", text="one", sampling=SamplingParams(max_tokens=20, temperature=0.9, seed=5)),
    ]


def asking_requests() -> list[GenerationRequest]:
    """Each of them is several to the core."""
    return [
        GenerationRequest("three", text="one", sampling=ASKING, n=3),
        GenerationRequest("best", text="one", sampling=ASKING, best_of=4),
        GenerationRequest("beams", text="one", sampling=SamplingParams(max_tokens=6), n=2, beam_search=BeamSearch(3)),
    ]


async def answers(client: EngineClient, requests: list[GenerationRequest]) -> list[tuple[Choice, ...]]:
    return [(await (await client.submit(request)).result()).choices for request in requests]


def _rounded(answers: list[tuple[Choice, ...]]) -> list[tuple[Choice, ...]]:
    """Log-probabilities to three digits: how requests share steps changes the last ones."""

    def of(choice: Choice) -> Choice:
        logprobs = tuple(
            each
            and replace(
                each, logprob=round(each.logprob, 3), top_logprobs=tuple(round(v, 3) for v in each.top_logprobs)
            )
            for each in choice.logprobs
        )
        return replace(choice, logprobs=logprobs, mean_logprob=round(choice.mean_logprob or 0.0, 3))

    return [tuple(map(of, choices)) for choices in answers]


def answers_in_one_process(model: Path) -> list[tuple[Choice, ...]]:
    threads = torch.get_num_threads()
    engine = load_engine(options(model, ""))
    torch.set_num_threads(threads)

    async def ask() -> list[tuple[str, tuple[int, ...]]]:
        client = LocalEngineClient(engine.backend)
        await client.start()
        return await answers(client, [*some_requests(), *asking_requests()])

    try:
        return asyncio.run(ask())
    finally:
        engine.backend.stop()
        engine.wait_ended()


def test_two_processes_say_what_one_says_and_only_the_core_s_has_torch(model: Path, url: str) -> None:
    wanted = answers_in_one_process(model)

    async def scene(client: EngineClient) -> None:
        texts = await answers(client, some_requests())
        assert texts == wanted[: len(texts)]
        with pytest.raises(GrammarError):
            await (await client.submit(GenerationRequest("bad", text="x", schema='{"type": 5}'))).result()
        stats = await client.stats()
        assert stats.core.requests_finished == len(texts)
        assert stats.core.attributed_seconds == pytest.approx(stats.core.busy_seconds)
        assert stats.requests_refused == 1
        assert stats.memory.used_bytes > 0
        assert _rounded(await answers(client, asking_requests())) == _rounded(wanted[len(texts) :])

    with started(options(model, url)) as process:
        ready(process)
        play(url, scene)
        mapped = [Path(f"/proc/{pid}/maps").read_text() for pid in (process.pid, core_of(process))]
        assert ["libtorch" in text for text in mapped] == [False, True]
        process.send_signal(signal.SIGTERM)
        code, errors = ended(process)
    assert code == 0
    assert not any("Traceback" in line for line in errors)


def test_what_a_core_reports_as_it_starts_comes_after_ready(model: Path, url: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(REPORTS_AT_ONCE)
    with started(options(model, url), tmp_path) as process:
        ready(process)


def test_what_clients_are_told_adds_up_to_the_busy_time(model: Path, url: str, tmp_path: Path) -> None:
    """Results, failures amid the run, and what a client that vanished left behind."""

    async def scene(client: EngineClient) -> None:
        told = 0.0
        leaver = connect(url)
        await leaver.start()
        left = await leaver.submit(GenerationRequest("left", text="x", sampling=ENDLESS))
        failed = 0
        running = [await client.submit(request) for request in some_requests()]
        while not (await client.stats()).core.busy_seconds:
            pass
        await leaver.close()
        told_left = left.usage.compute_seconds if left.usage else 0.0  # if this process was held up until its end
        told += told_left
        for generation in running:
            try:
                await generation.result()
            except GrammarError:
                failed += 1
            assert generation.usage.compute_seconds > 0
            told += generation.usage.compute_seconds
        assert failed == 1
        while (stats := await client.stats()).scheduler.running or not (told_left or stats.abandoned.kept):
            pass
        abandoned = (await client.take_abandoned_usage()).requests
        assert told + sum(request.compute_seconds for request in abandoned) == pytest.approx(stats.core.busy_seconds)

    (tmp_path / "sitecustomize.py").write_text(FAILING_GRAMMARS)
    with started(options(model, url), tmp_path) as process:
        ready(process)
        play(url, scene)


def test_a_core_that_is_killed_ends_the_engine_and_those_it_had_admitted_are_named(
    model: Path, url: str, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(SLOW_UNTIL_IT_FAILS)
    with started(options(model, url, max_rows=2), tmp_path) as process:
        ready(process)
        child = core_of(process)

        async def scene(client: EngineClient) -> None:
            running, waiting = await _two_run_and_three_wait(client)
            os.kill(child, signal.SIGKILL)
            assert await errors_of(running) == [EngineLostError] * 2
            assert await errors_of(waiting) == [UninvolvedError] * 3

        play(url, scene)
        code, errors = ended(process)
    assert code == 70
    [line] = [line for line in errors if "CRITICAL" in line and "killed by SIGKILL" in line]
    assert [number for number in range(5) if f"job-{number}" in line] == [0, 1]
    assert not Path(f"{url.removeprefix('unix://')}.admitted").exists()


def test_an_engine_whose_processes_are_all_killed_leaves_a_record_of_what_it_had_admitted(
    model: Path, url: str, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(SLOW_UNTIL_IT_FAILS)
    with started(options(model, url, max_rows=2), tmp_path) as process:
        ready(process)
        child = core_of(process)

        async def scene(client: EngineClient) -> None:
            session_id = (await client.info()).session_id
            running, waiting = await _two_run_and_three_wait(client)
            os.kill(child, signal.SIGSTOP)  # nothing ends any more
            process.kill()
            assert await errors_of([*running, *waiting]) == [ConnectionLostError] * 5
            until_dead(child)
            assert [client.may_have_begun(session_id, [each.id]) for each in running] == [True] * 2
            assert [client.may_have_begun(session_id, [each.id]) for each in waiting] == [False] * 3
            assert client.may_have_begun(session_id, ["job-4", "job-0"])
            assert client.may_have_begun("of another session", ["job-4"])

        play(url, scene)


async def _two_run_and_three_wait(client: EngineClient) -> tuple[list[Generation], list[Generation]]:
    asked = [GenerationRequest(f"job-{number}", text="x", sampling=ENDLESS) for number in range(5)]
    generations = [await client.submit(request) for request in asked]
    while (await client.stats()).scheduler != SchedulerStats(2, 3):  # noqa: ASYNC110  the engine is another process
        await asyncio.sleep(0.01)
    return generations[:2], generations[2:]


async def errors_of(generations: Sequence[Generation]) -> list[type[BaseException]]:
    ends = await asyncio.gather(*(each.result() for each in generations), return_exceptions=True)
    return [type(end) for end in ends if isinstance(end, BaseException)]


def test_an_engine_that_is_killed_takes_its_core_along(model: Path, url: str) -> None:
    with started(options(model, url)) as process:
        ready(process)
        child = core_of(process)
        os.kill(child, signal.SIGSTOP)  # even if it cannot notice
        process.kill()
        process.wait(PATIENCE)
        until_dead(child)


def test_signals_to_both_processes_are_handled_once(model: Path, url: str) -> None:
    """As Ctrl-C sends them, and systemd."""
    with started(options(model, url)) as process:
        ready(process)
        child = core_of(process)

        async def scene(client: EngineClient) -> None:
            running = await client.submit(GenerationRequest("a", text="x", sampling=ENDLESS, stream=True))
            await anext(aiter(running))
            for number in (signal.SIGINT, signal.SIGTERM):
                os.kill(child, number)
            process.send_signal(signal.SIGINT)
            result = await running.result()
            assert isinstance(result, GenerationResult)
            assert result.usage.output_tokens == ENDLESS.max_tokens

        play(url, scene)
        code, errors = ended(process)
    assert code == 0
    assert not any("Traceback" in line or "KeyboardInterrupt" in line for line in errors)
    assert not is_alive(child)


def test_a_step_that_fails_there_is_reported_here(model: Path, url: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(BREAKS_THE_CORE.format("raise RuntimeError('CUDA error: illegal')"))
    with started(options(model, url), tmp_path) as process:
        ready(process)

        async def scene(client: EngineClient) -> None:
            generation = await client.submit(GenerationRequest("job-7", text="x"))
            with pytest.raises(EngineLostError):
                await generation.result()

        play(url, scene)
        code, errors = ended(process)
    assert code == 70
    critical = [line for line in errors if "CRITICAL" in line]
    assert any("job-7" in line and "CUDA error: illegal" in line for line in critical)


def test_a_step_that_fails_costs_only_its_members(model: Path, url: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(SLOW_UNTIL_IT_FAILS)
    with started(options(model, url, max_rows=2, overlap=True), tmp_path) as process:
        ready(process)

        async def scene(client: EngineClient) -> None:
            running, waiting = await _two_run_and_three_wait(client)
            (tmp_path / "now").touch()
            assert await errors_of(running) == [EngineLostError] * 2
            assert await errors_of(waiting) == [UninvolvedError] * 3

        play(url, scene)
        assert ended(process)[0] == 70


def test_a_schema_that_kills_the_core_is_the_only_one_charged(model: Path, url: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(KILLING_GRAMMARS)
    with started(options(model, url), tmp_path) as process:
        ready(process)

        async def scene(client: EngineClient) -> None:
            killer = GenerationRequest("killer", text="x", schema='{"type": "string"}')
            killing = await client.submit(killer)
            waits = await client.submit(replace(killer, id="waits"))
            assert await errors_of([killing, waits]) == [EngineLostError, UninvolvedError]

        play(url, scene)
        assert ended(process)[0] == 70


def test_a_step_that_hangs_there_is_noticed_here(model: Path, url: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(BREAKS_THE_CORE.format("time.sleep(3600)"))
    with started(options(model, url, stall_seconds=0.5), tmp_path) as process:
        ready(process)
        child = core_of(process)
        play(url, _lost)
        assert process.wait(PATIENCE) == 70
        assert not is_alive(child)
        assert process.stderr is not None
        assert "no step has ended for" in process.stderr.read()


async def _lost(client: EngineClient) -> None:
    with pytest.raises(EngineError):
        await (await client.submit(GenerationRequest("a", text="x"))).result()


@pytest.mark.parametrize("fault", ["no folder", "no weights", "memory", "tokenizer", "device"])
def test_what_keeps_a_model_from_loading_is_one_line_and_code_2(model: Path, tmp_path: Path, fault: str) -> None:
    url, chosen = f"unix://{tmp_path}/e.sock", model
    more: dict[str, object] = {}
    if fault == "no folder":
        chosen = tmp_path / "nowhere"
    elif fault in {"no weights", "tokenizer"}:
        chosen = tmp_path / "copy"
        chosen.mkdir()
        left_out = {"no weights": "model.safetensors", "tokenizer": "tokenizer.json"}[fault]
        for file in model.iterdir():
            if file.name != left_out:
                (chosen / file.name).write_bytes(file.read_bytes())
        if fault == "tokenizer":
            (chosen / "tokenizer.json").write_text("{")
    else:
        more = {"memory": {"kv_tokens": 10**12}, "device": {"device": "cuda:99"}}[fault]
    with started(options(chosen, url, **more)) as process:
        code, errors = ended(process)
    assert code == 2
    assert len(errors) == 1
    assert errors[0].startswith("thothy engine: ")
    words = {"no folder": "no such file", "no weights": "safetensors", "memory": "GB", "tokenizer": "tokenizer"}
    assert words.get(fault, "cuda:99") in errors[0]


def test_an_error_that_nobody_expected_is_a_traceback_and_code_1(model: Path, url: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        'import sys\nif "thothy_ai.engine.process.core_process" in sys.orig_argv:\n'
        "    from thothy_ai.engine.process import resident\n    resident.load = lambda *_: 1 / 0\n"
    )
    with started(options(model, url), tmp_path) as process:
        code, errors = ended(process)
    assert code == 1
    assert any("ZeroDivisionError" in line for line in errors)


def test_a_core_that_is_killed_as_it_loads_is_one_line_and_code_2(model: Path, url: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        'import os, sys\nif "thothy_ai.engine.process.core_process" in sys.orig_argv:\n    os.kill(os.getpid(), 9)\n'
    )
    with started(options(model, url), tmp_path) as process:
        code, errors = ended(process)
    assert (code, len(errors)) == (2, 1)
    assert "killed by SIGKILL" in errors[0]
