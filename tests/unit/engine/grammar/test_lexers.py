"""Grammars that share lexers, on threads: masks are llguidance's own, and a lexer that breaks takes no text along."""

from __future__ import annotations

import json
import random
import re
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import llguidance.hf
import numpy as np
import pytest
import torch
from llguidance import LLExecutor, LLMatcher, LLParserLimits
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerFast

from tests.support.grammars import compiled
from tests.support.json_schemas import record
from tests.support.masks import Masks
from tests.support.patience import PATIENCE
from tests.support.plans import PLAIN
from thothy_ai.engine.api.errors import EngineError, GrammarError, ModelLoadError
from thothy_ai.engine.grammar import batch as grammar_batch
from thothy_ai.engine.grammar import compiler as grammar_compiler
from thothy_ai.engine.grammar import lexers as grammar_lexers
from thothy_ai.engine.grammar.batch import advance_all, start_filling
from thothy_ai.engine.grammar.compiler import MAX_SCHEMA_BYTES, GrammarCompiler
from thothy_ai.engine.grammar.dialect import COMPACT
from thothy_ai.engine.grammar.json_schema import JsonGrammar
from thothy_ai.engine.grammar.memory import MaskMemory, RowMasks
from thothy_ai.engine.grammar.vocabulary import Vocabulary
from thothy_ai.engine.text.model_text import core_tokenizer
from thothy_ai.jobs import Context
from thothy_ai.jobs.kinds import hook, report_section, translation, trend_summary

