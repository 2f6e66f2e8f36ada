"""The core's view of a tokenizer, with its tokens classified by their effect on a compact JSON text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, get_type_hints

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

Bits = NDArray[np.int32]  # [ceil(vocab / 32)], lowest bit first

_MARK = rb"(?:[.!?]|\xe3\x80\x82|\xef\xbc\x81|\xef\xbc\x9f)"  # . ! ? and those of Chinese and Japanese, in UTF-8
_AFTER_MARK = rb"(?:[)']|\\\"|\xe2\x80[\x99\x9c\x9d]|\xc2[\xab\xbb]|\xe3\x80[\x8d\x8f])?"  # a bracket, a quotation mark
_BEGINNING = rb"\\|\xe2|\xe2\x80|\xc2|\xe3|\xe3\x80"  # of such a sign
_CLOSING = rb'"[}\]]*'
_INITIAL_OR_NUMBER = rb"(?<![0-9])(?<![^A-Za-z][A-Z])"  # not before a full stop that ends a sentence
SENTENCE_END = re.compile(rb"(?:%s%s|(?!\.)%s)%s$" % (_INITIAL_OR_NUMBER, rb"\.", _MARK, _AFTER_MARK))
NUMBER_AND_STOP = re.compile(rb"[0-9]\.$")
_CONTINUATION = bytes(range(0x80, 0xC0))  # UTF-8 continuation bytes
_SPECIAL = re.compile(rb'["\\\x00-\x1f]')
_IN_STRING = re.compile(rb'(?:[^"\\]|\\.|\\\Z)*', re.DOTALL)
_UNSURE = re.compile(rb"\\u(?:[dD]|.*\\u)", re.DOTALL)
_CHARACTER = re.compile(rb"\\u[0-9a-fA-F]{0,4}|\\.?|[^\x80-\xbf]", re.DOTALL)
_MAX_COUNTED = 255  # characters: a byte
_CONTROL = re.compile(rb"[\x00-\x1f]")
_MAX_FILLER = 14  # bytes, an everyday word
_FIRST_BYTES = 3
_LONGEST = 32  # bytes; longer tokens are runs of spaces and the like
_MAX_COUNTS = 10_000  # texts with a remembered number of tokens


@dataclass(frozen=True, slots=True)
class CoreTokenizer:
    """`definition` is a tokenizer.json with all added tokens.

    `eos_token_id` is its end-of-text token. `end_of_turn` is the token that the chat template writes after an answer;
    None if generation_config.json lists the tokens that end a generation. `tokens` come from another process; they are
    not used if they don't have the size of the logits.
    """

    definition: str
    eos_token_id: int | None = None
    end_of_turn: int | None = None
    tokens: Future[JsonTokens | None] | None = None

    def within(self, size: int) -> str:
        """The definition without the tokens from id `size` on, and without the merges that make them."""
        content = json.loads(self.definition)
        content["added_tokens"] = [token for token in content["added_tokens"] if token["id"] < size]
        model = content["model"]
        if isinstance(model["vocab"], list):  # by id
            model["vocab"] = model["vocab"][:size]
        else:
            model["vocab"] = kept = {token: id_ for token, id_ in model["vocab"].items() if id_ < size}
            if "merges" in model:
                pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
                model["merges"] = [pair for pair in pairs if {*pair, "".join(pair)} <= kept.keys()]
        return json.dumps(content)


class JsonTokens:
    """`table[token]` has the token's bytes. Each set is computed when it is first used, unless it is given by name."""

    def __init__(self, table: Sequence[bytes], sets: Mapping[str, Any] | None = None) -> None:
        self.table = table
        self.words = -(-len(table) // 32)  # of a set
        self._up_to: dict[int, Bits] = {}
        self._counts: dict[bytes, int] = {}
        vars(self).update(sets or {})

    @classmethod
    def types(cls) -> dict[str, Any]:
        """The type of each set by its name."""
        properties = {name: each for name, each in vars(cls).items() if isinstance(each, cached_property)}
        return {name: get_type_hints(each.func)["return"] for name, each in properties.items()}

    def prepare(self) -> dict[str, Any]:
        """Compute all sets and return them by name; takes a second for a vocabulary of 131,072."""
        return {name: getattr(self, name) for name in self.types()}

    @cached_property
    def whole_characters(self) -> bytes:
        """By token: the characters it adds to a string; 0 if it has parts of characters, or can do more than that."""

        def count(data: bytes) -> int:
            if _SPECIAL.search(data):
                return 0
            try:
                found = len(data.decode())
            except UnicodeDecodeError:
                return 0
            return found if found <= _MAX_COUNTED else 0

        return bytes(map(count, self.table))

    @cached_property
    def horizon(self) -> int:
        """More characters than any token has, including the rest of a character begun before it."""
        inside = (data for data in self.table if not _CONTROL.search(data))
        return max((len(data.translate(None, _CONTINUATION)) for data in inside), default=0) + 2

    @cached_property
    def begun_characters(self) -> NDArray[np.int32]:
        """By token: the characters it adds to an open string, including one that it only begins."""

        def count(data: bytes) -> int:
            if not _SPECIAL.search(data):
                return len(data.translate(None, _CONTINUATION))
            return len(_CHARACTER.findall(_IN_STRING.match(data)[0]))  # type: ignore[index]  # it matches anything

        return np.array([count(data) for data in self.table], np.int32)

    @cached_property
    def unsure_bits(self) -> Bits:
        """Tokens that add an unknown number of characters, since two numeric escapes can be one character."""
        return self._bits(token for token, data in enumerate(self.table) if _UNSURE.search(data))

    def up_to(self, characters: int) -> Bits:
        """Tokens that add at most `characters` characters to an open string."""
        if characters not in self._up_to:
            fitting = np.zeros(self.words * 32, np.uint8)
            fitting[: len(self.table)] = self.begun_characters <= characters
            self._up_to[characters] = np.packbits(fitting, bitorder="little").view(np.int32)
        return self._up_to[characters]

    @cached_property
    def by_bytes(self) -> dict[bytes, int]:
        return {data: token for token, data in enumerate(self.table) if data}

    @cached_property
    def longest_from(self) -> dict[bytes, int]:
        """The length in bytes of the longest token, by its first bytes (at most three)."""
        longest: dict[bytes, int] = {}
        for data in self.table:
            beginning, size = data[:_FIRST_BYTES], min(len(data), _LONGEST)
            if size > longest.get(beginning, 0):
                longest[beginning] = size
        return longest

    @cached_property
    def longest_bytes(self) -> int:
        return max(self.longest_from.values(), default=1)

    def divided(self, text: bytes) -> list[int]:
        """A division of the text into the fewest tokens; empty if there is none."""
        size, by_bytes, longest = len(text), self.by_bytes, self.longest_from
        counts, ends = [size + 1] * size + [0], [0] * size  # fewest tokens from each byte on
        for at in range(size - 1, -1, -1):
            most = longest.get(text[at : at + _FIRST_BYTES], _FIRST_BYTES - 1)
            for end in range(at + 1, min(size, at + most) + 1):
                if counts[end] < counts[at] and text[at:end] in by_bytes:
                    counts[at], ends[at] = counts[end] + 1, end
        found, at = list[int](), 0
        while at < size:
            if not ends[at]:
                return []
            found.append(by_bytes[text[at : ends[at]]])
            at = ends[at]
        return found

    def count(self, text: bytes) -> int:
        """The fewest tokens of a text."""
        found = self._counts.get(text)
        if found is None:
            if len(self._counts) > _MAX_COUNTS:
                self._counts.clear()
            found = self._counts[text] = len(self.divided(text))
        return found

    @cached_property
    def with_quote(self) -> frozenset[int]:
        return frozenset(token for token, data in enumerate(self.table) if b'"' in data)

    @cached_property
    def quotes(self) -> list[int]:
        """Tokens that end a string, and possibly its containers, and begin nothing; the longest first."""
        return self._longest_first(_CLOSING)

    @cached_property
    def brackets(self) -> list[int]:
        """Tokens that end objects and arrays, and begin nothing; the longest first."""
        return self._longest_first(rb"[}\]]+")

    @cached_property
    def steps(self) -> list[int]:
        """Tokens of one step outside of strings: punctuation, a digit, a word, or closing brackets."""
        return self._matching(rb'[{}\[\]",: 0-9eE.+-]|[}\]]+|[tfn]|true|false|null')

    @cached_property
    def most_openings(self) -> int:
        """The most objects, arrays, items and keys that one token begins."""
        beginning = re.compile(rb'[{\[,"]')
        return max((len(beginning.findall(data)) for data in self.table if len(data) <= _LONGEST), default=1)

    @cached_property
    def words_of_text(self) -> list[str]:
        """Words, the longest first: for each length and sort, the one with the lowest id, since that is common."""
        sorts = (rb" [a-z]+", rb"[a-z]+", rb" [A-Z]?", rb" [A-Z][a-z]+", rb"[A-Z][a-z]*", rb"[0-9]+")
        one_each: dict[tuple[int, bytes], int] = {}
        for sort in sorts:
            for token in self._longest_first(sort):
                one_each.setdefault((len(self.table[token]), sort), token)
        return sorted((self.table[token].decode() for token in one_each.values()), key=len, reverse=True)

    @cached_property
    def quote_bits(self) -> Bits:
        return self._bits(self.quotes)

    @cached_property
    def bracket_bits(self) -> Bits:
        return self._bits(self.brackets)

    @cached_property
    def boundaries(self) -> bytes:
        """By token: 1 if it can end a string or a sentence, or begin or end an object or an array."""
        found = re.compile(rb'["\\{}\[\]]|' + _MARK)
        return bytes(found.search(data) is not None for data in self.table)

    @cached_property
    def after_sentence_bits(self) -> Bits:
        """`quotes`, and the same after brackets or quotation marks that can end a sentence."""
        closing = rb"(?:%s)+(?:%s)?" % (_AFTER_MARK.removesuffix(b"?"), _CLOSING)
        return self._bits(self._matching(closing) + self._matching(_BEGINNING)) | self.quote_bits

    @cached_property
    def digit_or_quote_bits(self) -> Bits:
        """Tokens that continue a number, and `quotes`."""
        return self._bits(self._matching(rb"[0-9](?s:.*)")) | self.quote_bits

    @cached_property
    def end_bits(self) -> Bits:
        """Tokens that end a sentence or a string."""
        return self._bits(self._matching(rb"(?:%s+%s)?(?:%s)?" % (_MARK, _AFTER_MARK, _CLOSING)))

    @cached_property
    def in_string_bits(self) -> Bits:
        """Tokens that leave a string open, or end it and begin nothing."""
        quoting = set(self._matching(rb'(?:[^\\"]|\\.)*"(?s:.*)'))
        ending = set(self._matching(rb'(?:[^\\"]|\\.)*%s' % _CLOSING))
        return ~self._bits(quoting - ending)

    @cached_property
    def in_word_bits(self) -> Bits:
        """Tokens that don't begin another word: letters, digits, and everything beyond ASCII."""
        return self._bits(self._matching(rb"[A-Za-z0-9'\x80-\xff-]+"))

    @cached_property
    def between_bits(self) -> Bits:
        """Tokens of one step outside of strings: punctuation, a number, a name, or closing brackets."""
        return self._bits(self._matching(rb'[{}\[\]",:]|[}\]]+|\[\]|\{\}|[A-Za-z0-9.+-]+'))

    @cached_property
    def comma_bits(self) -> Bits:
        return self._bits(self._matching(rb",(?s:.*)"))

    def _matching(self, pattern: bytes) -> list[int]:
        matches: Callable[[bytes], object] = re.compile(pattern).fullmatch
        return [token for token, data in enumerate(self.table) if data and matches(data)]

    def _longest_first(self, pattern: bytes) -> list[int]:
        found = [token for token in self._matching(pattern) if len(self.table[token]) <= _MAX_FILLER]
        return sorted(found, key=lambda token: -len(self.table[token]))

    def _bits(self, tokens: Iterable[int]) -> Bits:
        bits = np.zeros(self.words * 32, np.uint8)
        bits[list(tokens)] = 1
        return np.packbits(bits, bitorder="little").view(np.int32)


def allow_only(row: Bits, tokens: Iterable[int]) -> None:
    row[:] = 0
    words = row.view(np.uint32)
    for token in tokens:
        words[token >> 5] |= np.uint32(1 << (token & 31))


def allow_all_but(row: Tensor, tokens: Iterable[int]) -> None:
    words = row.fill_(-1).numpy().view(np.uint32)
    for token in tokens:
        words[token >> 5] &= np.uint32(2**32 - 1 ^ 1 << (token & 31))


def allowed_tokens(row: Bits) -> list[int]:
    """The tokens that a row allows; fast if they are few."""
    words = np.flatnonzero(row)
    bits = np.unpackbits(row[words].view(np.uint8).reshape(-1, 4), axis=1, bitorder="little")
    places, offsets = np.nonzero(bits)
    found: list[int] = (32 * words[places] + offsets).tolist()
    return found
