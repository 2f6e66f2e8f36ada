"""Loads a model from a Hugging Face folder, or from a GGUF file, which is converted to a folder and cached."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import torch

from thothy_ai.engine.api.errors import ModelLoadError
from thothy_ai.engine.checkpoint.configuration import FolderConfiguration
from thothy_ai.engine.checkpoint.multimodal import renaming
from thothy_ai.engine.execution.device import refuse_fp8_without_hardware
from thothy_ai.engine.grammar.tokens import CoreTokenizer
from thothy_ai.engine.models import FAMILIES
from thothy_ai.engine.models.config import ModelConfig
from thothy_ai.engine.models.model import Model
from thothy_ai.engine.models.ranks import Ranks
from thothy_ai.engine.weights.assemble import assemble, configured
from thothy_ai.engine.weights.formats import keeps_packed, weight_format
from thothy_ai.engine.weights.gguf.split import model_name
from thothy_ai.engine.weights.huggingface import OnRead, SafetensorsFolder, read_ahead
from thothy_ai.engine.weights.inventory import EMBEDDING, HEAD, PACKED_HEADS, expected_tensors, require_tensors
from thothy_ai.engine.weights.random import RandomWeights, wants_random_weights

log = logging.getLogger(__name__)


class ModelText(Protocol):
    """Reads a model's folder, or gets what another process has read.

    ModelLoadError or a subclass says what is wrong with a file. `configuration` is asked for first; `tokenizer` later,
    on any thread.
    """

    def configuration(self, folder: Path, named: Path, /) -> FolderConfiguration:
        """Errors name `named` instead of the folder."""
        ...

    def tokenizer(self, folder: Path, /) -> CoreTokenizer | None:
        """None if the folder has no tokenizer."""
        ...


class Phases:
    """Seconds of each phase of a start, in order. Phases on several threads overlap, so their sum can be longer."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add the seconds that the block takes."""
        began = time.perf_counter()
        yield
        self._seconds[name] = self._seconds.get(name, 0.0) + time.perf_counter() - began

    def __str__(self) -> str:
        """The name and seconds of each phase."""
        return ", ".join(f"{name} {seconds:.1f} s" for name, seconds in self._seconds.items())


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model on its device. `tokenizer` is None when the folder has none; `name` is the folder's or file's.

    With `ranks`, `model` is one rank's share of the model that `config` describes.

    Further `phases` of the start are added until the engine is ready.
    """

    config: ModelConfig
    model: Model
    tokenizer: CoreTokenizer | None
    name: str
    phases: Phases = field(default_factory=Phases)
    ranks: Ranks | None = None


def load_model(
    path: Path,
    *,
    text: ModelText,
    device: torch.device,
    dtype: torch.dtype,
    weights: str = "auto",
    cache_dir: Path | None = None,
    max_context: int | None = None,
    finite: bool = False,
    flex: bool = False,
    check: Callable[[ModelConfig], None] = lambda _: None,
    on_read: OnRead = lambda _done, _of: None,
    ranks: Ranks | None = None,
) -> LoadedModel:
    """Load a Hugging Face folder or a `.gguf` file; ModelLoadError says in one line what is wrong with it.

    `weights`: "auto" (as `dtype`), "stored" (GGUF files stay quantized) or "fp8". `cache_dir` keeps converted
    GGUF files; None: the user's cache folder. `max_context` limits the context length. `check` is called before any
    weight is read, and can raise. `on_read` is called with the number of bytes of weights read so far, and their total.
    With `flex`, torch's FlexAttention computes attention. With `ranks`, only this rank's share is kept. With `finite`,
    NaN and infinite weights are refused. A model is also refused if neither its configurations nor its tokenizer name
    an end-of-text token.
    """
    form = weight_format(weights, device)
    folder = _as_folder(path, dtype, cache_dir or default_cache_dir(), packed=keeps_packed(weights))
    phases = Phases()
    with ThreadPoolExecutor() as pool, ExitStack() as opened:
        pool.submit(read_ahead, folder)
        with phases.timed("configuration"):
            config = configured(text.configuration(folder, path), folder, path).within(max_context)
            if config.quantization is not None and config.quantization.needs_fp8:
                refuse_fp8_without_hardware(device)
            source: SafetensorsFolder | RandomWeights = RandomWeights(device, dtype)
            if not wants_random_weights(folder):
                renamed = renaming(config.container, config.family)
                source = opened.enter_context(
                    SafetensorsFolder(folder, device, dtype, renamed=renamed, finite=finite, on_read=on_read)
                )
                config = fitting(path, config, source)
            check(config)
        tokenizer = pool.submit(phases.timed("tokenizer")(text.tokenizer), folder)  # weights are copied without the GIL
        with phases.timed("weights"):
            if config.family not in FAMILIES and isinstance(source, SafetensorsFolder):
                source.check_values()
            try:
                model = assemble(config, source, form, flex=flex, ranks=ranks)
            except ValueError as error:  # tensors of a packed weight contradict each other
                raise ModelLoadError(f"{path}: {error}") from error
    name = model_name(path) if path.is_file() else path.resolve().name
    if isinstance(source, RandomWeights):
        name = f"{name} (random weights)"
    return LoadedModel(ending(config, path, tokenizer.result()), model, tokenizer.result(), name, phases, ranks)


def fitting(path: Path, config: ModelConfig, source: SafetensorsFolder) -> ModelConfig:
    """The configuration that fits the weights; ModelLoadError if they are from another model."""
    if config.family not in FAMILIES:  # transformers checks the names of its weights
        return config
    config = as_stored(path, config, source)
    expected = expected_tensors(path, config, source.places)
    names = [name for name in source.places if not name.startswith(config.unused)]
    needless: tuple[str, ...] = ()
    if config.quantization is not None:
        marks = config.quantization.marks
        if marks and not any(name.endswith(marks) for name in names):
            raise ModelLoadError(
                f"{path}: quantization_config says {config.quantization.method}, but no tensor is quantized"
            )
        doubtful = config.quantization.if_zero
        names = [name for name in names if name in expected or not (name.endswith(doubtful) and source.is_zero(name))]
        needless = config.quantization.needless
    require_tensors(path, names, expected, tied=config.tied_embeddings, needless=needless)
    source.expect(expected)
    return config


def as_stored(path: Path, config: ModelConfig, source: SafetensorsFolder) -> ModelConfig:
    """The configuration, tied only if the tensors are.

    A head that differs from the embedding is used, as in transformers, and so is a quantized head. If a file without
    duplicates has only the head, that becomes the embedding.
    """
    if not config.tied_embeddings:
        return config
    places = source.places
    packed = any(name in places for name in PACKED_HEADS)
    if HEAD in places and EMBEDDING not in places:
        places[EMBEDDING] = places.pop(HEAD)
    if not packed and (HEAD not in places or source.same(HEAD, EMBEDDING)):
        return config
    log.warning(
        "%s: the configuration ties the head to the embedding, but the weights have another head: it is used", path
    )
    return replace(config, tied_embeddings=False)


def ending(config: ModelConfig, path: Path, tokenizer: CoreTokenizer | None) -> ModelConfig:
    """The configuration with all tokens that end a generation, as named by the configuration and by the tokenizer.

    ModelLoadError if there are none.
    """
    if tokenizer is None:
        return config.ending_with(path, None)
    turn = tokenizer.end_of_turn
    ends = config.eos_token_ids if turn is None else (*config.eos_token_ids, turn)
    return replace(config, eos_token_ids=ends).ending_with(path, tokenizer.eos_token_id)


def default_cache_dir() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "thothy-ai"


def _as_folder(path: Path, dtype: torch.dtype, cache_dir: Path, *, packed: bool) -> Path:
    if not path.exists():
        raise ModelLoadError(f"{path}: no such file or folder")
    if path.is_dir():
        return path
    if path.suffix.lower() != ".gguf":
        raise ModelLoadError(f"{path}: neither a Hugging Face folder nor a .gguf file")
    from thothy_ai.engine.weights.gguf.convert import converted_folder  # noqa: PLC0415  gguf is there where GGUF files are

    return converted_folder(path, dtype, cache_dir, packed=packed)
