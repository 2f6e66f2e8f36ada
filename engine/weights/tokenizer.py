"""Loads a folder's tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from thothy_ai.engine.errors import ModelLoadError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_OTHER_FILES = ("tokenizer_config.json", "tokenizer.model", "vocab.json")


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase | None:
    """The tokenizer of a Hugging Face folder; None when there is none, ModelLoadError when it can't be read.

    A tokenizer.json is taken as it stands: the class that AutoTokenizer picks by model type may rebuild it from the
    vocabulary alone, and loses what is special about it (SmolLM2's digits, for one). Its length limit is dropped: how
    long a prompt may be is the engine's to say.
    """
    from transformers import AutoTokenizer, PreTrainedTokenizerFast  # noqa: PLC0415  slow to import
    from transformers.tokenization_utils_base import VERY_LARGE_INTEGER  # noqa: PLC0415  as above

    kind: type[PreTrainedTokenizerFast | AutoTokenizer]
    if (folder / "tokenizer.json").is_file():
        kind = PreTrainedTokenizerFast
    elif any((folder / name).is_file() for name in _OTHER_FILES):
        kind = AutoTokenizer
    else:
        return None
    try:
        tokenizer: PreTrainedTokenizerBase = kind.from_pretrained(
            folder, local_files_only=True, model_max_length=VERY_LARGE_INTEGER
        )
    except Exception as error:  # tokenizers raises bare Exception for a malformed file
        raise ModelLoadError(f"{folder}: the tokenizer can't be read: {' '.join(str(error).split())}") from error
    return tokenizer
