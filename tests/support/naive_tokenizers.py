"""Tokenizers written down plainly from llama.cpp's rules (llama-vocab.cpp, unicode.cpp): oracles, and slow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import regex

# llama-vocab.cpp applies a pre-tokenizer's patterns one after the other, each to the pieces of the one before.
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_LLAMA3 = (
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_CONTRACTION = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_GPT4O = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CONTRACTION}"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SEED_CODER = (
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}"
    r"| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"
)
PATTERNS = {
    "gpt-2": [_GPT2],
    "smollm": [r"\p{N}", _GPT2],
    "llama-bpe": [_LLAMA3],
    "glm4": [_LLAMA3],
    "gpt-4o": [_GPT4O],
    "qwen2": [_LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")],
    "tekken": [_TEKKEN],
    "seed-coder": [_SEED_CODER],
    "deepseek-llm": [
        r"[\r\n]", r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯҊ-ԯԱ-Ֆ]+", r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$",
        "[一-龥ࠀ-一가-\ud7ff]+", r"\p{N}+",
    ],
    "deepseek-v3": [
        r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
        (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
        r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"),
    ],
}  # fmt: skip


def byte_alphabet() -> list[str]:
    """The printable stand-in of each byte, as GPT-2 chose them."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    shown = {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}
    return [shown[byte] for byte in range(256)]


def cut(text: str, patterns: Sequence[str]) -> list[str]:
    pieces = [text]
    for pattern in patterns:
        pieces = [part for piece in pieces for part in _matches_and_gaps(piece, pattern)]
    return pieces


def _matches_and_gaps(text: str, pattern: str) -> Iterator[str]:
    end = 0
    for match in regex.finditer(pattern, text):
        yield from (part for part in (text[end : match.start()], match.group()) if part)
        end = match.end()
    if end < len(text):
        yield text[end:]


def merge(symbols: list[str], rank: Callable[[tuple[str, str]], float | None]) -> list[str]:
    """Join the neighbours of lowest rank, leftmost first, until none may be joined."""
    symbols = list(symbols)
    while True:
        ranked = [(r, i) for i, pair in enumerate(pairwise(symbols)) if (r := rank(pair)) is not None]
        if not ranked:
            return symbols
        _, i = min(ranked)
        symbols[i : i + 2] = [symbols[i] + symbols[i + 1]]


def byte_level_bpe(
    text: str, tokens: Sequence[str], merges: Sequence[str], pre: str, *, whole_words: bool = False
) -> list[int]:
    """Ids of a text without special tokens."""
    ids = {token: i for i, token in enumerate(tokens)}
    ranks: dict[tuple[str, ...], float] = {tuple(pair.split(" ")): i for i, pair in enumerate(merges)}
    shown = byte_alphabet()
    out: list[int] = []
    for piece in cut(text, PATTERNS[pre]):
        word = "".join(shown[byte] for byte in piece.encode())
        whole = whole_words and word in ids
        symbols = [word] if whole else merge(list(word), ranks.get)
        out += [ids[symbol] for symbol in symbols]
    return out


def sentencepiece_bpe(text: str, tokens: Sequence[str], scores: Sequence[float], prefix: str = "▁") -> list[int]:
    """Ids of a text: the best-scored neighbours join first; what is not in the vocabulary becomes bytes."""
    ids = {token: i for i, token in enumerate(tokens)}

    def rank(pair: tuple[str, str]) -> float | None:
        joined = ids.get("".join(pair))
        return None if joined is None else -scores[joined]

    symbols = merge(list(prefix + text.replace(" ", "▁")), rank)
    return [
        id_
        for symbol in symbols
        for id_ in ([ids[symbol]] if symbol in ids else [ids[f"<0x{byte:02X}>"] for byte in symbol.encode()])
    ]


def train_merges(words: Sequence[str], count: int) -> list[str]:
    """The most frequent neighbours, over and over: BPE's training, on symbols that are characters."""
    split = [list(word) for word in words]
    merges: list[str] = []
    for _ in range(count):
        pairs: dict[tuple[str, str], int] = {}
        for symbols in split:
            for pair in pairwise(symbols):
                pairs[pair] = pairs.get(pair, 0) + 1
        if not pairs:
            break
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(" ".join(best))
        split = [merge(symbols, {best: 0.0}.get) for symbols in split]
    return merges
