"""From a path to a model ready to run: a Hugging Face folder, or a GGUF file that is converted to one and cached."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from thothy_ai.engine.errors import ModelLoadError
from thothy_ai.engine.execution.device import refuse_fp8_without_hardware
from thothy_ai.engine.models.config import ModelConfig
from thothy_ai.engine.models.decoder import Model
from thothy_ai.engine.models.layers.linear import LinearFormat
from thothy_ai.engine.phases import Phases
from thothy_ai.engine.weights.assemble import assemble
from thothy_ai.engine.weights.formats import weight_format
from thothy_ai.engine.weights.huggingface import SafetensorsFolder, read_ahead
from thothy_ai.engine.weights.inventory import expected_tensors, require_tensors
from thothy_ai.engine.weights.random import RandomWeights, wants_random_weights
from thothy_ai.engine.weights.tokenizer import load_tokenizer
from thothy_ai.kernels.operations import Operations

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model on its device. `tokenizer` is None when the folder has none; `name` is the folder's or file's.

    `phases` of its start, to which others are added until it is ready.
    """

    config: ModelConfig
    model: Model
    tokenizer: PreTrainedTokenizerBase | None
    name: str
    phases: Phases = field(default_factory=Phases)


def load_model(
    path: Path,
    *,
    device: torch.device,
    dtype: torch.dtype,
    weights: str = "auto",
    cache_dir: Path | None = None,
    max_context: int | None = None,
    check: Callable[[ModelConfig], None] = lambda _: None,
    on_folder: Callable[[Path], None] = lambda _: None,
) -> LoadedModel:
    """Load a Hugging Face folder or a `.gguf` file; ModelLoadError says in one line what is wrong with it.

    `weights`: "auto" (as `dtype`) or "fp8". `cache_dir` keeps converted GGUF files; None: the user's cache folder.
    `max_context`: of a longer context only so much will be used. `on_folder` is told where the model's configuration
    and tokenizer are, as soon as that is known. `check` is called before any weight is read, and may raise. A model for
    which neither its configurations nor its tokenizer name an end-of-text token is refused.
    """
    form = weight_format(weights, device)
    folder = _as_folder(path, dtype, cache_dir or default_cache_dir())
    on_folder(folder)
    phases = Phases()
    with ThreadPoolExecutor() as pool:
        pool.submit(read_ahead, folder)
        with phases.timed("configuration"):
            config = ModelConfig.from_folder(folder, named=path).within(max_context)
            if config.quantization is not None and config.quantization.needs_fp8:
                refuse_fp8_without_hardware(device)
            source = _source(path, folder, config, device, dtype)
            check(config)
        tokenizer = pool.submit(_timed_tokenizer, folder, phases)  # on another thread: copies of weights need no GIL
        with source, phases.timed("weights"):
            model = _assembled(path, config, source, form)
    name = path.stem if path.is_file() else path.resolve().name
    if isinstance(source, RandomWeights):
        name = f"{name} (random weights)"
    return LoadedModel(_ending(config, path, tokenizer.result()), model, tokenizer.result(), name, phases)


def _assembled(
    path: Path,
    config: ModelConfig,
    source: SafetensorsFolder | RandomWeights,
    form: Callable[[Operations], LinearFormat],
) -> Model:
    try:
        return assemble(config, source, form)
    except ValueError as error:  # the tensors of a packed weight contradict each other
        raise ModelLoadError(f"{path}: {error}") from error


def _source(
    path: Path, folder: Path, config: ModelConfig, device: torch.device, dtype: torch.dtype
) -> SafetensorsFolder | RandomWeights:
    """Where the tensors come from; ModelLoadError if they are not those of the configuration."""
    if wants_random_weights(folder):
        return RandomWeights(device, dtype)
    source = SafetensorsFolder(folder, device, dtype)
    expected, names = expected_tensors(path, config, source.names), source.names
    needless: tuple[str, ...] = ()
    if config.quantization is not None:
        doubtful = config.quantization.if_zero
        names = [name for name in names if name in expected or not (name.endswith(doubtful) and source.is_zero(name))]
        needless = config.quantization.needless
    require_tensors(path, names, expected, tied=config.tied_embeddings, needless=needless)
    return source


def _timed_tokenizer(folder: Path, phases: Phases) -> PreTrainedTokenizerBase | None:
    with phases.timed("tokenizer"):
        return load_tokenizer(folder)


def _ending(config: ModelConfig, path: Path, tokenizer: PreTrainedTokenizerBase | None) -> ModelConfig:
    return config.ending_with(path, getattr(tokenizer, "eos_token_id", None))


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
