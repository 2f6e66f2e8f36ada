"""The null engine: valid answers, the contract of a backend, and no torch."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
from typing import Any

import pytest
from llguidance import LLMatcher

from tests.support.patience import PATIENCE
from thothy_ai.engine.api import BeamSearch, Delta, FinishReason, GenerationRequest, GenerationResult, SamplingParams
from thothy_ai.engine.api.backend import Failure, Output
from thothy_ai.engine.api.errors import EngineNotAcceptingError, EngineStoppedError, GrammarError, InvalidRequestError
from thothy_ai.engine.grammar.compiler import GrammarCompiler
from thothy_ai.engine.grammar.dialect import source_of
from thothy_ai.engine.null.backend import NullEngine
from thothy_ai.engine.null.instances import instance_text
from thothy_ai.engine.text.model_text import core_tokenizer

SCHEMAS: list[dict[str, Any]] = [
    {"type": "string"},
    {"type": "string", "minLength": 200, "maxLength": 220},
    {"type": "string", "maxLength": 3},
    {"type": "string", "minLength": 3, "maxLength": 3, "pattern": "^[a-z]+$"},
    {"type": "string", "pattern": "^[A-Z][a-z ]{10,60}[.]$"},
    {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"},
    {"type": "string", "pattern": "^[a-z]+(-[a-z]+)*$"},
    {"enum": ["second", "first"]},
    {"const": {"a": [1, None]}},
    {"type": "integer", "minimum": 3, "maximum": 9},
    {"type": "integer", "exclusiveMinimum": 3},
    {"type": "integer", "minimum": 7, "multipleOf": 5},
    {"type": "number", "minimum": 0.25, "maximum": 0.75},
    {"type": "integer", "maximum": -4},
    {"type": ["null", "string"]},
    {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
    {"type": "array", "items": {"type": "string", "maxLength": 40}, "minItems": 3, "maxItems": 5},
    {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "null"}], "items": False, "minItems": 2},
    {
        "$defs": {"point": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}},
        "type": "object",
        "properties": {"p": {"$ref": "#/$defs/point"}, "q": {"type": "string"}, "optional": {"type": "string"}},
        "required": ["q", "p"],
    },
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=json.dumps)
def test_answers_are_what_the_grammar_accepts(schema: dict[str, Any], tokenizer: Any) -> None:
    """Held against the real grammar, so that the null engine answers as a real one could."""
    text = instance_text(json.dumps(schema))
    assert text == instance_text(json.dumps(schema))
    grammar = GrammarCompiler(core_tokenizer(tokenizer), 700, (0, 2)).compile(json.dumps(schema))
    matcher: LLMatcher = grammar.matcher
    # A grammar may have a space after colons, which the null engine leaves out.
    text = json.dumps(json.loads(text), separators=(",", source_of(json.dumps(schema)).colon), ensure_ascii=False)
    assert matcher.consume_tokens(tokenizer.encode(text, add_special_tokens=False)), matcher.get_error()
    assert matcher.is_accepting()


def test_strings_of_one_instance_differ() -> None:
    schema = {"type": "array", "items": {"type": "string", "maxLength": 120}, "minItems": 5}
    assert len(set(json.loads(instance_text(json.dumps(schema))))) == 5


@pytest.mark.parametrize(
    "schema",
    [
        "{",
        "[]",
        '{"$ref": "#/nowhere"}',
        '{"$ref": "#"}',
        '{"type": "colour"}',
        '{"enum": []}',
        '{"type": "string", "pattern": "^[\u0600-\u0610]{30}$"}',
    ],
)
def test_what_can_not_be_answered_is_a_grammar_error(schema: str) -> None:
    with pytest.raises(GrammarError):
        instance_text(schema)


def outputs_of(engine: NullEngine, request: GenerationRequest) -> list[Output]:
    heard: list[Output] = []
    engine.submit(request, heard.extend)
    return heard


def test_results_deltas_and_counters() -> None:
    engine = NullEngine()
    (plain,) = outputs_of(engine, GenerationRequest("a", text="one two", sampling=SamplingParams(max_tokens=5)))
    delta, streamed = outputs_of(engine, GenerationRequest("b", text="one", stream=True, schema='{"type":"null"}'))
    (refused,) = outputs_of(engine, GenerationRequest("c"))
    (odd,) = outputs_of(engine, GenerationRequest("d", text="x", schema="{"))
    assert isinstance(plain, GenerationResult)
    assert (plain.usage.prompt_tokens, plain.usage.output_tokens, len(plain.text.split())) == (2, 5, 5)
    assert plain.finish_reason is FinishReason.STOP
    assert delta == Delta("b", "null", streamed.token_ids)
    assert isinstance(refused, Failure)
    assert isinstance(refused.error, InvalidRequestError)
    assert isinstance(odd, Failure)
    assert isinstance(odd.error, GrammarError)
    stats = engine.stats()
    assert (stats.core.requests_finished, stats.requests_refused) == (2, 2)
    assert (stats.scheduler.running, stats.core.output_tokens) == (0, 6)


def test_choices_log_probabilities_and_minimum_tokens() -> None:
    engine = NullEngine()
    sampling = SamplingParams(max_tokens=90, temperature=1.0, min_tokens=80, logprobs=2)
    request = GenerationRequest("a", text="x", sampling=sampling, n=2, best_of=3, stream=True)
    *deltas, result = outputs_of(engine, request)
    assert isinstance(result, GenerationResult)
    assert [delta.choice for delta in deltas] == [0, 1]
    assert [choice.text for choice in result.choices] == [delta.text for delta in deltas]
    assert len(result.token_ids) == len(result.logprobs) == 80
    assert {len(each.top_tokens) for each in result.logprobs} == {2}
    assert (result.mean_logprob, result.usage.output_tokens) == (0.0, 3 * 80)
    (beams,) = outputs_of(engine, GenerationRequest("b", text="x", n=3, beam_search=BeamSearch(4)))
    assert len(beams.choices) == 3


def test_latency_abort_stop_accepting_and_stop() -> None:
    engine = NullEngine(latency=3600.0)
    heard: queue.SimpleQueue[list[Output]] = queue.SimpleQueue()
    for id_ in ("a", "b"):
        engine.submit(GenerationRequest(id_, text="x"), heard.put)
    engine.submit(GenerationRequest("a", text="x"), heard.put)
    (again,) = heard.get(timeout=PATIENCE)
    assert isinstance(again, Failure)
    assert engine.stats().scheduler.running == 2
    engine.abort("a")
    engine.abort("unknown")
    (aborted,) = heard.get(timeout=PATIENCE)
    assert isinstance(aborted, GenerationResult)
    assert aborted.finish_reason is FinishReason.ABORTED
    engine.stop_accepting()
    engine.submit(GenerationRequest("late", text="x"), heard.put)
    (late,) = heard.get(timeout=PATIENCE)
    assert isinstance(late, Failure)
    assert isinstance(late.error, EngineNotAcceptingError)
    engine.stop()
    (lost,) = heard.get(timeout=PATIENCE)
    assert isinstance(lost, Failure)
    assert (lost.id, type(lost.error)) == ("b", EngineStoppedError)


def test_an_early_report_comes_before_the_result() -> None:
    engine = NullEngine()
    heard: queue.SimpleQueue[list[Output]] = queue.SimpleQueue()
    for id_, count in (("a", 5), ("b", 7)):
        sampling = SamplingParams(max_tokens=6)
        engine.submit(GenerationRequest(id_, text="x", sampling=sampling, report_after=count), heard.put)
    early, result = heard.get(timeout=PATIENCE)
    assert isinstance(result, GenerationResult)
    assert early == Delta("a", result.text, result.token_ids)
    assert len(heard.get(timeout=PATIENCE)) == 1


def test_a_latency_is_waited_for() -> None:
    engine = NullEngine(latency=0.01)
    heard: queue.SimpleQueue[list[Output]] = queue.SimpleQueue()
    for id_ in "abc":
        engine.submit(GenerationRequest(id_, text="x"), heard.put)
    results = [heard.get(timeout=PATIENCE)[0] for _ in "abc"]
    assert [result.id for result in results] == ["a", "b", "c"]
    assert all(result.usage.compute_seconds == 0.01 for result in results)
    engine.stop()


@pytest.mark.parametrize(
    "module", ["null.backend", "serving.client", "serving.server", "process.main", "process.core_process"]
)
def test_it_imports_without_torch(module: str) -> None:
    code = f"import sys, thothy_ai.engine.{module}; print([m for m in ('torch', 'transformers') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
