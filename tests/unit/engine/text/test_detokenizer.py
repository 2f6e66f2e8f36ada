"""Text as it comes: nothing lost, no half characters, stop strings cut wherever tokens end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tests.support.tiny_tokenizer import sentence_piece
from thothy_ai.engine.api.errors import UnsupportedModelError
from thothy_ai.engine.text.detokenizer import Detokenizer, StopStrings
from thothy_ai.engine.text.token_bytes import TokenBytes, token_bytes

BYTES = TokenBytes(tuple(bytes([value]) for value in range(256)), drops_first_space=False)
ALPHABET = "abé你🙂 "


def pieces_of(text: str, cuts: list[int]) -> list[str]:
    places = sorted({cut % (len(text) + 1) for cut in cuts})
    return [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]


def first_stop(text: str, stops: list[str]) -> str:
    """What is left of the text, found character by character."""
    for end in range(1, len(text) + 1):
        matching = [stop for stop in stops if text[:end].endswith(stop)]
        if matching:
            return text[: end - max(map(len, matching))]
    return text


@given(st.text(), st.lists(st.integers(0, 40), max_size=6))
def test_bytes_in_any_pieces_give_the_text(text: str, cuts: list[int]) -> None:
    data = list(text.encode("utf-8", "ignore"))
    places = sorted({cut % (len(data) + 1) for cut in cuts})
    detokenizer = Detokenizer(BYTES)
    out = [detokenizer.push(data[a:b]) for a, b in zip([0, *places], [*places, len(data)], strict=True)]
    assert "".join(out) == bytes(data).decode()


def test_a_character_comes_whole_or_not_at_all() -> None:
    detokenizer = Detokenizer(BYTES)
    smile = "🙂".encode()
    assert [detokenizer.push([byte]) for byte in smile] == ["", "", "", "🙂"]
    assert detokenizer.push(smile[:3]) == "", "an unfinished one at the end is dropped"


def test_bytes_that_are_no_text_are_marked_and_nothing_around_them_is_lost() -> None:
    assert Detokenizer(BYTES).push(list(b"a\xff\xc3(b")) == "a\ufffd\ufffd(b"


@given(st.lists(st.integers(0, 699), max_size=30))
def test_byte_level_agrees_with_the_tokenizer(
    tokenizer: PreTrainedTokenizerFast, vocabulary: TokenBytes, tokens: list[int]
) -> None:
    expected = tokenizer.decode(tokens, skip_special_tokens=True)
    assert Detokenizer(vocabulary).push(tokens).rstrip("\ufffd") == expected.rstrip("\ufffd")


@given(st.text(alphabet="aé你🙂 <0x>\n", max_size=20))
def test_sentence_piece_agrees_with_the_tokenizer(text: str) -> None:
    backend = sentence_piece(["\u2581", "a", "é", "\u2581a", "<"], [("\u2581", "a")])
    tokens = backend.encode(text).ids
    detokenizer = Detokenizer(token_bytes(backend))
    assert "".join(detokenizer.push([token]) for token in tokens) == backend.decode(tokens) == text


def test_special_tokens_and_ids_beyond_the_vocabulary_are_no_text(vocabulary: TokenBytes) -> None:
    assert vocabulary.of([0, 1, 2, 10_000]) == b""


def test_a_token_beyond_the_alphabet_of_byte_level_stands_for_itself() -> None:
    """As added tokens do, and what a vocabulary has by mistake."""
    texts = ["a", "Ġa", "Ã©", " ", "\xad", "日本", "Ġ日", "a\n"]
    tokenizer = Tokenizer(models.BPE({text: number for number, text in enumerate(texts)}, []))
    tokenizer.decoder = decoders.ByteLevel()
    expected = [b"a", b" a", "é".encode(), b" ", "\xad".encode(), "日本".encode(), " 日".encode(), b"a\n"]
    assert list(token_bytes(tokenizer).table) == expected


def test_an_unknown_family_is_refused() -> None:
    tokenizer = Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    with pytest.raises(UnsupportedModelError):
        token_bytes(tokenizer)
    tokenizer.decoder = decoders.WordPiece()
    with pytest.raises(UnsupportedModelError, match="WordPiece"):
        token_bytes(tokenizer)


@given(
    st.text(ALPHABET, max_size=30),
    st.lists(st.text(ALPHABET, min_size=1, max_size=4), max_size=3),
    st.lists(st.integers(0, 40), max_size=8),
)
def test_stop_strings_cut_the_same_text_however_it_comes(text: str, stops: list[str], cuts: list[int]) -> None:
    matcher = StopStrings(stops)
    out = ""
    for piece in pieces_of(text, cuts):
        out += matcher.push(piece)
        assert first_stop(text, stops).startswith(out), "nothing that is out can be taken back"
    assert out + matcher.flush() == first_stop(text, stops)
    assert matcher.hit == (first_stop(text, stops) != text or any(text.endswith(stop) for stop in stops))


def test_text_is_held_back_only_while_undecided() -> None:
    matcher = StopStrings(["###", "END"])
    assert [matcher.push(text) for text in ("one #", "# two", " E", "N", "X ##")] == ["one ", "## two", " ", "", "ENX "]
    assert matcher.flush() == "##"


def test_the_stop_that_is_complete_first_wins() -> None:
    matcher = StopStrings(["abcd", "bc"])
    assert matcher.push("xabcd") == "xa"
    assert matcher.hit
    assert matcher.push("more") == matcher.flush() == ""
