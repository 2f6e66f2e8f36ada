"""Reads the weights of a PEFT folder into the layout of a slot on the device."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors import torch as safetensors
from torch import Tensor

from thothy_ai.engine.adapters.library import HostAdapter
from thothy_ai.engine.api.adapters import AdapterInfo
from thothy_ai.engine.api.errors import AdapterLoadError, UnsupportedAdapterError, one_line
from thothy_ai.engine.checkpoint.adapter import WEIGHTS, AdapterConfiguration, AdapterFiles, inside
from thothy_ai.engine.checkpoint.finite import not_finite
from thothy_ai.engine.execution.host_memory import host_memory
from thothy_ai.engine.models.layers.adapted import AdaptedModule, AdapterBank, HostWeights, padded

_PREFIX = "base_model.model."
_TENSOR = re.compile(r"(?P<module>.+)\.lora_(?P<side>[AB])(\.default)?\.weight")
_NAME = re.compile(r"[^a-z0-9]")
_PLAIN = {torch.float64, torch.float32, torch.float16, torch.bfloat16}
_HOST_SHARE = 0.5  # share of the machine's available memory that one adapter may take


@dataclass(frozen=True, slots=True)
class AdaptedModel:
    """The base model of adapters: its layers and its name. `rename` maps a tensor's name to the one in a text-only
    model. `make_room(slots, rank, tokens, weights)` is called once, before the first adapter: it prepares `slots`
    adapters of at most `rank`, in steps of at most `tokens` tokens; `weights` finds an adapter by its number.
    """

    bank: AdapterBank
    names: tuple[str, ...]
    rename: Callable[[str], str | None]
    vocab_size: int
    dtype: torch.dtype
    max_rank: int
    pinned: bool
    make_room: Callable[[int, int, int, Callable[[int], HostWeights]], None]


@dataclass(slots=True)
class _LowRankPair:
    """The weights "A" and "B" of a linear layer, with their names; `module` is the layer's name in PEFT."""

    module: str
    sides: dict[str, tuple[str, Tensor]] = field(default_factory=dict)


def read_adapter(name: str, folder: Path, base: AdaptedModel) -> HostAdapter:
    """Read the adapter in a folder. AdapterLoadError if the base model cannot use it; UnsupportedAdapterError names the
    feature that is not implemented.
    """
    path = inside(folder, WEIGHTS)
    _require_host_memory(path, base)
    files = AdapterFiles.read(folder)
    configuration = files.parsed
    _check_base(folder, configuration, base)
    pairs = _pairs(path, _tensors(path, files.weights), base)
    weights = _filled(path, pairs, configuration, base)
    info = AdapterInfo(
        name, files.digest, configuration.max_rank, configuration.base, str(folder),
        weights.numbers.nbytes, configuration.invocation_tokens,
    )  # fmt: skip
    return HostAdapter(info, weights)


def _require_host_memory(path: Path, base: AdaptedModel) -> None:
    """AdapterLoadError if host memory lacks room for the file, twice while it is read, and for the adapter itself."""
    needed = 2 * path.stat().st_size + base.bank.numbers_per_slot(base.max_rank) * base.dtype.itemsize
    available = host_memory().available
    if needed > _HOST_SHARE * available:
        raise AdapterLoadError(
            f"{path}: it takes {needed / 1e9:.1f} GB of host memory, and this machine has {available / 1e9:.1f} GB "
            f"available, of which an adapter may take {_HOST_SHARE:.0%}: unload others, or start the engine with a "
            "smaller --adapter-rank"
        )


def _tensors(path: Path, content: bytes) -> dict[str, Tensor]:
    try:
        return safetensors.load(content)
    except SafetensorError as error:
        raise AdapterLoadError(f"{path}: truncated or not a safetensors file: {one_line(error)}") from error
    except KeyError as error:
        raise UnsupportedAdapterError(f"{path}: tensors of type {error.args[0]} are not implemented") from error


def _check_base(folder: Path, configuration: AdapterConfiguration, base: AdaptedModel) -> None:
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


