"""A tokenizer's vocabulary in llguidance's form: one trie of all tokens, and sets of slices over it."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from thothy_ai.engine.grammar.memory import ForcedMemory
from thothy_ai.engine.grammar.slices import general_slices
from thothy_ai.engine.grammar.tokens import CoreTokenizer, JsonTokens

if TYPE_CHECKING:
    from llguidance import LLTokenizer

log = logging.getLogger(__name__)

_PRINTABLE = range(0x20, 0x7F)  # bytes that can follow in most texts
_MAX_SETS = 8  # sets of slices besides prose's; 0.3 s to build and some 10 MB each with a vocabulary of 131,072

T = TypeVar("T")


class Vocabulary:
    """Built on separate threads: for 131,072 tokens, llguidance holds the interpreter's lock for 1 to 2 s, and sets of
    tokens take another second if they do not come with the tokenizer.

    `size` is the width of the logits; `eos` are the ids that end a text. A schema's own slices are also built on such a
    thread; until then, the schema uses those of prose. Can be used by any thread.

    `choices`, which exist once `with_slices` has returned, find masks that leave no choice. `forced` is shared by the
    grammars of all schemas, and belongs to the core's thread.
    """

    choices: Choices

    def __init__(self, tokenizer: CoreTokenizer, size: int, eos: Sequence[int]) -> None:
        self._tokenizer, self._size, self._eos = tokenizer, size, list(eos)
        self.forced = ForcedMemory()
        self._general = _on_a_thread(self._build)
        self._tokens = _on_a_thread(self._json_tokens)
        self._lock = threading.Lock()
        self._sets: OrderedDict[tuple[str, ...], Future[LLTokenizer]] = OrderedDict()  # least recently used first

    @property
    def tokens(self) -> JsonTokens:
        return self._tokens.result()

    def with_slices(self, slices: tuple[str, ...]) -> LLTokenizer:
        """The vocabulary with these slices if they are built, otherwise with those of prose."""
        general = self._general.result()
        if not slices:
            return general
        with self._lock:
            built = self._sets.get(slices)
            if built is None and all(each.done() for each in self._sets.values()):  # build one at a time
                built = self._sets[slices] = _on_a_thread(lambda: general.with_slices(list(slices)))
            if built is not None:
                self._sets.move_to_end(slices)
            if len(self._sets) > _MAX_SETS:
                self._sets.popitem(last=False)
        return built.result() if built is not None and _succeeded(built) else general

    def has(self, slices: tuple[str, ...]) -> bool:
        """Whether these slices are built."""
        with self._lock:
            return not slices or (slices in self._sets and _succeeded(self._sets[slices]))

    def _build(self) -> LLTokenizer:
        from llguidance import LLTokenizer  # noqa: PLC0415  an engine without grammars does not need it

        def read(definition: str) -> LLTokenizer:
            return LLTokenizer(definition, n_vocab=self._size, eos_token=self._eos, slices=general_slices())

        try:
            general = read(self._tokenizer.definition)
        except ValueError:  # the logits lack a token that was added to the model
            general = read(self._tokenizer.within(self._size))
        alone = [general.tokenize_bytes(bytes([byte])) for byte in _PRINTABLE]
        self.choices = Choices([tokens[0] for tokens in alone if len(tokens) == 1])
        return general

    def _json_tokens(self) -> JsonTokens:
        """The token sets that come with the tokenizer if they have the same tokens; otherwise computes them."""
        general, coming = self._general.result(), self._tokenizer.tokens
        table = token_table(general)
        if coming is not None:
            found = None if coming.exception() else coming.result()
            if found is not None and found.table == table:
                return found
            log.info("the core computes the token sets itself: the frontend sent none that fit this model's logits")
        tokens = JsonTokens(table)
        tokens.prepare()
        return tokens


class Choices:
    """Single-byte tokens, one for each byte. If a text can continue with two of them, no byte is forced."""

    def __init__(self, tokens: Sequence[int]) -> None:
        bits: dict[int, int] = {}  # by word of a mask
        for token in tokens:
            bits[token // 32] = bits.get(token // 32, 0) | 1 << token % 32
        self._words, self._bits = np.array([*bits], np.intp), np.array([*bits.values()], np.uint32)

    def lacking(self, masks: NDArray[np.int32]) -> list[bool]:
        """For each of the masks [C, words], whether it allows fewer than two of the tokens."""
        allowed = masks[:, self._words].view(np.uint32) & self._bits
        found: list[bool] = (np.bitwise_count(allowed).sum(axis=1) < 2).tolist()
        return found


def token_table(tokenizer: LLTokenizer) -> list[bytes]:
    """The bytes of each token; special tokens have none."""
    special, data = tokenizer.is_special_token, tokenizer.decode_bytes
    return [b"" if special(token) else data([token]) for token in range(tokenizer.vocab_size)]


def _succeeded(built: Future[LLTokenizer]) -> bool:
    return built.done() and built.exception() is None  # llguidance may refuse slices


def _on_a_thread(make: Callable[[], T]) -> Future[T]:
    """Run `make` on a thread that is not a daemon: native code must not outlive the interpreter."""
    made: Future[T] = Future()

    def run() -> None:
        try:
            made.set_result(make())
        except Exception as error:  # noqa: BLE001  raised by `result`
            made.set_exception(error)

    threading.Thread(target=run, name="engine-vocabulary").start()
    return made
