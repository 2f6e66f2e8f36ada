"""The tokens that the frontend computes for the core's grammars: those that llguidance sees in the same definition."""

from __future__ import annotations

from concurrent.futures import Future
from functools import cached_property

import pytest
from transformers import PreTrainedTokenizerFast

from tests.support.tiny_tokenizer import make_tokenizer, sentence_piece
from thothy_ai.engine.api.errors import ModelLoadError
from thothy_ai.engine.checkpoint.configuration import Configuration, FolderConfiguration
from thothy_ai.engine.grammar.tokens import CoreTokenizer, JsonTokens
from thothy_ai.engine.grammar.vocabulary import Vocabulary
from thothy_ai.engine.text.model_text import core_tokenizer, json_tokens
from thothy_ai.engine.text.token_bytes import token_bytes

EOS = (0,)


def small_sentence_piece() -> PreTrainedTokenizerFast:
    tokenizer = sentence_piece(["\u2581", "a", "é", "\u2581a", '"'], [("\u2581", "a")])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>")


def sized(size: object) -> FolderConfiguration:
    return FolderConfiguration(Configuration(vocab_size=size), None, EOS)


def told(tokens: JsonTokens | Exception | None) -> Future[JsonTokens | None]:
    future: Future[JsonTokens | None] = Future()
    if isinstance(tokens, Exception):
        future.set_exception(tokens)
    else:
        future.set_result(tokens)
    return future


@pytest.mark.parametrize("make", [make_tokenizer, small_sentence_piece])
@pytest.mark.parametrize("more", [-9, 0, 70])
def test_they_are_taken_for_the_vocabulary_s(make: type[PreTrainedTokenizerFast], more: int) -> None:
    tokenizer = make()
    size = len(tokenizer) + more
    tokens = json_tokens(token_bytes(tokenizer.backend_tokenizer), sized(size))
    assert tokens is not None
    assert len(tokens.table) == size
    assert any(tokens.table)
    sets = {name for name, value in vars(JsonTokens).items() if isinstance(value, cached_property)}
    assert sets <= vars(tokens).keys()  # all of them are computed
    definition = core_tokenizer(tokenizer).definition
    vocabulary = Vocabulary(CoreTokenizer(definition, tokens=told(tokens)), size, EOS)
    assert vocabulary.tokens is tokens


@pytest.mark.parametrize("tokens", [JsonTokens([b"a", b"b"]), ModelLoadError("unsupported tokenizer"), None])
def test_others_are_computed_instead(tokenizer: PreTrainedTokenizerFast, tokens: JsonTokens | Exception | None) -> None:
    told_nothing, size = core_tokenizer(tokenizer), len(tokenizer)
    vocabulary = Vocabulary(CoreTokenizer(told_nothing.definition, tokens=told(tokens)), size, EOS)
    assert vocabulary.tokens.table == Vocabulary(told_nothing, size, EOS).tokens.table


@pytest.mark.parametrize("size", [None, "7", 0, -1, 10**12])
def test_without_the_size_of_the_logits_there_are_none(tokenizer: PreTrainedTokenizerFast, size: object) -> None:
    assert json_tokens(token_bytes(tokenizer.backend_tokenizer), sized(size)) is None
