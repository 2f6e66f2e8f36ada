"""The bundled model in its two processes: no text is cut off, loops are stopped, and a client can look early."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.patience import PATIENCE
from tests.support.served_engine import served
from thothy_ai.demo.sources import load_sources
from thothy_ai.engine.api import FinishReason, GenerationRequest, GenerationResult, SamplingParams
from thothy_ai.engine.api.errors import BudgetTooSmallError
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.checkpoint.bundled import bundled_model_path
from thothy_ai.engine.process.remote_engine import RemoteEngine, start_remote
from thothy_ai.engine.serving.client import EngineClient, connect
from thothy_ai.jobs.schema import prose_pattern

SCHEMA = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "pattern": prose_pattern(3, 80)},
        "points": {
            "type": "array",
            "items": {"type": "string", "pattern": prose_pattern(10, 200)},
            "minItems": 1,
            "maxItems": 9,
        },
        "sure": {"type": "boolean"},
    },
    "required": ["title", "points", "sure"],
    "additionalProperties": False,
}
LOOP = "The garden waits for rain and the kettle sings. "
Body = Callable[[EngineClient], Coroutine[Any, Any, None]]


@pytest.fixture(scope="module")
def engine() -> Iterator[RemoteEngine]:
    running = start_remote(EngineOptions("unix:///unused", bundled_model_path(), device="cpu", kv_tokens=8192))
    yield running
    running.backend.stop()
    running.wait_ended()
    running.close()


@pytest.fixture
def with_client(engine: RemoteEngine, tmp_path: Path) -> Iterator[Callable[[Body], None]]:
    """Runs a body with a client."""
    url = f"unix://{tmp_path}/engine.sock"

    async def connected(body: Body) -> None:
        client = connect(url)
        async with asyncio.timeout(PATIENCE):
            await client.start()
            await body(client)
            await client.close()

    with served(engine.backend, url):
        yield lambda body: asyncio.run(connected(body))


def asked(id_: str, budget: int, **fields: Any) -> GenerationRequest:
    source = load_sources()[0].text
    sampling = SamplingParams(max_tokens=budget, temperature=0.7, seed=budget)
    return GenerationRequest(id_, text=f"{source}\n\nThe main points as JSON: ", sampling=sampling, **fields)


def test_no_text_under_a_schema_is_cut_off(with_client: Callable[[Body], None]) -> None:
    async def body(client: EngineClient) -> None:
        schema = json.dumps(SCHEMA)
        budgets = (30, 45, 60, 90, 140)
        requests = [await client.submit(asked(str(budget), budget, schema=schema)) for budget in budgets]
        for budget, request in zip(budgets, requests, strict=True):
            result = await request.result()
            assert result.finish_reason is FinishReason.STOP, result.text
            assert list(json.loads(result.text)) == ["title", "points", "sure"]
            assert result.usage.output_tokens <= budget
        with pytest.raises(BudgetTooSmallError):
            await (await client.submit(asked("small", 5, schema=schema))).result()

    with_client(body)


def looping(id_: str, budget: int = 300, **fields: Any) -> GenerationRequest:
    """The greedy model goes on as the prompt does."""
    return GenerationRequest(id_, text=LOOP * 8, sampling=SamplingParams(max_tokens=budget, ignore_eos=True), **fields)


def test_a_loop_is_stopped_and_what_it_cost_is_known(with_client: Callable[[Body], None]) -> None:
    async def body(client: EngineClient) -> None:
        before = (await client.stats()).text
        result = await (await client.submit(looping("stopped", stop_repetition=True))).result()
        assert result.finish_reason is FinishReason.REPETITION
        assert result.text.count("kettle") in {3, 4}
        assert result.usage.compute_seconds > 0
        after = (await client.stats()).text
        saved = 300 - result.usage.output_tokens
        assert saved > 200
        assert (after.repetitions - before.repetitions, after.saved_tokens - before.saved_tokens) == (1, saved)

    with_client(body)


def test_a_client_that_dislikes_the_first_words_aborts(with_client: Callable[[Body], None]) -> None:
    async def body(client: EngineClient) -> None:
        generation = await client.submit(looping("early", budget=1500, report_after=12))  # far from its end by then
        early = await generation.early_text()
        assert LOOP.startswith(early[:20].lstrip())
        await generation.abort()
        result: GenerationResult = await generation.result()
        assert result.finish_reason is FinishReason.ABORTED
        assert result.text.startswith(early)
        assert 12 <= result.usage.output_tokens < 1500
        assert result.usage.compute_seconds > 0

    with_client(body)
