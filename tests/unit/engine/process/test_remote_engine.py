"""The engine's two processes as a supervisor and a client see them, with a small random model."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks.one_process import load_engine
from tests.support.adapter_oracle import adaptable
from tests.support.engine_process import ENDLESS, core_of, ended, options, ready, started, with_client
from tests.support.local_client import LocalEngineClient
from tests.support.peft_folders import adapter_tensors, write_adapter
from thothy_ai.engine.api import BeamSearch, Choice, GenerationRequest, LogitBias, Message, SamplingParams
from thothy_ai.engine.api.errors import AdapterLoadError, GrammarError, UnknownAdapterError
from thothy_ai.engine.serving.client import EngineClient, connect

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


REPORTS_AT_ONCE = """
import sys
if "thothy_ai.engine.process.core_process" in sys.orig_argv:
    import threading
    from thothy_ai.engine.process import resident
    from thothy_ai.engine.wire.channel import Channel
    reported = threading.Event()
    send = Channel.send
    def recorded(self, message):
        send(self, message)
        if type(message).__name__ == "StepReport":
            reported.set()
    Channel.send = recorded
    start_core = resident.start_core
    def reporting(loaded, options, on_events, *rest):
        on_events([])
        return start_core(loaded, options, on_events, *rest)
    resident.start_core = reporting
    thread_start = threading.Thread.start
    def started(self):
        thread_start(self)
        if self.name == "engine-reports":
            reported.wait()
    threading.Thread.start = started
"""

NO_TRANSFORMERS = """
import sys
if "thothy_ai.engine.process.core_process" in sys.orig_argv:
    sys.modules["transformers"] = None
"""

FAILING_GRAMMARS = """
import sys
if "thothy_ai.engine.process.core_process" in sys.orig_argv:
    from thothy_ai.engine.api.errors import AdapterLoadError, GrammarError, UnknownAdapterError
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

HELD_STEPS = """
    import time
    from pathlib import Path
    from thothy_ai.engine.execution.runner import Runner
    steps, forward = [], Runner.forward
    def held(self, step):
        while steps and not (Path(__file__).parent / "left").exists():
            time.sleep(0.01)
        steps.append(1)
        return forward(self, step)
    Runner.forward = held
"""


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


def _without_scores(answers: list[tuple[Choice, ...]]) -> tuple[list[tuple[Choice, ...]], list[float]]:
    """The answers and their log-probabilities, whose last digits depend on how requests share steps."""
    scores = list[float]()

    def of(choice: Choice) -> Choice:
        scores.append(choice.mean_logprob or 0.0)
        for each in filter(None, choice.logprobs):
            scores.extend((each.logprob, *each.top_logprobs))
        logprobs = tuple(
            each and replace(each, logprob=0.0, top_logprobs=(0.0,) * len(each.top_logprobs))
            for each in choice.logprobs
        )
        return replace(choice, logprobs=logprobs, mean_logprob=choice.mean_logprob and 0.0)

    return [tuple(map(of, choices)) for choices in answers], scores


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


