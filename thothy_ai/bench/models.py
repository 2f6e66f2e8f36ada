"""The model of a drain: a named shape with random weights, drawn on the device, or a real model's folder."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from torch import Tensor

from thothy_ai.bench.shapes import write_config
from thothy_ai.engine.errors import OutOfMemoryError
from thothy_ai.engine.execution.device import resolve_device, resolve_dtype, use_device
from thothy_ai.engine.models.config import ModelConfig
from thothy_ai.engine.options import EngineOptions
from thothy_ai.engine.weights.assemble import assemble
from thothy_ai.engine.weights.formats import weight_format
from thothy_ai.engine.weights.loader import LoadedModel, load_model


class RandomWeights:
    """A tensor source with every tensor: ones for norms, otherwise normal with a standard deviation of 0.02."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self.device, self._dtype = device, dtype
        self._generator = torch.Generator(device).manual_seed(0)

    def tensor(self, name: str, *shape: int) -> Tensor:
        """A new tensor of this shape."""
        fresh = torch.empty(shape, dtype=self._dtype, device=self.device)
        return fresh.fill_(1.0) if "norm" in name else fresh.normal_(0.0, 0.02, generator=self._generator)

    def weight(self, name: str, *shape: int) -> Tensor:
        """As `tensor`: random weights are never packed."""
        return self.tensor(name, *shape)


def bench_model(shape: str, options: EngineOptions) -> LoadedModel:
    """`options.model` if set, otherwise the named shape, which has no tokenizer.

    Raises `ModelLoadError` or another `EngineError`.
    """
    device = resolve_device(options.device)
    use_device(device)
    dtype = resolve_dtype(options.dtype, device)
    try:
        return _loaded(shape, options, device, dtype)
    except torch.OutOfMemoryError as error:
        raise OutOfMemoryError(f"{options.model or shape} does not fit {device}: {error}") from error


def _loaded(shape: str, options: EngineOptions, device: torch.device, dtype: torch.dtype) -> LoadedModel:
    if options.model is not None:
        return load_model(
            options.model, device=device, dtype=dtype, weights=options.weights, cache_dir=options.cache_dir
        )
    with tempfile.TemporaryDirectory() as folder:
        config = ModelConfig.from_folder(write_config(shape, Path(folder)))
    model = assemble(config, RandomWeights(device, dtype), weight_format(options.weights, device))
    return LoadedModel(config, model, None, f"{shape} (random weights)")
