"""Builds a tokenizer from a GGUF file's metadata: byte-level BPE, or SentencePiece's BPE with byte fallback.

`tokenizer.ggml.pre` names the rule that splits text before BPE; the rules are llama.cpp's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE
from tokenizers.normalizers import Normalizer
from tokenizers.pre_tokenizers import PreTokenizer

from thothy_ai.engine.api.errors import ModelLoadError, UnsupportedModelError
from thothy_ai.engine.weights.gguf.file import GGUFFile

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_LLAMA3 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_WITH_MARKS = _QWEN2.replace(r"?\p{L}+|", r"?[\p{L}\p{M}]+|").replace(r"[^\s\p{L}\p{N}]+", r"[^\s\p{L}\p{M}\p{N}]+")
_SEED_CODER = _QWEN2.replace(r"]+[\r\n]*|", "]+|")
_LETTERS = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]%s[\p{Ll}\p{Lm}\p{Lo}\p{M}]%s"
_OTHERS = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_WORDS = (_LETTERS % ("*", "+"), _LETTERS % ("+", "*"))
_TEKKEN = "|".join((*_WORDS, r"\p{N}")) + _OTHERS
_O200K = "|".join((*(f"{word}{_CONTRACTIONS}?" for word in _WORDS), r"\p{N}{1,3}")) + _OTHERS
# DeepSeek's patterns, applied in this order. V2's letters are cased ones, without the rare ones in `_RARE`.
_RARE = (
    r"\x{560}-\x{588}\x{10C7}-\x{10FF}\x{1C80}-\x{1C8F}\x{2D00}-\x{2D2F}\x{A790}-\x{A7FF}\x{AB30}-\x{AB6F}"
    r"\x{10570}-\x{105BF}\x{10D50}-\x{10D8F}\x{16E40}-\x{16EDF}\x{1D400}-\x{1DFFF}"
)
_DEEPSEEK2 = (
    r"[\r\n]", rf"\s?[\p{{Lu}}\p{{Ll}}\p{{Lt}}&&[^{_RARE}]]+",
    "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+", r"\s+$",
    "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", r"\p{N}+",
)  # fmt: skip
_DEEPSEEK3 = (
    r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)  # fmt: skip
_SPACE = "\u2581"


class TokenType(IntEnum):
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, slots=True)
class _PreTokenization:
    """How text is split before BPE. `whole_words`: a word in the vocabulary is one token, whatever the merges are."""

    pre_tokenizer: Callable[[], PreTokenizer]
    normalizer: Callable[[], Normalizer] | None = None
    whole_words: bool = False
    adds_bos: bool = False


def _gpt2() -> PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def _split(*patterns: str) -> PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in patterns),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


_GPT2 = _PreTokenization(_gpt2)
_SMOLLM = _PreTokenization(lambda: pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _gpt2()]))
_LLAMA_BPE = _PreTokenization(lambda: _split(_LLAMA3), whole_words=True, adds_bos=True)
_LLAMA3_BY_MERGES = _PreTokenization(lambda: _split(_LLAMA3))
_QWEN35 = _PreTokenization(lambda: _split(_WITH_MARKS), normalizer=normalizers.NFC)
_QWEN = _PreTokenization(lambda: _split(_QWEN2), normalizer=normalizers.NFC)

PRE_TOKENIZATIONS = {
    "gpt-2": _GPT2,
    "smollm": _SMOLLM,
    "starcoder": _SMOLLM,
    "refact": _SMOLLM,
    "command-r": _SMOLLM,
    "exaone": _SMOLLM,
    "minerva-7b": _SMOLLM,
    "llama3": _LLAMA_BPE,
    "llama-v3": _LLAMA_BPE,
    "llama-bpe": _LLAMA_BPE,
    "falcon3": _LLAMA_BPE,
    "pixtral": _LLAMA_BPE,
    "midm-2.0": _LLAMA_BPE,
    "lfm2": _LLAMA_BPE,
    "falcon-h1": _LLAMA_BPE,
    "glm4": _LLAMA3_BY_MERGES,
    "chatglm-bpe": _LLAMA3_BY_MERGES,
    "dbrx": _LLAMA3_BY_MERGES,
    "smaug-bpe": _LLAMA3_BY_MERGES,
    "gpt-4o": _PreTokenization(lambda: _split(_O200K)),
    "llama4": _PreTokenization(lambda: _split(_O200K)),
    "tekken": _PreTokenization(lambda: _split(_TEKKEN), whole_words=True, adds_bos=True),
    "seed-coder": _PreTokenization(lambda: _split(_SEED_CODER)),
    "qwen2": _QWEN,
    "qwen35": _QWEN35,
    "deepseek-r1-qwen": _QWEN,
    "deepseek-llm": _PreTokenization(lambda: _split(*_DEEPSEEK2)),
    "deepseek-v3": _PreTokenization(lambda: _split(*_DEEPSEEK3)),
    "megrez": _QWEN,
}
_PRE = "tokenizer.ggml.pre"
_UNSAID = "default"  # written by converters that did not know the rule


def build_tokenizer(file: GGUFFile) -> PreTrainedTokenizerFast | None:
    """The file's tokenizer with its special tokens and chat template; None when the file has no vocabulary.

    UnsupportedModelError names a kind of tokenizer, or a rule of splitting, that is not implemented.
    """
    from transformers import PreTrainedTokenizerFast  # noqa: PLC0415  slow to import

    kind = file.get("tokenizer.ggml.model", str)
    if kind is None:
        return None
    builders = {"gpt2": _byte_level, "llama": _sentencepiece, "gemma4": _gemma4}
    if kind not in builders:
        raise UnsupportedModelError(
            f"{file.path}: tokenizer {kind!r} is not implemented (known: {', '.join(builders)})"
        )
    vocabulary = _Vocabulary.read(file)
    names = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    special = {name: vocabulary.special(file, key) for name, key in names.items()}
    tokenizer = builders[kind](file, vocabulary)
    vocabulary.mark_added(tokenizer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        chat_template=file.get("tokenizer.chat_template", str),
        clean_up_tokenization_spaces=False,
        **{name: token for name, token in special.items() if token is not None},
    )


@dataclass(frozen=True, slots=True)
class _Vocabulary:
    tokens: tuple[str, ...]
    types: tuple[int, ...]

    @classmethod
    def read(cls, file: GGUFFile) -> _Vocabulary:
        tokens = tuple(file.items("tokenizer.ggml.tokens", str))
        types = tuple(file.items("tokenizer.ggml.token_type", int)) or (TokenType.NORMAL,) * len(tokens)
        if len(types) != len(tokens):
            raise ModelLoadError(f"{file.path}: {len(tokens)} tokens but {len(types)} token types")
        return cls(tokens, types)

    @property
    def ids(self) -> dict[str, int]:
        return {token: index for index, token in enumerate(self.tokens)}

    def special(self, file: GGUFFile, key: str) -> str | None:
        """The special token of the role `key`, such as "bos" or "eos"."""
        index = file.get(f"tokenizer.ggml.{key}_token_id", int)
        if index is None:
            return None
        if not 0 <= index < len(self.tokens):
            raise ModelLoadError(f"{file.path}: tokenizer.ggml.{key}_token_id {index} is not in the vocabulary")
        return self.tokens[index]

    def mark_added(self, tokenizer: Tokenizer) -> None:
        """Add the control and user-defined tokens, which are found in a text before all others."""
        typed = list(zip(self.tokens, self.types, strict=True))
        control = {TokenType.CONTROL, TokenType.UNKNOWN}
        tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True) for t, k in typed if k in control])
        tokenizer.add_tokens([AddedToken(t, normalized=False) for t, k in typed if k == TokenType.USER_DEFINED])


def _byte_level(file: GGUFFile, vocabulary: _Vocabulary) -> Tokenizer:
    name = file.get(_PRE, str, _UNSAID)
    found = PRE_TOKENIZATIONS.get(name)
    if name == _UNSAID:
        raise UnsupportedModelError(
            f"{file.path}: the file does not say how texts are split into tokens: {_PRE} is {name!r} or missing. "
            f"Convert the model again, or set the key to one of {', '.join(PRE_TOKENIZATIONS)}"
        )
    if found is None:
        raise UnsupportedModelError(
            f"{file.path}: pre-tokenizer {name!r} is not implemented (known: {', '.join(PRE_TOKENIZATIONS)})"
        )
    tokenizer = Tokenizer(BPE(vocab=vocabulary.ids, merges=_merges(file), ignore_merges=found.whole_words))
    if found.normalizer is not None:
        tokenizer.normalizer = found.normalizer()
    tokenizer.pre_tokenizer = found.pre_tokenizer()
    tokenizer.decoder = decoders.ByteLevel()
    _add_bounds(file, vocabulary, tokenizer, bos=found.adds_bos)
    return tokenizer


def _merges(file: GGUFFile) -> list[tuple[str, str]]:
    halves = (merge.partition(" ") for merge in file.items("tokenizer.ggml.merges", str))
    return [(left, right) for left, _, right in halves]


def _sentencepiece(file: GGUFFile, vocabulary: _Vocabulary) -> Tokenizer:
    scores = file.items("tokenizer.ggml.scores", float)
    return _with_byte_fallback(file, vocabulary, _merges_by_score(vocabulary, scores))


def _gemma4(file: GGUFFile, vocabulary: _Vocabulary) -> Tokenizer:
    """A tokenizer like SentencePiece's with the file's merges, none of which crosses the end of a run of newlines."""
    tokenizer = _with_byte_fallback(file, vocabulary, _merges(file))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[^\n]+|\n+"), behavior="isolated")
    return tokenizer


def _with_byte_fallback(file: GGUFFile, vocabulary: _Vocabulary, merges: list[tuple[str, str]]) -> Tokenizer:
    model = BPE(
        vocab=vocabulary.ids,
        merges=merges,
        unk_token=vocabulary.special(file, "unknown"),
        fuse_unk=True,
        byte_fallback=True,
    )
    tokenizer = Tokenizer(model)
    prefix = file.get("tokenizer.ggml.add_space_prefix", bool, True)
    replace = normalizers.Replace(" ", _SPACE)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(_SPACE), replace]) if prefix else replace
    tail = [decoders.Strip(" ", 1, 0)] if prefix else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *tail]
    )
    _add_bounds(file, vocabulary, tokenizer, bos=True)
    return tokenizer


def _merges_by_score(vocabulary: _Vocabulary, scores: list[float]) -> list[tuple[str, str]]:
    """All pairs of tokens that join into a third, best score first: the order in which SentencePiece merges."""
    ids = vocabulary.ids
    pieces = sorted(
        (-score, index)
        for index, (score, kind) in enumerate(zip(scores, vocabulary.types, strict=True))
        if kind == TokenType.NORMAL
    )
    return [
        (token[:cut], token[cut:])
        for token in (vocabulary.tokens[index] for _, index in pieces)
        for cut in range(1, len(token))
        if token[:cut] in ids and token[cut:] in ids
    ]


def _add_bounds(file: GGUFFile, vocabulary: _Vocabulary, tokenizer: Tokenizer, *, bos: bool) -> None:
    """Put begin- and end-of-text tokens around a text if the file says so."""
    wanted = {
        "bos": file.get("tokenizer.ggml.add_bos_token", bool, bos),
        "eos": file.get("tokenizer.ggml.add_eos_token", bool, False),
    }
    tokens = {key: token for key, add in wanted.items() if add and (token := vocabulary.special(file, key))}
    if not tokens:
        return
    before, after = tokens.get("bos"), tokens.get("eos")
    single = [piece for piece in (before, "$A", after) if piece]
    pair = [*single, *(piece for piece in (before, "$B:1", after) if piece)]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=[(token, vocabulary.ids[token]) for token in set(tokens.values())]
    )
