"""Client, frontend and a real core together, over a model whose right answer is known."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from tests.support.arithmetic_model import VOCAB, arithmetic_core, continuation
from tests.support.local_client import LocalEngineClient
from tests.support.patience import PATIENCE
from tests.support.scripted_backend import run_in_loop
from thothy_ai.engine.api import BeamSearch, FinishReason, GenerationRequest, SamplingParams
from thothy_ai.engine.api.core import OnEvents
from thothy_ai.engine.api.errors import (
    EngineNotAcceptingError,
    EngineStoppedError,
    InvalidRequestError,
    PromptTooLongError,
)
from thothy_ai.engine.api.limits import EngineConfig
from thothy_ai.engine.core.loop import EngineCore
from thothy_ai.engine.grammar.compiler import GrammarCompiler
from thothy_ai.engine.text.frontend import Frontend, TextTools
from thothy_ai.engine.text.model_text import core_tokenizer
from thothy_ai.engine.text.prompts import PromptEncoder
from thothy_ai.engine.text.token_bytes import TokenBytes

LETTERS = TokenBytes(tuple(chr(0x41 + token).encode() for token in range(VOCAB)), drops_first_space=False)
CONFIG = EngineConfig(block_size=2, num_blocks=2000, max_rows=4, token_budget=16, max_context=4000)
PROMPT = (3, 1, 4, 1, 5)
MANY = 3000  # tokens, which take the core many seconds
ENDLESS = SamplingParams(max_tokens=MANY)


def text_after(count: int) -> str:
    return "".join(chr(0x41 + token) for token in continuation(list(PROMPT), count))


@pytest.fixture(params=[False, True], ids=["one after another", "overlap"])
def engine(request: pytest.FixtureRequest, tokenizer: PreTrainedTokenizerFast) -> Iterator[tuple[Frontend, EngineCore]]:
    config = replace(CONFIG, overlap=request.param)
    cores: list[EngineCore] = []

    def make_core(on_events: OnEvents) -> EngineCore:
        grammars = GrammarCompiler(core_tokenizer(tokenizer), VOCAB, (0,))
        cores.append(arithmetic_core(config, on_events, grammars=grammars))
        return cores[0]

    frontend = Frontend(TextTools(PromptEncoder(tokenizer), LETTERS), make_core)
    cores[0].start()
    yield frontend, cores[0]
    frontend.stop()
    assert cores[0].join(PATIENCE)


async def started(frontend: Frontend) -> LocalEngineClient:
    client = LocalEngineClient(frontend)
    await client.start()
    return client


def ask(id_: str, **sampling: Any) -> GenerationRequest:
    params = SamplingParams(**sampling) if sampling else ENDLESS
    return GenerationRequest(id_, token_ids=PROMPT, sampling=params, stream=True)


def test_tokens_and_text_are_the_models(engine: tuple[Frontend, EngineCore]) -> None:
    async def body() -> None:
        client = await started(engine[0])
        generations = [await client.submit(ask(f"r{count}", max_tokens=count)) for count in (1, 7, 30, 12, 50)]
        for generation, count in zip(generations, (1, 7, 30, 12, 50), strict=True):
            deltas = [delta.text async for delta in generation]
            result = await generation.result()
            assert result.text == "".join(deltas) == text_after(count)
            assert (result.finish_reason, result.usage.output_tokens) == (FinishReason.LENGTH, count)
        await client.close()

    run_in_loop(body())


def test_a_stop_string_ends_the_core_s_work_and_counts_as_finished(engine: tuple[Frontend, EngineCore]) -> None:
    async def body() -> None:
        client = await started(engine[0])
        stop = text_after(23)[20:]
        result = await (await client.submit(ask("a", max_tokens=MANY, stop=(stop,)))).result()
        assert result.text == text_after(23)[: text_after(23).index(stop)]
        assert result.finish_reason is FinishReason.STOP
        stats = await client.stats()
        assert (stats.core.requests_finished, stats.core.requests_aborted, stats.scheduler.running) == (1, 0, 0)
        assert stats.core.output_tokens < MANY
        await client.close()

    run_in_loop(body())


def test_an_abort_keeps_the_text_so_far(engine: tuple[Frontend, EngineCore]) -> None:
    async def body() -> None:
        client = await started(engine[0])
        generation = await client.submit(ask("a"))
        await anext(aiter(generation))
        await generation.abort()
        result = await generation.result()
        assert result.finish_reason is FinishReason.ABORTED
        assert result.text
        assert result.text == text_after(len(result.token_ids))
        assert (await client.stats()).core.requests_aborted == 1
        await client.close()

    run_in_loop(body())


def test_an_accepted_beam_search_takes_all_its_steps_after_stop_accepting(engine: tuple[Frontend, EngineCore]) -> None:
    async def body() -> None:
        client = await started(engine[0])
        search = GenerationRequest(
            "beams", token_ids=PROMPT, sampling=SamplingParams(max_tokens=40), beam_search=BeamSearch(width=2)
        )
        generation = await client.submit(search)
        await client.stop_accepting()
        with pytest.raises(EngineNotAcceptingError):
            await (await client.submit(ask("late"))).result()
        result = await generation.result()
        assert len(result.token_ids) == 40
        await client.close()

    run_in_loop(body())


def test_refusals_stop_accepting_and_stop(engine: tuple[Frontend, EngineCore]) -> None:
    async def body() -> None:
        frontend, core = engine
        client = await started(frontend)
        with pytest.raises(PromptTooLongError):
            await (await client.submit(GenerationRequest("long", token_ids=(1,) * 5000))).result()
        with pytest.raises(InvalidRequestError, match="vocabulary"):
            await (await client.submit(GenerationRequest("odd", token_ids=(VOCAB,)))).result()
        with pytest.raises(InvalidRequestError, match="empty"):
            await (await client.submit(GenerationRequest("empty", text=""))).result()
        running = await client.submit(ask("running"))
        await anext(aiter(running))
        await client.stop_accepting()
        with pytest.raises(EngineNotAcceptingError):
            await (await client.submit(ask("late"))).result()
        frontend.stop()
        with pytest.raises(EngineStoppedError):
            await running.result()
        assert await asyncio.to_thread(core.join, PATIENCE)
        assert frontend.stats().requests_refused == 3  # the core has counted its own by now; the late one it never saw
        await client.close()

    run_in_loop(body())
