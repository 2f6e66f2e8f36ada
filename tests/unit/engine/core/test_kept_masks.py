"""Masks that the device keeps, through the core: few places, steps that run out of memory, and no other outputs."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from tests.support.engine_driver import Collected, EngineDriver, GrammarRequest
from tests.support.json_schemas import record, text
from tests.support.loading import load_model
from tests.support.oracle import ROOMY
from tests.support.tiny_models import tiny_model
from thothy_ai.engine.api import SamplingParams
from thothy_ai.engine.execution import mask_table
from thothy_ai.engine.execution.runner import Runner
from thothy_ai.engine.execution.step_handle import StepHandle
from thothy_ai.engine.grammar import memory as grammar_memory
from thothy_ai.engine.grammar.compiler import GrammarCompiler
from thothy_ai.engine.process.build import build_core
from thothy_ai.engine.text.model_text import core_tokenizer
from thothy_ai.engine.weights.loader import LoadedModel

pytestmark = pytest.mark.slow

VOCAB = 750  # not a multiple of 32, and more than the tokenizer's
EOS = (0, 2)
MOST = 40
OPTIONS = replace(ROOMY, max_context=120, kv_tokens=400)


SCHEMAS = (
    record(a=text("^[a-zé日]{1,60}$"), b=text("^[^a]{0,9}$")),
    record(a=text("^[ab][x]{10,40}$")),
    record(a=text(r"^[^\x00-\x08]{1,25}$"), b=text(r'^["\\n]{1,9}$')),
    {"type": "object", "properties": {"a": {"enum": ["x", "xy"]}}, "required": ["a"]},
)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder: Path = tmp_path_factory.mktemp("model")
    return load_model(tiny_model("llama", folder, vocab_size=VOCAB), device=torch.device("cpu"), dtype=torch.float32)


@pytest.fixture
def few_places(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (grammar_memory, mask_table):
        monkeypatch.setattr(module, "remembered_masks", lambda _: 3)


def requests(tokenizer: PreTrainedTokenizerFast) -> Iterator[GrammarRequest]:
    """Some with a schema, half of these led to their end, some with log-probabilities."""
    draw, compiler = random.Random(8), GrammarCompiler(core_tokenizer(tokenizer), VOCAB, EOS, lexers=2)
    for number in range(24):
        prompt = tuple(draw.randrange(3, 700) for _ in range(draw.randrange(3, 40)))
        sampling = SamplingParams(MOST, temperature=1.0, seed=number, logprobs=1 if number % 3 == 0 else None)
        grammar = compiler.compile(json.dumps(draw.choice(SCHEMAS))) if number % 4 else None
        if grammar is not None and number % 2:
            grammar.limit(MOST)
        yield GrammarRequest(str(number), prompt, sampling, grammar=grammar)


def run(loaded: LoadedModel, tokenizer: PreTrainedTokenizerFast) -> Collected:
    with EngineDriver(lambda on_events: build_core(loaded, OPTIONS, on_events)) as driver:
        return driver.run(requests(tokenizer))


def outputs(collected: Collected) -> dict[str, tuple[list[int], str]]:
    return {id_: (collected.tokens[id_], str(event.reason)) for id_, event in collected.finished.items()}


def test_few_places_and_retried_steps_change_no_output(
    loaded: LoadedModel,
    tokenizer: PreTrainedTokenizerFast,
    few_places: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A step that ran out of memory is sampled again, after its new masks reached the table or before."""
    sample, forward, draw, failed = Runner.sample, Runner.forward, random.Random(5), list[StepHandle]()

    def sampled(runner, handle, masks):
        again = any(handle is each for each in failed)
        fate = draw.random() if masks is not None and not again else 1.0
        if fate < 0.2:
            failed.append(handle)
            if fate < 0.1:
                sample(runner, handle, masks)
            raise torch.OutOfMemoryError("CUDA out of memory")
        sample(runner, handle, masks)

    def forwarded(runner, step):
        if step.num_tokens > 1 and draw.random() < 0.1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(runner, step)

    monkeypatch.setattr(Runner, "sample", sampled)
    monkeypatch.setattr(Runner, "forward", forwarded)
    found = run(loaded, tokenizer)
    monkeypatch.undo()
    assert len(failed) > 2
    assert outputs(found) == outputs(run(loaded, tokenizer))