def test_two_processes_say_what_one_says_and_share_no_large_library(model: Path, url: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(NO_TRANSFORMERS)
    wanted = answers_in_one_process(model)

    async def body(client: EngineClient) -> None:
        texts = await answers(client, some_requests())
        assert texts == wanted[: len(texts)]
        with pytest.raises(GrammarError):
            await (await client.submit(GenerationRequest("bad", text="x", schema='{"type": 5}'))).result()
        stats = await client.stats()
        assert stats.core.requests_finished == len(texts)
        assert stats.core.attributed_seconds == pytest.approx(stats.core.busy_seconds)
        assert stats.requests_refused == 1
        assert stats.memory.used_bytes > 0
        found, scores = _without_scores(await answers(client, asking_requests()))
        same, wanted_scores = _without_scores(wanted[len(texts) :])
        assert found == same
        assert scores == pytest.approx(wanted_scores, rel=0, abs=1e-3)

    with started(options(model, url), tmp_path) as process:
        ready(process)
        with_client(url, body)
        mapped = [Path(f"/proc/{pid}/maps").read_text() for pid in (process.pid, core_of(process))]
        assert ["libtorch" in text for text in mapped] == [False, True]
        process.send_signal(signal.SIGTERM)
        code, errors = ended(process)
    assert code == 0
    assert not any("Traceback" in line for line in errors)


def test_adapters_are_loaded_at_start_and_while_the_engine_runs(model: Path, url: str, tmp_path: Path) -> None:
    modules = adaptable(model)
    one, two = (
        str(write_adapter(tmp_path / name, adapter_tensors(modules, 4, seed, scale=2.0), 4))
        for seed, name in enumerate(("one", "two"))
    )

    async def text(client: EngineClient, adapter: str) -> str:
        sampling = SamplingParams(max_tokens=20, ignore_eos=True)
        request = GenerationRequest(f"of {adapter}", text="Once upon a time", sampling=sampling, adapter=adapter)
        return (await (await client.submit(request)).result()).text

    async def body(client: EngineClient) -> None:
        before = await client.stats()
        assert (before.adapters.changes, before.adapters.loaded) == (1, 1)
        loaded = await client.load_adapter("second", two)
        assert (loaded.name, loaded.rank, loaded.folder) == ("second", 4, two)
        assert [each.name for each in await client.adapters()] == ["first", "second"]
        texts = [await text(client, name) for name in ("", "first", "second")]
        assert len({*texts}) == 3
        with pytest.raises(AdapterLoadError, match="No such file"):
            await client.load_adapter("third", str(tmp_path / "none"))
        await client.unload_adapter("first")
        with pytest.raises(UnknownAdapterError, match="first"):
            await text(client, "first")
        assert await client.load_adapter("first", one) in await client.adapters()
        assert await text(client, "first") == texts[1]
        while (await client.stats()).adapters.changes != 4:  # with the next step
            pass

    with started(options(model, url, adapters=(f"first={one}",))) as process:
        ready(process)
        with_client(url, body)
        process.send_signal(signal.SIGTERM)
        assert ended(process)[0] == 0


def test_an_engine_does_not_start_with_an_adapter_that_is_not_there(model: Path, url: str) -> None:
    with started(options(model, url, adapters=("first=/nowhere",))) as process:
        code, lines = ended(process)
    assert code == 2  # as for a model
    assert "/nowhere" in lines[-1]


def test_what_a_core_reports_as_it_starts_comes_after_ready(model: Path, url: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(REPORTS_AT_ONCE)
    with started(options(model, url), tmp_path) as process:
        ready(process)


def test_what_clients_are_told_adds_up_to_the_busy_time(model: Path, url: str, tmp_path: Path) -> None:
    """Results, failures amid the run, and what a client that vanished left behind."""

    async def body(client: EngineClient) -> None:
        told = 0.0
        leaver = connect(url)
        await leaver.start()
        await leaver.submit(GenerationRequest("left", text="x", sampling=ENDLESS))
        failed = 0
        running = [await client.submit(request) for request in some_requests()]
        while not (await client.stats()).core.busy_seconds:
            pass
        await leaver.close()
        (tmp_path / "left").touch()
        for generation in running:
            try:
                await generation.result()
            except GrammarError:
                failed += 1
            assert generation.usage.compute_seconds > 0
            told += generation.usage.compute_seconds
        assert failed == 1
        while (stats := await client.stats()).scheduler.running or not stats.abandoned.kept:
            pass
        abandoned = (await client.take_abandoned_usage()).requests
        assert told + sum(request.compute_seconds for request in abandoned) == pytest.approx(stats.core.busy_seconds)

    (tmp_path / "sitecustomize.py").write_text(FAILING_GRAMMARS + HELD_STEPS)
    with started(options(model, url), tmp_path) as process:
        ready(process)
        with_client(url, body)
