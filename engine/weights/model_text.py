"""The text files of a model's folder, as a load reads them: its configuration and its tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from thothy_ai.engine.configuration import FolderConfiguration, read_configuration
from thothy_ai.engine.core_tokenizer import CoreTokenizer
from thothy_ai.engine.weights.end_of_turn import end_of_turn, names_ends
from thothy_ai.engine.weights.tokenizer import load_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast


class ModelText(Protocol):
    """Reads a folder, or asks who does. ModelLoadError or a subclass says what is wrong with a file.

    `configuration` is asked for first; `tokenizer`, later, on any thread.
    """

    def configuration(self, folder: Path, named: Path, /) -> FolderConfiguration:
        """Its configuration. `named` is what it is called in errors."""
        ...

    def tokenizer(self, folder: Path, /) -> CoreTokenizer | None:
        """Its tokenizer; None if it has none."""
        ...


class TextHere:
    """Implements `ModelText` with transformers in this process. `loaded` is the tokenizer that was read last."""

    def __init__(self) -> None:
        self.loaded: PreTrainedTokenizerBase | None = None

    def configuration(self, folder: Path, named: Path, /) -> FolderConfiguration:
        """As `ModelText`."""
        return read_configuration(folder, named)

    def tokenizer(self, folder: Path, /) -> CoreTokenizer | None:
        """As `ModelText`."""
        from transformers import PreTrainedTokenizerFast  # noqa: PLC0415  slow to import

        self.loaded = load_tokenizer(folder)
        return core_tokenizer(self.loaded, folder) if isinstance(self.loaded, PreTrainedTokenizerFast) else None


def core_tokenizer(tokenizer: PreTrainedTokenizerFast, folder: Path | None = None) -> CoreTokenizer:
    """Of a tokenizer that neither pads nor truncates, as `load_tokenizer` loads it; from this folder, if any."""
    turn = None if folder is not None and names_ends(folder) else end_of_turn(tokenizer)
    return CoreTokenizer(tokenizer.backend_tokenizer.to_str(), tokenizer.eos_token_id, turn)