def _pairs(path: Path, tensors: Mapping[str, Tensor], base: AdaptedModel) -> dict[str, _LowRankPair]:
    """The pairs of A and B by the layer's name in the base model."""
    found: dict[str, _LowRankPair] = {}
    for name, tensor in tensors.items():
        match = _TENSOR.fullmatch(name.removeprefix(_PREFIX))
        if match is None:
            raise UnsupportedAdapterError(f"{path}: tensor {name!r} is neither A nor B of a linear layer")
        if tensor.dtype not in _PLAIN:
            raise UnsupportedAdapterError(f"{path}: tensor {name!r} is {tensor.dtype}: quantized weights")
        module = (base.rename(match["module"] + ".") or "").removesuffix(".")
        if module not in base.bank.modules:
            raise _unknown_module(path, match["module"], base)
        sides = found.setdefault(module, _LowRankPair(match["module"])).sides
        if match["side"] in sides:
            raise AdapterLoadError(f"{path}: {name!r} and {sides[match['side']][0]!r} are of the same layer")
        sides[match["side"]] = name, tensor
    if not found:
        raise AdapterLoadError(f"{path}: no tensors")
    for module, pair in found.items():
        if len(pair.sides) < 2:
            raise AdapterLoadError(f"{path}: {module} has only one of lora_A and lora_B")
    return found


def _unknown_module(path: Path, module: str, base: AdaptedModel) -> AdapterLoadError:
    if ".experts" in module or module.endswith((".router", ".gate")):
        return UnsupportedAdapterError(f"{path}: adapters of experts and routers ({module}) are not implemented")
    if module.endswith(("lm_head", "embed_tokens")):
        return UnsupportedAdapterError(f"{path}: adapters of {module} are not implemented")
    if module.endswith(".kv_b_proj") and any(each.endswith(".kv_a_proj_with_mqa") for each in base.bank.modules):
        return UnsupportedAdapterError(
            f"{path}: adapters of {module} are not implemented: latent attention multiplies it with queries and "
            "results, not with a layer's input"
        )
    return AdapterLoadError(f"{path}: this model has no linear layer {module}: it is an adapter of another one")


def _filled(
    path: Path, pairs: Mapping[str, _LowRankPair], configuration: AdapterConfiguration, base: AdaptedModel
) -> HostWeights:
    """Scale all pairs and copy them to their places."""
    bank, rank = base.bank, padded(base.max_rank)
    try:
        numbers = torch.zeros(bank.numbers_per_slot(rank), dtype=base.dtype, pin_memory=base.pinned)
        ranks = torch.zeros(bank.num_sites, dtype=torch.int32, pin_memory=base.pinned)
    except RuntimeError as error:
        raise AdapterLoadError(f"{path}: no host memory for it: {one_line(error)}") from error
    views = bank.views(numbers[None], rank)
    for name, pair in pairs.items():
        module, own = bank.modules[name], configuration.rank_of(pair.module)
        a = _checked(path, *pair.sides["A"], (own, module.inputs), 1.0, base.dtype)
        b = _checked(path, *pair.sides["B"], (module.rows, own), configuration.scale_of(pair.module), base.dtype)
        _place(module, a, b, views, rank)
        ranks[module.site] = max(int(ranks[module.site]), own)
    return HostWeights(numbers, ranks)


def _checked(path: Path, name: str, tensor: Tensor, shape: tuple[int, int], scale: float, dtype: torch.dtype) -> Tensor:
    """The scaled tensor in the base's type. AdapterLoadError for a wrong shape, or for numbers that are not finite
    before or after scaling.
    """
    if tuple(tensor.shape) != shape:
        raise AdapterLoadError(
            f"{path}: tensor {name!r} has shape {[*tensor.shape]}, this model's layer and the configuration need "
            f"{[*shape]}"
        )
    scaled = (tensor.float() * scale).to(dtype)
    if count := not_finite(scaled):
        if corrupt := not_finite(tensor):
            raise AdapterLoadError(
                f"{path}: tensor {name!r}: {corrupt:,} values are NaN or infinite: the file is corrupt"
            )
        raise AdapterLoadError(
            f"{path}: tensor {name!r}: {count:,} values, times {scale:g}, are beyond the range of {dtype}"
        )
    return scaled


def _place(module: AdaptedModule, a: Tensor, b: Tensor, views: list[tuple[Tensor, Tensor]], rank: int) -> None:
    own, (low, high) = len(a), views[module.site]
    low[0, module.part * rank : module.part * rank + own] = a
    rows = b if module.order is None else b[module.order.cpu()]
    high[0, module.first : module.first + module.rows, :own] = rows
