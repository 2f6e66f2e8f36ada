"""The model of a drain: a named shape with random weights, drawn on the device, or a real model's folder.

Either is refused before a weight is drawn or read if the device does not have the memory for it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from thothy_ai.bench.shapes import ON_A_CPU, ON_A_GPU, SHAPES, parameters, write_config
from thothy_ai.engine.errors import OutOfMemoryError
from thothy_ai.engine.execution.device import resolve_device, resolve_dtype, use_device
from thothy_ai.engine.models.config import ModelConfig
from thothy_ai.engine.options import EngineOptions
from thothy_ai.engine.process.sizing import GB, MemoryPlan, plan_memory
from thothy_ai.engine.weights.assemble import assemble
from thothy_ai.engine.weights.formats import weight_format
from thothy_ai.engine.weights.loader import LoadedModel, load_model


class RandomWeights:
    """A tensor source with every tensor: ones for norms, otherwise normal with a standard deviation of 0.02."""

    def __init__(self, device: torch.device, dtype: torch.dtype, on_drawn: Callable[[int], None]) -> None:
        self.device, self._dtype, self._on_drawn = device, dtype, on_drawn
        self._drawn = 0
        self._generator = torch.Generator(device).manual_seed(0)

    def tensor(self, name: str, *shape: int) -> Tensor:
        """A new tensor of this shape."""
        self._on_drawn(self._drawn)
        fresh = torch.empty(shape, dtype=self._dtype, device=self.device)
        self._drawn += fresh.nbytes
        return fresh.fill_(1.0) if "norm" in name else fresh.normal_(0.0, 0.02, generator=self._generator)

    def weight(self, name: str, *shape: int) -> Tensor:
        """As `tensor`: random weights are never packed."""
        return self.tensor(name, *shape)


def bench_model(shape: str, options: EngineOptions, say: Callable[[str], None] = lambda _: None) -> LoadedModel:
    """`options.model` if set, otherwise the named shape, which has no tokenizer.

    Raises `OutOfMemoryError` with the numbers, `ModelLoadError` or another `EngineError`. `say` gets what is going on.
    """
    device = resolve_device(options.device)
    use_device(device)
    dtype = resolve_dtype(options.dtype, device)
    try:
        if options.model is not None:
            return _from_folder(options.model, options, device, dtype)
        return _drawn(shape, options, device, dtype, say)
    except torch.OutOfMemoryError as error:
        raise OutOfMemoryError(f"{options.model or shape} does not fit {device}: {error}") from error


def default_shape(options: EngineOptions) -> str:
    """A small shape on a CPU, the largest one that fits on a GPU."""
    device = resolve_device(options.device)
    if device.type == "cpu":
        return ON_A_CPU
    use_device(device)
    return next((shape for shape in ON_A_GPU if _plan(shape, options, device).fits), ON_A_GPU[-1])


def _from_folder(model: Path, options: EngineOptions, device: torch.device, dtype: torch.dtype) -> LoadedModel:
    def check(config: ModelConfig) -> None:
        _require(plan_memory(config, options, device, dtype), model.resolve().name, options)

    return load_model(
        model, device=device, dtype=dtype, weights=options.weights, cache_dir=options.cache_dir, check=check
    )


def _drawn(
    shape: str, options: EngineOptions, device: torch.device, dtype: torch.dtype, say: Callable[[str], None]
) -> LoadedModel:
    config, plan = _config(shape), _plan(shape, options, device)
    _require(plan, shape, options)
    whole = f"{parameters(shape) * dtype.itemsize / GB:.1f} GB of random weights ({shape})"
    source = RandomWeights(device, dtype, lambda drawn: say(f"Drawing {whole}: {drawn / GB:.1f} GB done"))
    model = assemble(config, source, weight_format(options.weights, device))
    return LoadedModel(config, model, None, f"{shape} (random weights)")


@cache
def _config(shape: str) -> ModelConfig:
    with tempfile.TemporaryDirectory() as folder:
        return ModelConfig.from_folder(write_config(shape, Path(folder)))


def _plan(shape: str, options: EngineOptions, device: torch.device) -> MemoryPlan:
    return plan_memory(_config(shape), options, device, resolve_dtype(options.dtype, device))


def _require(plan: MemoryPlan, name: str, options: EngineOptions) -> None:
    """Raise `OutOfMemoryError` with the numbers, and with what would fit, unless the plan does."""
    try:
        plan.require(name)
    except OutOfMemoryError as error:
        raise OutOfMemoryError(f"{error}: {_remedy(plan, options)}") from None


def _remedy(plan: MemoryPlan, options: EngineOptions) -> str:
    if plan.weights < plan.available and (options.kv_tokens or options.max_rows or options.token_budget):
        return "choose a smaller --kv-tokens, --max-rows or --token-budget"
    fitting = [shape for shape in SHAPES if _plan(shape, options, plan.device).fits]
    if not fitting:
        return "free some memory"
    return f"choose --shape {max(fitting, key=parameters)} or pass --model FOLDER with a smaller model"
