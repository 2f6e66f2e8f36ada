"""From a path to a model ready to run: a Hugging Face folder, or a GGUF file that is converted to one and cached."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from thothy_ai.engine.errors import ModelLoadError
from thothy_ai.engine.models.config import ModelConfig
from thothy_ai.engine.models.decoder import Model
from thothy_ai.engine.weights.assemble import assemble
from thothy_ai.engine.weights.formats import weight_format
from thothy_ai.engine.weights.huggingface import SafetensorsFolder
from thothy_ai.engine.weights.tokenizer import load_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model on its device. `tokenizer` is None when the folder has none; `name` is the folder's or file's."""

    config: ModelConfig
    model: Model
    tokenizer: PreTrainedTokenizerBase | None
    name: str


def load_model(
    path: Path,
    *,
    device: torch.device,
    dtype: torch.dtype,
    weights: str = "auto",
    cache_dir: Path | None = None,
    check: Callable[[ModelConfig], None] = lambda _: None,
) -> LoadedModel:
    """Load a Hugging Face folder or a `.gguf` file; ModelLoadError says in one line what is wrong with it.

    `weights`: "auto" (as `dtype`) or "fp8". `cache_dir` keeps converted GGUF files; None: the user's cache folder.
    `check` is called before any weight is read, and may raise.
    """
    form = weight_format(weights, device)
    folder = _as_folder(path, dtype, cache_dir or default_cache_dir())
    config = ModelConfig.from_folder(folder)
    check(config)
    with SafetensorsFolder(folder, device, dtype) as source:
        model = assemble(config, source, form)
    tokenizer = load_tokenizer(folder)
    name = path.stem if path.is_file() else path.resolve().name
    return LoadedModel(_with_ends(config, tokenizer), model, tokenizer, name)


def _with_ends(config: ModelConfig, tokenizer: PreTrainedTokenizerBase | None) -> ModelConfig:
    """The tokenizer's own end-of-text token counts beside those of the configuration, if there is a logit for it."""
    end = getattr(tokenizer, "eos_token_id", None)
    if end is None or end >= config.vocab_size or end in config.eos_token_ids:
        return config
    return replace(config, eos_token_ids=(*config.eos_token_ids, end))


def default_cache_dir() -> Path:
    """`$XDG_CACHE_HOME/thothy-ai`, or `~/.cache/thothy-ai`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "thothy-ai"


def _as_folder(path: Path, dtype: torch.dtype, cache_dir: Path) -> Path:
    if not path.exists():
        raise ModelLoadError(f"{path}: no such file or folder")
    if path.is_dir():
        return path
    if path.suffix.lower() != ".gguf":
        raise ModelLoadError(f"{path}: neither a Hugging Face folder nor a .gguf file")
    from thothy_ai.engine.weights.convert import converted_folder  # noqa: PLC0415  gguf is there where GGUF files are

    return converted_folder(path, dtype, cache_dir)
