"""Loads a folder's tokenizer, with its chat template, from any of the files that it may come in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thothy_ai.engine.api.errors import ModelLoadError, UnsupportedModelError, one_line
from thothy_ai.engine.text.tekken import TEKKEN, split_as_tekken, tekken_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

FAST = "tokenizer.json"
_PROCESSORS_TEMPLATE = "chat_template.json"  # of multimodal models, some of which have no other
_SLOW = ("tokenizer.model", "spiece.model", "tokenization_*.py", "*.tiktoken")


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase | None:
    """The tokenizer of a Hugging Face folder; None when there is none, ModelLoadError when it can't be read.

    A tokenizer.json is used unchanged: the class that AutoTokenizer picks by model type may rebuild it from the
    vocabulary alone and lose its peculiarities (SmolLM2's digits, for one). Its length limit is dropped, since the
    engine decides how long a prompt may be. A file that only a slow tokenizer can read is refused, and so is a
    tokenizer that is code of the model: what transformers would make of it need not encode alike.
    """
    try:
        tokenizer = _read(folder)
        template = folder / _PROCESSORS_TEMPLATE
        if tokenizer is not None and not tokenizer.chat_template and template.is_file():
            found = json.loads(template.read_text(encoding="utf-8"))["chat_template"]
            tokenizer.chat_template = found if isinstance(found, str) else None
    except ModelLoadError:
        raise
    except Exception as error:  # tokenizers raises bare Exception for a malformed file
        raise ModelLoadError(f"{folder}: the tokenizer can't be read: {one_line(error)}") from error
    return tokenizer


def no_tokenizer(name: str) -> ModelLoadError:
    """The error for a model without a tokenizer."""
    return ModelLoadError(f"{name} has no tokenizer.json, nor a file from which one can be made")


def tokenizer_file(folder: Path) -> str | None:
    """The file that a tokenizer is read from, or None. UnsupportedModelError if there are only other kinds of files."""
    for name in (FAST, TEKKEN):
        if (folder / name).is_file():
            return name
    if (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        return "vocab.json"
    slow = sorted(path.name for pattern in _SLOW for path in folder.glob(pattern))
    if slow:
        raise UnsupportedModelError(
            f"{folder}: the tokenizer exists only as {slow[0]}, which is not implemented: save it as {FAST}, "
            f"by transformers' AutoTokenizer with the model's own class"
        )
    return None


def _read(folder: Path) -> PreTrainedTokenizerBase | None:
    from transformers import AutoTokenizer, PreTrainedTokenizerFast  # noqa: PLC0415  slow to import
    from transformers.tokenization_utils_base import VERY_LARGE_INTEGER  # noqa: PLC0415  as above

    name = tokenizer_file(folder)
    if name is None:
        return None
    if name == TEKKEN:
        return tekken_tokenizer(folder / TEKKEN)
    options: dict[str, Any] = {"local_files_only": True, "model_max_length": VERY_LARGE_INTEGER}
    if name != FAST:
        slow: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, **options)
        return slow
    if not (folder / TEKKEN).is_file():
        fast: PreTrainedTokenizerBase = PreTrainedTokenizerFast.from_pretrained(folder, **options)
        return fast
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder, fix_mistral_regex=False, **options)
    return split_as_tekken(tokenizer, folder / TEKKEN)
