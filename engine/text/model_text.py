"""The text files of a model's folder that loading needs: its configuration and its tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from thothy_ai.engine.checkpoint.configuration import FolderConfiguration, read_configuration
from thothy_ai.engine.grammar.tokens import CoreTokenizer, JsonTokens
from thothy_ai.engine.text.end_of_turn import end_of_turn, names_ends
from thothy_ai.engine.text.special_tokens import unlimited
from thothy_ai.engine.text.token_bytes import TokenBytes
from thothy_ai.engine.text.tokenizer import load_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

_MARKER = b"\xff"  # llguidance marks special tokens with it; no text has it


class LocalText:
    """Implements `ModelText` with transformers in this process. `loaded` is the tokenizer that was read last."""

    def __init__(self) -> None:
        self.loaded: PreTrainedTokenizerBase | None = None

    def configuration(self, folder: Path, named: Path, /) -> FolderConfiguration:
        return read_configuration(folder, named)

    def tokenizer(self, folder: Path, /) -> CoreTokenizer | None:
        from transformers import PreTrainedTokenizerFast  # noqa: PLC0415  slow to import

        self.loaded = load_tokenizer(folder)
        return core_tokenizer(self.loaded, folder) if isinstance(self.loaded, PreTrainedTokenizerFast) else None


def core_tokenizer(tokenizer: PreTrainedTokenizerFast, folder: Path | None = None) -> CoreTokenizer:
    """The core's part of a tokenizer loaded from `folder`, whose padding and truncation are switched off."""
    definition = unlimited(tokenizer).to_str()
    turn = None if folder is not None and names_ends(folder) else end_of_turn(tokenizer)
    return CoreTokenizer(definition, tokenizer.eos_token_id, turn)


def json_tokens(vocabulary: TokenBytes, configuration: FolderConfiguration) -> JsonTokens | None:
    """The tables of the core's grammars, with all sets computed; None if the size of the logits cannot be right.

    The logits may have more tokens than the vocabulary, but hardly twice as many.
    """
    size = getattr(configuration.text, "vocab_size", None)
    if not isinstance(size, int) or not 0 < size <= 2 * len(vocabulary.table):
        return None
    table = [b"" if data.startswith(_MARKER) else data for data in vocabulary.table[:size]]
    tokens = JsonTokens([*table, *[b""] * (size - len(table))])
    tokens.prepare()
    return tokens
