"""Reads the weights of a PEFT folder into the form that a slot on the device has."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from thothy_ai.engine.adapters.configuration import (
    WEIGHTS,
    AdapterConfiguration,
    digest_of,
    inside,
    read_configuration,
)
from thothy_ai.engine.api.adapters import AdapterInfo
from thothy_ai.engine.api.errors import AdapterLoadError, ModelLoadError, UnsupportedAdapterError, one_line
from thothy_ai.engine.models.layers.adapted import AdaptedModule, AdapterBank, HostWeights, padded
from thothy_ai.engine.weights.finite import not_finite
from thothy_ai.engine.weights.shards import StoredTensor, stored_tensors

_PREFIX = "base_model.model."
_TENSOR = re.compile(r"(?P<module>.+)\.lora_(?P<side>[AB])(\.default)?\.weight")
_NAME = re.compile(r"[^a-z0-9]")


@dataclass(frozen=True, slots=True)
class Base:
    """The model that adapters are for: its layers, and what it is called. `rename` gives a tensor's name in a model of
    text alone. `make_room(slots, rank, tokens, weights)` is called once, before the first one: for so many of at most
    this rank, in steps of at most so many tokens, which `weights` finds by their numbers.
    """

    bank: AdapterBank
    names: tuple[str, ...]
    rename: Callable[[str], str | None]
    vocab_size: int
    dtype: torch.dtype
    max_rank: int
    pinned: bool
    make_room: Callable[[int, int, int, Callable[[int], HostWeights]], None]


def read_adapter(name: str, folder: Path, base: Base) -> tuple[AdapterInfo, HostWeights]:
    """The adapter in a folder; AdapterLoadError, or UnsupportedAdapterError by name, if the base cannot use it."""
    configuration = read_configuration(folder)
    _check_base(folder, configuration, base)
    path = inside(folder, WEIGHTS)
    try:
        stored = stored_tensors(path)
    except ModelLoadError as error:
        raise AdapterLoadError(str(error)) from error
    pairs = _pairs(path, stored, base)
    weights = _filled(path, pairs, configuration, base)
    info = AdapterInfo(
        name, digest_of(folder), configuration.max_rank, configuration.base, str(folder),
        weights.numbers.nbytes, configuration.invocation_tokens,
    )  # fmt: skip
    return info, weights


def _check_base(folder: Path, configuration: AdapterConfiguration, base: Base) -> None:
    if not base.bank.modules:
        raise UnsupportedAdapterError(f"{folder}: adapters of models that run through transformers are not implemented")
    if configuration.max_rank > base.max_rank:
        raise AdapterLoadError(
            f"{folder}: rank {configuration.max_rank} is above this engine's largest, {base.max_rank}: "
            f"start it with --adapter-rank {configuration.max_rank}"
        )
    own = _NAME.sub("", configuration.base.lower().rstrip("/").rpartition("/")[2])
    names = [_NAME.sub("", each.lower()) for each in base.names]
    if own and names and not any(own in each or (each and each in own) for each in names):
        raise AdapterLoadError(
            f"{folder}: it is an adapter of {configuration.base}, this engine has {base.names[0]}; if they are the "
            "same, correct base_model_name_or_path in its configuration"
        )
    if unknown := [token for token in configuration.invocation_tokens if not 0 <= token < base.vocab_size]:
        raise AdapterLoadError(
            f"{folder}: token {unknown[0]} of alora_invocation_tokens is outside the vocabulary of {base.vocab_size}"
        )


def _pairs(path: Path, stored: Mapping[str, StoredTensor], base: Base) -> dict[str, dict[str, str]]:
    """The names of A and B, by the module's name in the base."""
    found: dict[str, dict[str, str]] = {}
    for name, tensor in stored.items():
        match = _TENSOR.fullmatch(name.removeprefix(_PREFIX))
        if match is None:
            raise UnsupportedAdapterError(f"{path}: tensor {name!r} is no pair's A or B of a linear layer")
        try:
            tensor.require_plain(name)
        except ModelLoadError as error:
            raise UnsupportedAdapterError(f"{path}: {error}") from error
        module = (base.rename(match["module"] + ".") or "").removesuffix(".")
        if module not in base.bank.modules:
            raise _unknown_module(path, match["module"])
        found.setdefault(module, {})[match["side"]] = name
    if not found:
        raise AdapterLoadError(f"{path}: no tensors")
    for module, sides in found.items():
        if len(sides) < 2:
            raise AdapterLoadError(f"{path}: {module} has only one of lora_A and lora_B")
    return found


def _unknown_module(path: Path, module: str) -> AdapterLoadError:
    if ".experts" in module or module.endswith((".router", ".gate")):
        return UnsupportedAdapterError(f"{path}: adapters of experts and routers ({module}) are not implemented")
    if module.endswith(("lm_head", "embed_tokens")):
        return UnsupportedAdapterError(f"{path}: adapters of {module} are not implemented")
    return AdapterLoadError(f"{path}: this model has no linear layer {module}: it is an adapter of another one")


def _filled(
    path: Path, pairs: Mapping[str, Mapping[str, str]], configuration: AdapterConfiguration, base: Base
) -> HostWeights:
    """All pairs, scaled, in their places."""
    bank, rank = base.bank, padded(base.max_rank)
    try:
        numbers = torch.zeros(bank.numbers_per_slot(rank), dtype=base.dtype, pin_memory=base.pinned)
        ranks = torch.zeros(bank.num_sites, dtype=torch.int32, pin_memory=base.pinned)
    except RuntimeError as error:
        raise AdapterLoadError(f"{path}: no host memory for it: {one_line(error)}") from error
    views = bank.views(numbers[None], rank)
    try:
        with safe_open(path, framework="pt") as file:
            for name, sides in pairs.items():
                module, own = bank.modules[name], configuration.rank_of(name)
                a = _checked(path, sides["A"], file.get_tensor(sides["A"]), (own, module.inputs))
                b = _checked(path, sides["B"], file.get_tensor(sides["B"]), (module.rows, own))
                _place(module, a, b * configuration.scale_of(name), views, rank)
                ranks[module.site] = max(int(ranks[module.site]), own)
    except (SafetensorError, OSError) as error:
        raise AdapterLoadError(f"{path}: truncated or not a safetensors file: {one_line(error)}") from error
    return HostWeights(numbers, ranks)


def _checked(path: Path, name: str, tensor: Tensor, shape: tuple[int, int]) -> Tensor:
    """In float32; AdapterLoadError for another shape, or numbers that are not finite."""
    if tuple(tensor.shape) != shape:
        raise AdapterLoadError(
            f"{path}: tensor {name!r} has shape {[*tensor.shape]}, this model's layer and the configuration need "
            f"{[*shape]}"
        )
    if count := not_finite(tensor):
        raise AdapterLoadError(f"{path}: tensor {name!r}: {count:,} values are NaN or infinite: the file is corrupt")
    return tensor.float()


def _place(module: AdaptedModule, a: Tensor, b: Tensor, views: list[tuple[Tensor, Tensor]], rank: int) -> None:
    own, (low, high) = len(a), views[module.site]
    low[0, module.part * rank : module.part * rank + own] = a.to(low.dtype)
    rows = b if module.order is None else b[module.order.cpu()]
    high[0, module.first : module.first + module.rows, :own] = rows.to(high.dtype)
