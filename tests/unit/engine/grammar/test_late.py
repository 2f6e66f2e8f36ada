"""Tokens that only extend a text field reach the matcher later, and nothing else differs."""

from __future__ import annotations

import json
import random
from contextlib import suppress

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from tests.support.grammars import compiled
from tests.support.json_schemas import record, text
from tests.support.masks import Masks
from thothy_ai.engine.api.errors import BudgetTooSmallError, GrammarError
from thothy_ai.engine.grammar.batch import advance_all, catch_up, extend_field
from thothy_ai.engine.grammar.compiler import GrammarCompiler
from thothy_ai.engine.grammar.json_schema import JsonGrammar
from thothy_ai.engine.text.model_text import core_tokenizer
from thothy_ai.jobs import Context
from thothy_ai.jobs.kinds import hook, report_section, translation, trend_summary

EOS = (0, 2)
VOCAB = 741
KINDS = (trend_summary.KIND, hook.KIND, translation.KIND, report_section.KIND)


SCHEMAS = [
    json.dumps(schema)
    for schema in (
        record(a=text("^[a-zé日]{1,60}$"), b=text("^[^a]{0,9}$")),
        record(a=text("^[ab][x]{40,80}$"), b={"enum": ["x", "xy"]}),
        record(a={"type": "array", "items": text("^[a-z ]{0,4}$"), "maxItems": 4}, b={"type": "integer"}),
        text("^[a-z]{0,12}$"),
        record(a={"type": "string", "maxLength": 30}),
    )
]


@pytest.fixture(scope="module")
def compiler(tokenizer: PreTrainedTokenizerFast) -> GrammarCompiler:
    return GrammarCompiler(core_tokenizer(tokenizer), VOCAB, EOS, lexers=2)


def kinds() -> list[str]:
    requests = [(kind, kind.request(source="A source of a few words. " * 9)) for kind in KINDS]
    return [json.dumps(call.schema) for kind, request in requests for call in next(kind.plan(request, Context()))]


def allowed(row: torch.Tensor) -> list[int]:
    bits = (row[:, None] >> torch.arange(32, dtype=torch.int32)) & 1
    found: list[int] = bits.flatten().nonzero().flatten().tolist()
    return found


def advanced(one: JsonGrammar, other: JsonGrammar, token: int) -> bool:
    """Advance both, the first one late if it may be; returns whether it is."""
    late = extend_field(one, token)
    assert late or advance_all([(one, token)]) == [None]
    assert advance_all([(other, token)]) == [None]
    return late


@pytest.mark.parametrize("limit", [2**20, 90])
def test_late_grammars_are_as_those_that_were_advanced_at_once(compiler: GrammarCompiler, limit: int) -> None:
    """Keys, masks, what is forced, and the end: whether they catch up together, alone or when it is needed."""
    schemas, draw, late = (*SCHEMAS * 3, *kinds()), random.Random(6), 0
    pairs = [(compiled(compiler, schema), compiled(compiler, schema)) for schema in schemas]
    masks, plain_masks = Masks(VOCAB), Masks(VOCAB, most=1)
    for grammar in (grammar for pair in pairs for grammar in pair):
        with suppress(BudgetTooSmallError):
            grammar.limit(limit)
    for _ in range(70):
        ours, plain = masks.of(*(one for one, _ in pairs)), plain_masks.of(*(other for _, other in pairs))
        assert torch.equal(ours, plain)
        chosen = [(*pair, draw.choice(allowed(row))) for pair, row in zip(pairs, plain, strict=True)]
        chosen = [(one, other, token) for one, other, token in chosen if token not in EOS]
        late += sum(advanced(*each) for each in chosen)
        assert [one.state_key() for one, *_ in chosen] == [other.state_key() for _, other, _ in chosen]
        for one, other, _ in draw.sample(chosen, len(chosen) // 4):
            assert (one.finished, one.forced()) == (other.finished, other.forced())
        pairs = [(one, other) for one, other, _ in chosen if not other.finished]
        catch_up(draw.sample([one for one, _ in pairs], len(pairs) * 2 // 3))
    assert late > 200


def test_a_text_ends_and_forces_nothing_where_a_field_is_extended(compiler: GrammarCompiler) -> None:
    draw, count = random.Random(7), 0
    for schema in (*SCHEMAS, *kinds()) * 3:
        grammar = compiled(compiler, schema)
        masks = Masks(VOCAB)
        for _ in range(60):
            token = draw.choice(allowed(masks.of(grammar)[0]))
            if token in EOS:
                break
            if extend_field(grammar, token):
                count += 1
                assert not grammar.finished
                assert not grammar.may_force_after(token)
            else:
                grammar.advance(token)
            if grammar.finished:
                break
    assert count > 100


class Refusing:
    """A matcher that refuses everything from now on."""

    def is_error(self) -> bool:
        return True

    def get_error(self) -> str:
        return "no work is left"

    def consume_token(self, token: int) -> bool:
        return False

    def consume_tokens(self, tokens: list[int]) -> bool:
        return False


def begun(compiler: GrammarCompiler) -> JsonGrammar:
    """In a text, after one token."""
    grammar = compiled(compiler, json.dumps(record(a=text("^[a-f]{9,90}$"))))
    for token in grammar.forced():
        grammar.advance(token)
    token = grammar.tokens.by_bytes[b"a"]
    assert grammar.state_key() is not None
    assert extend_field(grammar, token)
    return grammar


def test_a_matcher_that_refuses_a_late_token_is_replaced_by_one_of_its_own(compiler: GrammarCompiler) -> None:
    grammar, other = begun(compiler), begun(compiler)
    lexer, grammar._matcher = grammar.lexer, Refusing()  # type: ignore[assignment]
    assert not grammar.matcher.is_error()
    assert grammar.lexer is not lexer
    assert not lexer.usable
    assert torch.equal(*Masks(VOCAB).of(grammar, other))
    assert extend_field(grammar, grammar._tokens[-1])


def test_a_grammar_that_has_failed_takes_nothing_more(
    compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its mask allows everything except the end, and the next token raises the error."""
    grammar = begun(compiler)
    catch_up([grammar])
    monkeypatch.setattr(grammar, "_matcher", Refusing())
    monkeypatch.setattr(grammar, "_least_tokens", 10_000)
    row = torch.empty(-(-VOCAB // 32), dtype=torch.int32)
    grammar.correct(row)
    assert len(allowed(row)) == len(row) * 32 - len(EOS)
    token = grammar.tokens.by_bytes[b"z"]
    assert not extend_field(grammar, token)
    with pytest.raises(GrammarError, match="no work is left"):
        grammar.advance(token)


def test_a_grammar_that_cannot_catch_up_fails_with_its_next_token(
    compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    grammar = begun(compiler)
    monkeypatch.setattr(grammar, "_matcher", Refusing())
    monkeypatch.setattr(grammar, "_least_tokens", 10_000)
    assert grammar.matcher.is_error()
    token = grammar._tokens[-1]
    assert not extend_field(grammar, token)
    with pytest.raises(GrammarError, match="no work is left"):
        grammar.advance(token)
