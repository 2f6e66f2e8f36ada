"""No text has fewer tokens than the bound says, whatever the tokenizer; and long texts are refused by it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from tests.support.tiny_tokenizer import make_tokenizer, sentence_piece
from thothy_ai.engine.text.bounds import UNBOUNDED, token_bound
from thothy_ai.engine.text.token_bytes import token_bytes

PIECES = [
    *("a", "Z", "9", " ", "-", "kettle", "The garden waits", "<|im_end|>", "points count", "\n", "你好", "🙂🚀"),
    *("é", "e\u0301" * 4, "한", "\u1112\u1161\u11ab" * 4, "\u2581", "\u2581" * 8, "ᾂ", "α\u0313\u0300\u0345"),
    *("\u037e", "\u1fef", "\u2126"),
]
SPECIAL = f"<|{'x' * 60}|>"  # longer than any word
PIECES += [SPECIAL * 4]
TEXTS = st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=30).map("".join)


def byte_level() -> Tokenizer:
    return make_tokenizer().backend_tokenizer


def composing() -> Tokenizer:
    """Its longest tokens are of characters that a text may have decomposed."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=266, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(["한한한한", "éééé"] * 9, trainer)
    tokenizer.add_special_tokens([SPECIAL])
    return tokenizer


def small_sentence_piece() -> Tokenizer:
    words = ["▁", "▁▁", "▁▁▁▁", "t", "h", "e", "a", "th", "the", "▁the", "é", "한"]
    return sentence_piece(words, [("▁", "▁"), ("▁▁", "▁▁"), ("t", "h"), ("th", "e"), ("▁", "the")])


@pytest.mark.parametrize("make", [byte_level, composing, small_sentence_piece])
def test_no_text_has_fewer_tokens(make: Callable[[], Tokenizer]) -> None:
    tokenizer = make()
    bound = token_bound(tokenizer, token_bytes(tokenizer))
    assert bound is not UNBOUNDED

    @given(TEXTS)
    def holds(text: str) -> None:
        assert bound.least_tokens(text) <= len(tokenizer.encode(text, add_special_tokens=False).ids)

    holds()


@pytest.mark.parametrize("make", [byte_level, composing, small_sentence_piece])
@pytest.mark.parametrize("text", ["the garden waits for rain ", "-" * 10, "한국어 "])
def test_a_long_text_is_known_to_be_long(make: Callable[[], Tokenizer], text: str) -> None:
    tokenizer = make()
    tokens = len(tokenizer.encode(text * 1000, add_special_tokens=False).ids)
    assert token_bound(tokenizer, token_bytes(tokenizer)).least_tokens(text * 1000) > tokens / 200


def stripping() -> Tokenizer:
    tokenizer = byte_level()
    tokenizer.normalizer = normalizers.Strip()
    return tokenizer


def absorbing() -> Tokenizer:
    tokenizer = byte_level()
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    return tokenizer


def removing() -> Tokenizer:
    tokenizer = byte_level()
    split = pre_tokenizers.Split(" ", "removed")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    return tokenizer


def without_bytes() -> Tokenizer:
    tokenizer = small_sentence_piece()
    tokenizer.model = models.BPE({"<unk>": 0, "a": 1}, [], unk_token="<unk>", fuse_unk=True)
    return tokenizer


@pytest.mark.parametrize("make", [stripping, absorbing, removing, without_bytes])
def test_where_text_can_vanish_there_is_no_bound(make: Callable[[], Tokenizer]) -> None:
    tokenizer = make()
    assert token_bound(tokenizer, token_bytes(tokenizer)) is UNBOUNDED
    assert UNBOUNDED.least_tokens("a" * 10**6) == 1
