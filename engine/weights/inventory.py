"""The tensors that a model consists of, and the check that a folder or a file has exactly these."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import torch
from torch import Tensor

from thothy_ai.engine.api.errors import EngineError, ModelLoadError, one_line
from thothy_ai.engine.models.config import ModelConfig
from thothy_ai.engine.weights.assemble import assemble
from thothy_ai.engine.weights.shards import StoredTensor

EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
PACKED_HEADS = ("lm_head.weight_packed", "lm_head.qweight")  # instead of it, in quantized checkpoints

Shape = tuple[int, ...]

_RECOMPUTED = "rotary_emb.inv_freq"  # a buffer that early versions of transformers saved


class WithoutStorage:
    """A tensor source whose tensors have shapes only. `shapes` has the tensors that were asked for.

    `stored`: the folder's tensors, if known, since checkpoints of one configuration can differ. Their types must be the
    requested ones; errors are the same as of `SafetensorsFolder`.
    """

    device = torch.device("meta")
    folder = None

    def __init__(self, dtype: torch.dtype, stored: Mapping[str, StoredTensor] = MappingProxyType({})) -> None:
        self.dtype, self._stored = dtype, stored
        self.shapes: dict[str, Shape] = {}

    def tensor(self, name: str, *shape: int) -> Tensor:
        """A tensor of this shape."""
        self.shapes[name] = shape
        if name in self._stored:
            self._stored[name].require_plain(name)
        return torch.empty(shape, dtype=self.dtype, device=self.device)

    weight = dense = tensor

    def stored(self, name: str, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """A tensor of this shape; scales take two bytes."""
        self.shapes[name] = shape
        if name in self._stored:
            self._stored[name].require_type(name, dtype)
        return torch.empty(shape, dtype=dtype or torch.float16, device=self.device)

    def holds(self, name: str, *shape: int) -> bool:
        """Whether the folder has such a tensor."""
        return name in self._stored and shape in {(), self._stored[name].shape}


def expected_tensors(
    where: Path, config: ModelConfig, stored: Mapping[str, StoredTensor] = MappingProxyType({})
) -> dict[str, Shape]:
    """Names and shapes of the tensors of a model of this configuration; ModelLoadError if it can't be built.

    `stored` has the folder's tensors, if known.
    """
    source = WithoutStorage(torch.float32, stored)
    try:
        assemble(config, source)
    except EngineError as error:
        raise type(error)(f"{where}: {error}") from error
    except Exception as error:  # torch raises many kinds of errors for sizes that overflow
        raise ModelLoadError(f"{where}: no model can be built from its configuration: {one_line(error)}") from error
    return source.shapes


def num_parameters(config: ModelConfig) -> int:
    """The number of parameters of a model of this configuration, whatever their format; shared ones count once."""
    return sum(map(math.prod, expected_tensors(Path(), replace(config, quantization=None)).values()))


def require_tensors(
    where: Path, names: Collection[str], expected: Collection[str], *, tied: bool, needless: tuple[str, ...] = ()
) -> None:
    """ModelLoadError if a tensor is missing, or if the configuration has no place for one.

    Tensors whose names end in one of `needless` need no place.
    """
    missing = [name for name in expected if name not in names]
    if missing:
        raise ModelLoadError(f"{where}: tensor {missing[0]!r} is missing{_others(missing)}")
    ignored = (_RECOMPUTED, *needless)
    stray = [
        name for name in names if name not in expected and not name.endswith(ignored) and not (tied and name == HEAD)
    ]
    if stray:
        raise ModelLoadError(
            f"{where}: the configuration has no place for tensor {stray[0]!r}{_others(stray)}: it is from another model"
        )


def _others(names: list[str]) -> str:
    return f" and {len(names) - 1} others" if len(names) > 1 else ""