EOS = (0, 2)
VOCAB = 741
WORDS = -(-VOCAB // 32)
KINDS = (trend_summary.KIND, hook.KIND, translation.KIND, report_section.KIND)
REQUESTS = [(kind, kind.request(source="A source of a few words.")) for kind in KINDS]
CONTEXTS = (Context(), PLAIN)  # PLAIN: what a small model is asked
SCHEMAS = [json.dumps(next(kind.plan(request, each))[0].schema) for kind, request in REQUESTS for each in CONTEXTS]
CLASSES = (
    '{"type": "array", "items": {"type": "string", "pattern": "^[a-zäöü ]{3,40}(-[a-z0-9_\\"]{1,9})?$"}, "maxItems": 3}'
)
EXPLODING = '{"type": "string", "pattern": "^(.*a.{30}){5}$"}'


@pytest.fixture
def compiler(tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch) -> GrammarCompiler:
    """With up to four lexers per schema, of few grammars each, and as many threads."""
    executor = LLExecutor(4)
    monkeypatch.setattr(grammar_batch, "_executor", lambda: executor)
    monkeypatch.setattr(grammar_lexers, "_ENOUGH_GRAMMARS", 3)
    return GrammarCompiler(core_tokenizer(tokenizer), VOCAB, EOS, lexers=4)


def grammars(compiler: GrammarCompiler, schemas: Sequence[str]) -> list[JsonGrammar]:
    return [compiled(compiler, schema) for schema in schemas]


def masks(of: Sequence[JsonGrammar]) -> torch.Tensor:
    return Masks(VOCAB).of(*of)


def allowed(row: torch.Tensor) -> list[int]:
    bits = (row[:, None] >> torch.arange(32, dtype=torch.int32)) & 1
    return bits.flatten().nonzero().flatten().tolist()


def test_masks_are_filled_while_the_caller_keeps_the_interpreter_s_lock(
    compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[int] = []

    class Executor:
        def unsafe_compute_mask_ptr(self, *_: object) -> None:
            begun.append(1)

    monkeypatch.setattr(grammar_batch, "_executor", Executor)
    memory, (first, grammar) = MaskMemory(VOCAB), grammars(compiler, SCHEMAS[:2])
    start_filling(RowMasks(1, memory), [(first, 0)]).wait()  # the thread is there
    interval, begun[:] = sys.getswitchinterval(), []
    sys.setswitchinterval(60.0)  # until then, no thread takes the lock from another that computes
    try:
        filling = start_filling(RowMasks(1, memory), [(grammar, 0)])
        assert begun
    finally:
        sys.setswitchinterval(interval)
    filling.wait()


LITERALS = '{"type": "array", "items": {"enum": ["one", "once", "two", 17, true, null]}, "minItems": 5, "maxItems": 5}'


def test_nothing_is_forced_where_a_mask_leaves_a_choice(compiler: GrammarCompiler) -> None:
    running = grammars(compiler, [*SCHEMAS, CLASSES, LITERALS] * 3)
    rng, asked, forced, steps, filler = random.Random(5), 0, 0, 0, Masks(VOCAB)
    for _ in range(60):
        rows, to_ask = filler.fill([(grammar, row) for row, grammar in enumerate(running)], len(running))
        for row, grammar in enumerate(running):
            expected = grammar.matcher.compute_ff_tokens()
            assert not expected or row in to_ask
            forced += bool(expected)
            grammar.advance(expected[0] if expected else rng.choice(allowed(rows[row])))
        asked, steps = asked + len(to_ask), steps + len(running)
        running = [grammar for grammar in running if not grammar.finished]
    assert 0 < forced <= asked < steps / 2


def test_masks_of_random_walks_are_those_of_matchers_that_share_nothing(
    compiler: GrammarCompiler, tokenizer: PreTrainedTokenizerFast
) -> None:
    plain = llguidance.hf.from_tokenizer(tokenizer, n_vocab=VOCAB, eos_token=list(EOS), slices=[])
    for schema in (CLASSES, *SCHEMAS):
        compiler.compile(schema)
        for slices in compiler._vocabulary._sets.values():
            slices.result()  # in use from the next lexer on
    assert len(compiler._vocabulary._sets) > 2
    schemas = [*SCHEMAS, CLASSES] * 4
    rules = [llguidance.LLMatcher.grammar_from_json_schema(schema, overrides=COMPACT) for schema in schemas]
    running = [
        (grammar, llguidance.LLMatcher(plain, rule))
        for grammar, rule in zip(grammars(compiler, schemas), rules, strict=True)
    ]
    rng = random.Random(3)
    for _ in range(60):
        rows = masks([grammar for grammar, _ in running])
        tokens = []
        for row, (_, alone) in zip(rows, running, strict=True):
            expected = torch.empty(WORDS, dtype=torch.int32)
            alone.unsafe_compute_mask_ptr(expected.data_ptr(), expected.nbytes)
            assert torch.equal(row, expected)
            tokens.append(rng.choice(allowed(row)))
            assert alone.consume_token(tokens[-1])
        chosen = [(grammar, token) for (grammar, _), token in zip(running, tokens, strict=True)]
        assert advance_all(chosen) == [None] * len(running)
        running = [(grammar, alone) for grammar, alone in running if not grammar.finished]
    assert len({grammar.lexer for grammar, _ in running}) > len(SCHEMAS), "several lexers per schema"


def test_a_schema_gets_a_lexer_for_every_few_grammars_up_to_a_limit(compiler: GrammarCompiler) -> None:
    made = grammars(compiler, SCHEMAS[:1] * 3)
    assert len({grammar.lexer for grammar in made}) == 1
    made += grammars(compiler, SCHEMAS[:1] * 21)
    users = [sum(grammar.lexer is lexer for grammar in made) for lexer in {grammar.lexer for grammar in made}]
    assert users == [6, 6, 6, 6]


def test_a_schema_is_compiled_with_the_lexer_that_its_first_grammars_share(
    compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, make = list[grammar_lexers.Lexer](), grammar_lexers.Lexers._lexer

    def making(lexers: grammar_lexers.Lexers, tokens_per_mask: int) -> grammar_lexers.Lexer:
        made.append(make(lexers, tokens_per_mask))
        return made[-1]

    monkeypatch.setattr(grammar_lexers.Lexers, "_lexer", making)
    both = grammars(compiler, ['{"enum": ["once", "only"]}'] * 2)
    assert [grammar.lexer for grammar in both] == made * 2


def test_ended_grammars_make_room_on_their_lexer(compiler: GrammarCompiler) -> None:
    first = compiler.compile(SCHEMAS[0])
    assert isinstance(first, JsonGrammar)
    for _ in range(20):
        assert {grammar.lexer for grammar in grammars(compiler, SCHEMAS[:1] * 2)} == {first.lexer}


def walk(of: list[JsonGrammar], seeds: Sequence[int], steps: int = 80) -> list[tuple[int, str]]:
    """Random allowed tokens, drawn for each by its own seed: how many it took, and how it ended."""
    rngs = [random.Random(seed) for seed in seeds]
    taken, ends = [0] * len(of), [""] * len(of)
    for _ in range(steps):
        running = [place for place, end in enumerate(ends) if not end]
        if not running:
            break
        rows = masks([of[place] for place in running])
        tokens = [rngs[place].choice(allowed(row)) for place, row in zip(running, rows, strict=True)]
        errors = advance_all([(of[place], token) for place, token in zip(running, tokens, strict=True)])
        for place, error in zip(running, errors, strict=True):
            taken[place] += error is None
            if error is not None or of[place].finished:
                ends[place] = "finished" if error is None else _kind(error)
    return list(zip(taken, ends, strict=True))


def _kind(error: EngineError) -> str:
    assert isinstance(error, GrammarError)
    assert "too many" in str(error)
    return "broke"


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Limits the states of lexers that are made from now on."""

    def limit(states: int) -> None:
        limits = LLParserLimits(max_lexer_states=states, verbose_errors=False)
        monkeypatch.setattr(grammar_lexers, "limits", lambda: limits)

    return limit


def test_a_lexer_that_breaks_takes_no_text_along(
    compiler: GrammarCompiler, tokenizer: PreTrainedTokenizerFast, limited: Callable[[int], None]
) -> None:
    whole = walk(grammars(GrammarCompiler(core_tokenizer(tokenizer), VOCAB, EOS), [EXPLODING] * 8), range(8))
    limited(700)
    for _ in range(4):
        made = grammars(compiler, [EXPLODING] * 8)
        shared = {grammar.lexer for grammar in made}
        assert not any(lexer.broken for lexer in shared), "later requests get a whole one"
        assert walk(made, range(8)) == whole
        assert all(lexer.broken for lexer in shared)


def test_a_text_that_breaks_every_lexer_fails_alone(compiler: GrammarCompiler, limited: Callable[[int], None]) -> None:
    limited(300)
    for _ in range(4):
        assert {end for _, end in walk(grammars(compiler, [EXPLODING] * 8), range(8))} == {"broke"}
        assert [end for _, end in walk(grammars(compiler, ['{"enum": ["a", "b"]}'] * 2), range(2))] == ["finished"] * 2


def test_a_mask_on_which_its_lexer_broke_is_filled_on_another(
    compiler: GrammarCompiler, limited: Callable[[int], None]
) -> None:
    limited(700)
    culprit, *others = grammars(compiler, [EXPLODING] * 3)
    assert {other.lexer for other in others} == {culprit.lexer}
    quote = allowed(masks(others)[0])[0]
    for other in others:
        other.advance(quote)
    before, shared = masks(others), culprit.lexer
    walk([culprit], [1])
    assert shared.broken
    assert torch.equal(masks(others), before)
    assert shared not in {other.lexer for other in others}


def test_a_schema_is_measured_before_it_is_read(compiler: GrammarCompiler) -> None:
    fits = json.dumps({"const": "x" * (MAX_SCHEMA_BYTES // 20)})
    assert compiler.compile(fits).forced()
    for schema in ('{"const": "' + "é" * (MAX_SCHEMA_BYTES // 2) + '"}', "x" * 4_000_000):
        with pytest.raises(GrammarError, match=r"has [0-9,]+ bytes; at most 262,144"):
            compiler.compile(schema)


def optional(count: int) -> dict[str, object]:
    return {"type": "object", "properties": {f"name_{number}": {"type": "string"} for number in range(count)}}


def chain(count: int) -> dict[str, object]:
    """A schema whose references lead from one to the next."""
    steps: dict[str, object] = {f"s{number}": {"$ref": f"#/$defs/s{number + 1}"} for number in range(count)}
    return {"$ref": "#/$defs/s0", "$defs": steps | {f"s{count}": {"type": "null"}}}


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "integer", "multipleOf": 1_000_003}, "multipleOf: 1,000,003 remainders"),
        (
            record(**{f"n{number}": {"type": "integer", "multipleOf": 9_973} for number in range(3)}),
            "multipleOf: 29,919",
        ),
        (optional(1_000), "#/properties: 1,000 optional properties in a row"),
        ({"type": "array", "items": optional(4_000)}, "#/items/properties: 4,000 optional properties in a row"),
        ({"anyOf": [optional(80) | {"required": [f"name_{n}"]} for n in range(80)]}, "[Tt]oo many|max is 2000"),
        ({"type": "string", "pattern": "^(([a-z]{100}){100}){100}$"}, "a string must have 1,000,000 bytes"),
        ({"$ref": "#"}, "leads back to itself"),
        (chain(3_000), r"\$ref: references lead through more than 1,000 levels"),
    ],
)
def test_what_is_too_complex_is_refused_at_once(
    compiler: GrammarCompiler, schema: dict[str, object], message: str
) -> None:
    compiler.compile("{}")  # the vocabulary is there
    begun = time.thread_time()
    with pytest.raises(GrammarError, match=message):
        compiler.compile(json.dumps(schema))
    assert time.thread_time() - begun < 10  # the dearest takes 0.8 s on a busy core


@pytest.mark.parametrize("pattern", ["^.*a.{200}$", "^(.*a.{30}){5}$", "^.*(foo|bar).{0,50}.*baz.{10,20}$"])
def test_patterns_of_many_states_are_followed(compiler: GrammarCompiler, pattern: str) -> None:
    """As far as llguidance does by itself, and up to their ends."""
    (grammar,) = grammars(compiler, [json.dumps({"type": "string", "pattern": pattern})])
    grammar.limit(150)
    draw, table, filler = random.Random(4), grammar.tokens.table, Masks(VOCAB)
    text = b""
    while not grammar.finished:
        following = grammar.forced()
        if not following:
            tokens = allowed(filler.of(grammar)[0])
            following = [draw.choice([token for token in tokens if b'"' not in table[token]] or tokens)]
        for token in following:
            grammar.advance(token)
            text += table[token]
    assert re.search(pattern, json.loads(text))


def test_an_error_s_text_is_bounded(compiler: GrammarCompiler) -> None:
    with pytest.raises(GrammarError) as caught:
        compiler.compile(json.dumps({"type": "string", "pattern": "(" + "abc " * 30_000}))
    assert len(str(caught.value)) < 400


def test_a_model_without_an_end_of_text_is_refused(tokenizer: PreTrainedTokenizerFast) -> None:
    with pytest.raises(ModelLoadError, match="end-of-text"):
        GrammarCompiler(core_tokenizer(tokenizer), VOCAB, ())


def test_a_lexer_computes_masks_now_and_then_even_if_all_are_remembered(
    compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """llguidance limits a lexer's work from one mask that it computes to the next: without any, it refuses tokens."""
    monkeypatch.setattr(grammar_lexers, "_TOKENS_PER_MASK", 20)
    computed, draw, counts, filler = [0], random.Random(3), list[tuple[int, int]](), Masks(VOCAB)
    compute = grammar_batch._compute

    def counting(executor: LLExecutor, matchers: list[tuple[LLMatcher, int]], rows: NDArray[np.int32]) -> None:
        computed[0] += len(matchers)
        compute(executor, matchers, rows)

    monkeypatch.setattr(grammar_batch, "_compute", counting)
    for name in ("a", "b"):
        (grammar,) = grammars(
            compiler, [json.dumps(record(**{name: {"type": "string", "pattern": "^[a-f]{400,400}$"}}))]
        )
        before, tokens = computed[0], 0
        while not grammar.finished:
            assert not any(advance_all([(grammar, draw.choice(allowed(filler.of(grammar)[0])))]))
            tokens += 1
        counts.append((computed[0] - before, tokens))
    masked, tokens = counts[-1]
    assert tokens // 20 <= masked < tokens // 2


def test_a_grammar_whose_matcher_refuses_what_is_allowed_continues_alone(compiler: GrammarCompiler) -> None:
    """As one does whose lexer has no work left."""
    (grammar,) = grammars(compiler, [json.dumps(record(a={"type": "string", "pattern": "^[a-f]{9,9}$"}))])
    for token in grammar.forced():
        grammar.advance(token)
    row = masks([grammar])[0]
    good, lexer = allowed(row)[0], grammar.lexer
    assert not grammar.matcher.consume_token(allowed(~row)[0])
    assert advance_all([(grammar, good)]) == [None]
    assert grammar.lexer is not lexer
    assert not lexer.usable
    assert not torch.equal(masks([grammar])[0], torch.full_like(row, -1))


class TiringMatcher:
    """A matcher that takes twenty tokens at most between two masks."""

    def __init__(self, matcher: LLMatcher) -> None:
        self._matcher, self._left = matcher, 20

    def deep_copy(self) -> TiringMatcher:
        return TiringMatcher(self._matcher.deep_copy())

    def is_error(self) -> bool:
        return self._left < 0 or self._matcher.is_error()

    def consume_token(self, token: int) -> bool:
        return self.consume_tokens([token])

    def consume_tokens(self, tokens: Sequence[int]) -> bool:
        self._left -= len(tokens)
        return self._left >= 0 and self._matcher.consume_tokens([*tokens])

    def unsafe_compute_mask_ptr(self, address: int, size: int) -> None:
        self._left = 20
        self._matcher.unsafe_compute_mask_ptr(address, size)


def test_a_text_is_read_again_with_masks_between_its_tokens(
    compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grammar_lexers, "_TOKENS_PER_MASK", 20)
    lexer_of = grammar_lexers.Lexers.alone
    (grammar,) = grammars(compiler, [json.dumps(record(a={"type": "string", "pattern": "^[a-f]{200,200}$"}))])
    while len(grammar._tokens) < 70:
        assert advance_all([(grammar, allowed(masks([grammar])[0])[0])]) == [None]

    def tiring(lexers: grammar_lexers.Lexers) -> grammar_lexers.Lexer:
        matcher: object = TiringMatcher(lexer_of(lexers).measured())
        return grammar_lexers.Lexer(matcher, tokens_per_mask=1)  # type: ignore[arg-type]

    monkeypatch.setattr(grammar_lexers.Lexers, "alone", tiring)
    row = masks([grammar])[0]
    grammar.matcher.consume_token(allowed(~row)[0])  # which it refuses, and everything after it
    grammar.advance(allowed(row)[0])
    assert len(grammar._tokens) == 71


@pytest.mark.parametrize("schema", [SCHEMAS[0], '{"type": "no such type"}'])
def test_threads_that_want_one_schema_at_a_time_compile_it_once(
    compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch, schema: str
) -> None:
    begun, goes_on, made = threading.Event(), threading.Event(), list[str]()

    class Slow(grammar_lexers.Lexers):
        def __init__(self, schema: str, vocabulary: Vocabulary, most: int) -> None:
            made.append(schema)
            begun.set()
            assert goes_on.wait(PATIENCE)
            super().__init__(schema, vocabulary, most)

    monkeypatch.setattr(grammar_compiler, "Lexers", Slow)
    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(compiler.compile, schema)
        assert begun.wait(PATIENCE)
        later = [threads.submit(compiler.compile, schema) for _ in range(2)]
        goes_on.set()
        ends = [each.exception() for each in (first, *later)]
    if ends == [None] * 3:
        assert made == [schema]
    else:
        assert all(isinstance(end, GrammarError) for end in ends)
        with pytest.raises(GrammarError):  # a failure is not kept
            compiler.compile(schema)


def test_a_schema_gets_lexers_with_slices_of_its_own_once_those_are_built(
    compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = [False]
    monkeypatch.setattr(Vocabulary, "has", lambda _vocabulary, _slices: built[0])
    lexers = grammar_lexers.Lexers(CLASSES, compiler._vocabulary, most=1)
    before = lexers.share()
    assert lexers.share() is before
    built[0] = True
    after = lexers.share()
    assert after is not before
    assert lexers.share() is after
