"""Requests with schemas and tight budgets through the whole engine: each text is complete, however it was scheduled."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.support.byte_tokenizer import SCHEMA, byte_compiler
from tests.support.engine_driver import EngineDriver, GrammarRequest
from tests.support.loading import load_model
from tests.support.oracle import ROOMY, random_prompts
from tests.support.tiny_models import tiny_model
from thothy_ai.engine.api import FinishReason, SamplingParams
from thothy_ai.engine.grammar import batch as grammar_batch
from thothy_ai.engine.grammar.compiler import GrammarCompiler
from thothy_ai.engine.grammar.json_schema import JsonGrammar
from thothy_ai.engine.process.build import build_core
from thothy_ai.engine.weights.loader import LoadedModel
from thothy_ai.jobs.schema import prose_pattern

pytestmark = pytest.mark.slow

ARTICLE = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "pattern": prose_pattern(3, 30)},
        "points": {
            "type": "array",
            "items": {"type": "string", "pattern": "^[a-z ]{4,30}[.]$"},
            "minItems": 1,
            "maxItems": 5,
        },
        "count": {"type": "integer", "minimum": 1, "maximum": 2000},
    },
    "required": ["title", "points", "count"],
    "additionalProperties": False,
}
SIZES = replace(ROOMY, max_context=200, kv_tokens=1600)
SPARES = (0, 1, 3, 10, 25, 60)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder = tiny_model("llama", tmp_path_factory.mktemp("closing"), vocab_size=300)
    return load_model(folder, device=torch.device("cpu"), dtype=torch.float32)


@pytest.fixture(scope="module")
def compiler() -> GrammarCompiler:
    return byte_compiler()


def requests(compiler: GrammarCompiler) -> list[GrammarRequest]:
    """One per schema and budget, sampled, each with its limit."""
    made = []
    for number, (schema, spare) in enumerate((schema, spare) for schema in (ARTICLE, SCHEMA) for spare in SPARES):
        grammar = compiler.compile(json.dumps(schema))
        assert isinstance(grammar, JsonGrammar)
        assert grammar._lexers.outline is not None
        budget = grammar._lexers.outline.shortest + spare
        grammar.limit(budget)
        sampling = SamplingParams(max_tokens=budget, temperature=1.0, seed=number, ignore_eos=True)
        made.append(GrammarRequest(str(number), random_prompts(300)[number % 8], sampling, grammar=grammar))
    return made


def texts(loaded: LoadedModel, compiler: GrammarCompiler, **changes: Any) -> Mapping[str, bytes]:
    asked = requests(compiler)
    assert isinstance(asked[0].grammar, JsonGrammar)
    table = asked[0].grammar.tokens.table
    with EngineDriver(lambda events: build_core(loaded, replace(SIZES, **changes), events)) as driver:
        collected = driver.run(asked)
    assert {end.reason for end in collected.finished.values()} == {FinishReason.STOP}
    return {name: b"".join(table[token] for token in tokens) for name, tokens in collected.tokens.items()}


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("sizes", [{}, {"kv_tokens": 200}, {"token_budget": 7}], ids=str)
def test_every_text_is_complete_and_the_same(
    loaded: LoadedModel, compiler: GrammarCompiler, sizes: dict[str, int], *, overlap: bool
) -> None:
    found = texts(loaded, compiler, overlap=overlap, **sizes)
    assert len(found) == 2 * len(SPARES)
    for data in found.values():
        value = json.loads(data)
        assert list(value) in (list(ARTICLE["properties"]), list(SCHEMA["properties"]))
    assert found == texts(loaded, compiler, overlap=not overlap)


DATED = {"type": "object", "properties": {name: {"type": "string", "format": "date-time"} for name in "abc"}}
UUID = "^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"
NUMBERED = {"type": "array", "items": {"type": "string", "pattern": UUID}}


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize(("schema", "count"), [(DATED, 24), (NUMBERED, 4)], ids=["dates", "uuids"])
def test_ending_texts_delay_no_other(
    loaded: LoadedModel,
    compiler: GrammarCompiler,
    monkeypatch: pytest.MonkeyPatch,
    schema: dict[str, Any],
    count: int,
) -> None:
    """A neighbour without a schema waits for the masks of a step: their work on the core's thread is a few ms."""
    spent: list[float] = []
    finish = grammar_batch._Work.finish

    def measured(work: grammar_batch._Work) -> list[int]:
        begun = time.thread_time()
        lacking = finish(work)
        spent.append(time.thread_time() - begun)
        return lacking

    monkeypatch.setattr(grammar_batch._Work, "finish", measured)
    asked = [GrammarRequest("free", random_prompts(300)[0], SamplingParams(max_tokens=120, ignore_eos=True))]
    for number in range(count):
        grammar = compiler.compile(json.dumps(schema))
        grammar.limit(80 + number)
        sampling = SamplingParams(max_tokens=80 + number, temperature=1.0, seed=number, ignore_eos=True)
        asked.append(GrammarRequest(str(number), random_prompts(300)[number % 8], sampling, grammar=grammar))
    sizes = replace(SIZES, max_rows=count + 1, kv_tokens=8000)
    with EngineDriver(lambda events: build_core(loaded, sizes, events)) as driver:
        collected = driver.run(asked)
    ends = {name: end.reason for name, end in collected.finished.items() if name != "free"}
    assert {*ends.values()} == {FinishReason.STOP}
    assert max(spent) < 0.05


def test_without_a_limit_they_are_cut_off(loaded: LoadedModel, compiler: GrammarCompiler) -> None:
    """What the others would be without one."""
    asked = [replace(each, grammar=compiler.compile(json.dumps(ARTICLE))) for each in requests(compiler)[:6]]
    with EngineDriver(lambda events: build_core(loaded, SIZES, events)) as driver:
        collected = driver.run(asked)
    assert FinishReason.LENGTH in {end.reason for end in collected.finished.values()}
