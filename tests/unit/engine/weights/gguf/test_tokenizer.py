"""Tokenizers built from GGUF metadata against plain implementations of llama.cpp's rules."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import gguf
import pytest
from transformers import PreTrainedTokenizerFast

from tests.support.gguf_files import finish
from tests.support.naive_tokenizers import (
    PATTERNS,
    byte_alphabet,
    byte_level_bpe,
    cut,
    sentencepiece_bpe,
    train_merges,
)
from thothy_ai.engine.api.errors import ModelLoadError, UnsupportedModelError
from thothy_ai.engine.weights.gguf.file import GGUFFile
from thothy_ai.engine.weights.gguf.tokenizer import TokenType, build_tokenizer

CORPUS = (
    "The queue drains before the window; the box drains the queue. It's 2024 and we've 12345 jobs, they're done.\n"
    "the    spaces\n\n\n  and\tthe tabs; def drain(queue): return [job for job in queue if job.done] # 100% done\n"
    "naïve café, naïve café. 日本語 日本語 the the 1,000.50 WE'LL I'M don't\r\n"
)
TEXTS = (
    CORPUS,
    "the drain",
    " the  drain   the\n\n the ",
    "1234567 12 1",
    "the chameleon",
    "WE'LL we'll don'T",
    "naïve cafe\u0301",
    "Հայաստան ԵՐԵՎԱՆ 12",
    "日本語 テキスト 👩‍👧 é",
    "x=1;y=22\n\t\tz\r\n\r\n",
    "camelCase HTMLPage it'S // a/b/\n/ ÉTÉ café",
    "…§«the»—drain",
    "",
)
CONTROL = ["<bos>", "<|end|>", "<unk>"]


def writer_of(path: Path, kind: str, tokens: Sequence[str], types: Sequence[int]) -> gguf.GGUFWriter:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_tokenizer_model(kind)
    writer.add_token_list(list(tokens))
    writer.add_token_types(list(types))
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_unk_token_id(2)
    return writer


def build(writer: gguf.GGUFWriter, path: Path) -> PreTrainedTokenizerFast:
    finish(writer)
    tokenizer = build_tokenizer(GGUFFile(path))
    assert tokenizer is not None
    return tokenizer


def byte_level(pre: str) -> tuple[list[str], list[str]]:
    """Tokens (control tokens first) and merges, trained on what `pre` cuts the corpus into."""
    shown = byte_alphabet()
    words = ["".join(shown[byte] for byte in piece.encode()) for piece in cut(CORPUS, PATTERNS[pre])]
    merges = train_merges(words, 60)
    whole = ["Ġchameleon"]  # no merge makes it: found only where whole words are looked up
    return [*CONTROL, *shown, *(merge.replace(" ", "") for merge in merges), *whole], merges


def byte_level_file(path: Path, pre: str) -> tuple[gguf.GGUFWriter, list[str], list[str]]:
    tokens, merges = byte_level(pre)
    types = [TokenType.CONTROL] * 3 + [TokenType.NORMAL] * (len(tokens) - 3)
    writer = writer_of(path, "gpt2", [*tokens, "<tool>"], [*types, TokenType.USER_DEFINED])
    writer.add_tokenizer_pre(pre)
    writer.add_token_merges(merges)
    return writer, tokens, merges


@pytest.mark.parametrize("said", [None, "default"])
def test_a_file_that_does_not_say_how_texts_are_split_is_refused(said: str | None, tmp_path: Path) -> None:
    """By GPT-2's rules 1234567 is one token where llama-bpe makes six: a file without rules must not run by those."""
    path = tmp_path / "t.gguf"
    tokens, merges = byte_level("llama-bpe")
    writer = writer_of(path, "gpt2", tokens, [TokenType.NORMAL] * len(tokens))
    writer.add_token_merges(merges)
    if said is not None:
        writer.add_tokenizer_pre(said)
    with pytest.raises(
        UnsupportedModelError, match=r"tokenizer\.ggml\.pre is 'default' or missing\. Convert the model"
    ):
        build(writer, path)


@pytest.mark.parametrize("pre", PATTERNS)
def test_byte_level(pre: str, tmp_path: Path) -> None:
    path = tmp_path / "t.gguf"
    writer, tokens, merges = byte_level_file(path, pre)
    writer.add_add_bos_token(value=False)
    tokenizer = build(writer, path)
    for text in TEXTS:
        if pre == "qwen2":  # which composes accents first
            text = text.replace("e\u0301", "é")  # noqa: PLW2901  the naive side has no normalizer
        expected = byte_level_bpe(text, tokens, merges, pre, whole_words=pre in {"llama-bpe", "tekken"})
        assert tokenizer(text)["input_ids"] == expected, text
        assert tokenizer.decode(expected) == text


def test_qwen2_composes_accents(tmp_path: Path) -> None:
    path = tmp_path / "t.gguf"
    tokenizer = build(byte_level_file(path, "qwen2")[0], path)
    assert tokenizer("cafe\u0301")["input_ids"] == tokenizer("café")["input_ids"]


def test_llama_bpe_begins_texts_by_default(tmp_path: Path) -> None:
    path = tmp_path / "t.gguf"
    writer, tokens, _ = byte_level_file(path, "llama-bpe")
    assert build(writer, path)(" chameleon")["input_ids"] == [0, tokens.index("Ġchameleon")]


