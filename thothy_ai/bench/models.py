"""The model of a drain: a named shape with random weights, drawn on the device, or a real model's folder.

Either is refused before weights are drawn or read if the device does not have enough memory.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path

import torch

from thothy_ai.bench.shapes import ON_A_CPU, ON_A_GPU, SHAPES, parameters, write_config
from thothy_ai.engine.api.errors import ModelLoadError, OutOfMemoryError
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.execution.device import resolve_device, resolve_dtype, use_device
from thothy_ai.engine.model_check.sizing import GB, MemoryPlan, plan_memory
from thothy_ai.engine.models.config import ModelConfig
from thothy_ai.engine.text.model_text import LocalText
from thothy_ai.engine.text.tokenizer import load_tokenizer
from thothy_ai.engine.weights.assemble import assemble, model_config
from thothy_ai.engine.weights.formats import weight_format
from thothy_ai.engine.weights.loader import LoadedModel, load_model
from thothy_ai.engine.weights.random import MARKER, RandomWeights

_TOKENIZER_FILES = ("tokenizer", "special_tokens", "added_tokens", "chat_template", "vocab", "merges")


def bench_model(shape: str, options: EngineOptions, say: Callable[[str], None] = lambda _: None) -> LoadedModel:
    """Load `options.model` if set, otherwise the named shape, which has no tokenizer.

    Raises `OutOfMemoryError` with the numbers, `ModelLoadError` or another `EngineError`. `say` receives the progress.
    """
    device = resolve_device(options.device)
    use_device(device)
    dtype = resolve_dtype(options.dtype, device)
    try:
        if options.model is not None:
            name = options.model.resolve().name
            return load_model(
                options.model,
                text=LocalText(),
                device=device,
                dtype=dtype,
                weights=options.weights,
                cache_dir=options.cache_dir,
                finite=options.check_weights,
                flex=options.attention == "flex",
                check=lambda config: _require(plan_memory(config, options, device, dtype), name, options),
                on_read=lambda done, of: say(f"Reading weights: {done / GB:.1f} of {of / GB:.1f} GB"),
            )
        _require(_plan(shape, options, device), shape, options)
        whole = f"{parameters(shape) * dtype.itemsize / GB:.1f} GB of random weights ({shape})"
        source = RandomWeights(device, dtype, lambda drawn: say(f"Drawing {whole}: {drawn / GB:.1f} GB done"))
        form, flex = weight_format(options.weights, device), options.attention == "flex"
        model = assemble(_config(shape), source, form, flex=flex)
        return LoadedModel(_config(shape), model, None, f"{shape} (random weights)")
    except torch.OutOfMemoryError as error:
        raise OutOfMemoryError(f"{options.model or shape} does not fit {device}: {error}") from error


def random_folder(shape: str, tokenizer: Path, folder: Path) -> Path:
    """Write a model folder of this shape with the tokenizer's vocabulary and random weights to `folder`.

    Raises `ModelLoadError` without a usable tokenizer.
    """
    loaded = load_tokenizer(tokenizer) if tokenizer.is_dir() else None
    if loaded is None or loaded.eos_token_id is None:
        raise ModelLoadError(f"{tokenizer}: not a folder with a tokenizer that names its end-of-text token")
    write_config(
        shape,
        folder,
        vocab_size=len(loaded),
        bos_token_id=None,
        eos_token_id=loaded.eos_token_id,
        transformers_version=version("transformers"),  # otherwise transformers warns of a tokenizer of an older version
    )
    for file in tokenizer.iterdir():
        if file.name.startswith(_TOKENIZER_FILES):
            shutil.copy(file, folder)
    (folder / MARKER).touch()
    return folder


def default_shape(options: EngineOptions) -> str:
    """A small shape on a CPU, and on a GPU the largest one that fits."""
    device = resolve_device(options.device)
    if device.type == "cpu":
        return ON_A_CPU
    use_device(device)
    return next((shape for shape in ON_A_GPU if _plan(shape, options, device).fits), ON_A_GPU[-1])


@cache
def _config(shape: str) -> ModelConfig:
    with tempfile.TemporaryDirectory() as folder:
        return model_config(write_config(shape, Path(folder)))


def _plan(shape: str, options: EngineOptions, device: torch.device) -> MemoryPlan:
    return plan_memory(_config(shape), options, device, resolve_dtype(options.dtype, device))


def _require(plan: MemoryPlan, name: str, options: EngineOptions) -> None:
    """Raise `OutOfMemoryError`, with the numbers and the shapes that would fit, unless the plan fits."""
    try:
        plan.require(name)
    except OutOfMemoryError as error:
        fitting = [name for name in SHAPES if _plan(name, options, plan.device).fits]
        if plan.weights < plan.available and (options.kv_tokens or options.max_rows or options.token_budget):
            remedy = "choose a smaller --kv-tokens, --max-rows or --token-budget"
        elif fitting:
            remedy = f"choose --shape {max(fitting, key=parameters)} or pass --model FOLDER with a smaller model"
        else:
            remedy = "free some memory"
        raise OutOfMemoryError(f"{error}: {remedy}") from None