def test_control_and_user_defined_tokens(tmp_path: Path) -> None:
    path = tmp_path / "t.gguf"
    tokenizer = build(byte_level_file(path, "smollm")[0], path)
    ids = tokenizer("<bos>the<tool>the<|end|>")["input_ids"]
    tool = len(tokenizer) - 1
    the = tokenizer("the")["input_ids"]
    assert ids == [0, *the, tool, *the, 1]
    assert tokenizer.decode(ids, skip_special_tokens=True) == "the<tool>the"
    assert (tokenizer.bos_token, tokenizer.eos_token, tokenizer.unk_token) == ("<bos>", "<|end|>", "<unk>")


def test_bounds_are_added_as_the_file_says(tmp_path: Path) -> None:
    path = tmp_path / "t.gguf"
    writer = byte_level_file(path, "gpt-2")[0]
    writer.add_add_bos_token(value=True)
    writer.add_add_eos_token(value=True)
    tokenizer = build(writer, path)
    the = tokenizer("the", add_special_tokens=False)["input_ids"]
    assert tokenizer("the")["input_ids"] == [0, *the, 1]
    assert tokenizer("the", "the")["input_ids"] == [0, *the, 1, 0, *the, 1]


def test_chat_template(tmp_path: Path) -> None:
    path = tmp_path / "t.gguf"
    writer = byte_level_file(path, "smollm")[0]
    writer.add_chat_template("{% for m in messages %}{{ bos_token + m['content'] + eos_token }}{% endfor %}")
    tokenizer = build(writer, path)
    shown = tokenizer.apply_chat_template([{"role": "user", "content": "the"}], tokenize=False)
    assert shown == "<bos>the<|end|>"


def sentencepiece_file(path: Path) -> tuple[gguf.GGUFWriter, list[str], list[float]]:
    words = ["▁" + word for word in CORPUS.replace("日本語", "").split()]
    merges = train_merges(words, 80)
    letters = sorted({letter for word in words for letter in word})
    tokens = [*CONTROL, *(f"<0x{byte:02X}>" for byte in range(256)), *(m.replace(" ", "") for m in merges), *letters]
    scores = [0.0] * 259 + [-float(i) for i in range(len(merges))] + [-1000.0 - i for i in range(len(letters))]
    types = [TokenType.CONTROL, TokenType.CONTROL, TokenType.UNKNOWN, *[TokenType.BYTE] * 256]
    types += [TokenType.NORMAL] * (len(tokens) - len(types))
    writer = writer_of(path, "llama", tokens, types)
    writer.add_token_scores(scores)
    return writer, tokens, scores


def test_sentencepiece(tmp_path: Path) -> None:
    path = tmp_path / "s.gguf"
    writer, tokens, scores = sentencepiece_file(path)
    tokenizer = build(writer, path)
    for text in filter(None, TEXTS):
        ids = tokenizer(text)["input_ids"]
        assert ids == [0, *sentencepiece_bpe(text, tokens, scores)], text
        assert tokenizer.decode(ids, skip_special_tokens=True) == text
    assert tokenizer("日")["input_ids"][-3:] == [3 + byte for byte in "日".encode()]


def test_sentencepiece_without_a_space_in_front(tmp_path: Path) -> None:
    path = tmp_path / "s.gguf"
    writer, tokens, _ = sentencepiece_file(path)
    writer.add_add_space_prefix(value=False)
    tokenizer = build(writer, path)
    ids = tokenizer("the")["input_ids"]
    assert "".join(tokens[i] for i in ids[1:]) == "the"
    assert tokenizer.decode(tokenizer(" the")["input_ids"], skip_special_tokens=True) == " the"


def test_gemma4_merges_as_the_file_says(tmp_path: Path) -> None:
    """Scores say nothing there; texts begin without a space, and what is not in the vocabulary becomes bytes."""
    path = tmp_path / "g.gguf"
    _, tokens, scores = sentencepiece_file(tmp_path / "s.gguf")
    merges = [f"{token[:cut]} {token[cut:]}" for token in tokens[259:] for cut in range(1, len(token))]
    writer = writer_of(path, "gemma4", tokens, [TokenType.CONTROL] * 2 + [TokenType.NORMAL] * (len(tokens) - 2))
    writer.add_token_scores([-1000.0] * len(tokens))
    writer.add_token_merges([merge for merge in merges if {*merge.split()} <= {*tokens}])
    writer.add_add_space_prefix(value=False)
    tokenizer = build(writer, path)
    for text in filter(None, TEXTS):
        ids = tokenizer(text)["input_ids"]
        assert ids == [0, *sentencepiece_bpe(text, tokens, scores, prefix="")], text
        assert tokenizer.decode(ids, skip_special_tokens=True) == text


def test_no_vocabulary_no_tokenizer(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "t.gguf", "llama")
    finish(writer)
    assert build_tokenizer(GGUFFile(tmp_path / "t.gguf")) is None


def test_an_unknown_pre_tokenizer_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.gguf"
    writer = writer_of(path, "gpt2", CONTROL, [3, 3, 3])
    writer.add_tokenizer_pre("chameleon")
    with pytest.raises(UnsupportedModelError, match="'chameleon' is not implemented"):
        build(writer, path)


def test_a_special_token_outside_the_vocabulary(tmp_path: Path) -> None:
    path = tmp_path / "t.gguf"
    writer = writer_of(path, "gpt2", CONTROL, [3, 3, 3])
    writer.add_pad_token_id(99)
    with pytest.raises(ModelLoadError, match="padding_token_id 99 is not in the vocabulary"):
        build(writer, path)


def test_types_that_do_not_fit_the_tokens(tmp_path: Path) -> None:
    path = tmp_path / "t.gguf"
    with pytest.raises(ModelLoadError, match="3 tokens but 2 token types"):
        build(writer_of(path, "gpt2", CONTROL, [3, 3]), path)
