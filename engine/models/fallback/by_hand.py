"""Forward passes, through transformers' attention interface, for attention modules that bypass it.

These are BLOOM's, MPT's and Falcon's. The first two and Falcon's smallest models have ALiBi; transformers' own
functions compute its `slopes`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_Slopes = tuple[float, ...] | None
_Result = tuple[Tensor, None]
_Module = Any  # an attention module, with whatever its class has


def through_interface(model: PreTrainedModel) -> None:
    """Make the model's attention modules call the implementation set by `attend_by`; most models already do."""
    made = BY_HAND.get(model.config.model_type)
    if made is None:
        return
    attends, slopes_of = made
    slopes = slopes_of(model)
    for module in cast("Iterator[_Module]", model.modules()):
        if type(module).__name__.endswith("Attention"):
            module.config = model.config
            module.forward = partial(attends, module, slopes)


def attend_by(model: PreTrainedModel, implementation: str) -> None:
    """Set the implementation that the model's attention modules call."""
    if model.config.model_type in BY_HAND:  # transformers believes that they call nothing
        model.config._attn_implementation_internal = implementation
    else:
        model.set_attn_implementation(implementation)


def _attended(
    module: _Module, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float, slopes: _Slopes
) -> Tensor:
    """q, k, v [1, heads, T, dim] -> [1, T, heads * dim]."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS  # noqa: PLC0415  slow to import

    attend = ALL_ATTENTION_FUNCTIONS[module.config._attn_implementation]
    attended: Tensor = attend(module, q, k, v, mask, scaling=scale, slopes=slopes)[0]
    return attended.flatten(2)


def _bloom(
    module: _Module, slopes: _Slopes, hidden: Tensor, residual: Tensor, *, attention_mask: Tensor | None, **_: object
) -> _Result:
    q, k, v = module._reshape(module.query_key_value(hidden))
    attended = _attended(module, q, k, v, attention_mask, module.inv_norm_factor, slopes)
    return residual + module.dense(attended), None


def _mpt(module: _Module, slopes: _Slopes, hidden: Tensor, *, attention_mask: Tensor | None, **_: object) -> _Result:
    qkv = module.Wqkv(hidden)
    if module.clip_qkv:
        qkv = qkv.clamp(-module.clip_qkv, module.clip_qkv)
    q, k, v = qkv.unflatten(2, (3, module.n_heads, -1)).transpose(1, 3).unbind(2)
    return module.out_proj(_attended(module, q, k, v, attention_mask, module.softmax_scale, slopes)), None


def _falcon(
    module: _Module,
    slopes: _Slopes,
    hidden: Tensor,
    *,
    attention_mask: Tensor | None,
    position_embeddings: tuple[Tensor, Tensor],
    **_: object,
) -> _Result:
    # The queries of each KV head come before its key and value; transformers repeats these for every query.
    qkv = module.query_key_value(hidden).unflatten(2, (module.num_kv_heads, -1, module.head_dim))
    q, k, v = (part.flatten(2, 3).transpose(1, 2) for part in (qkv[..., :-2, :], qkv[..., -2:-1, :], qkv[..., -1:, :]))
    if slopes is None:
        q, k = sys.modules[type(module).__module__].apply_rotary_pos_emb(q, k, *position_embeddings)
    return module.dense(_attended(module, q, k, v, attention_mask, module.inv_norm_factor, slopes)), None


def _bloom_slopes(model: PreTrainedModel) -> _Slopes:
    build = sys.modules[type(model).__module__].build_alibi_tensor
    return tuple(build(torch.ones(1, 2), model.config.num_attention_heads, torch.float32)[:, 0, 1].tolist())


def _mpt_slopes(model: PreTrainedModel) -> _Slopes:
    def with_a_mask(_: nn.Module, args: object, given: dict[str, Any]) -> tuple[object, dict[str, Any]]:
        return args, {"attention_mask": torch.ones(1, 1, 1, 1, dtype=torch.bool)} | given

    # It takes a mask for granted, also where the implementation of attention has none.
    model.base_model.register_forward_pre_hook(with_a_mask, with_kwargs=True)
    build = sys.modules[type(model).__module__].build_mpt_alibi_tensor
    return tuple((-build(model.config.n_heads, 2)[:, 0, 0]).tolist())


def _falcon_slopes(model: PreTrainedModel) -> _Slopes:
    if not model.config.alibi:
        return None
    cast("Any", model.base_model).use_alibi = False  # which would add it to a mask
    scale = math.sqrt(model.config.head_dim)  # scores are divided by that, biases too
    return tuple(each / scale for each in cast("tuple[float, ...]", _bloom_slopes(model)))


BY_HAND: Mapping[str, tuple[Callable[..., _Result], Callable[[PreTrainedModel], _Slopes]]] = MappingProxyType(
    {"bloom": (_bloom, _bloom_slopes), "mpt": (_mpt, _mpt_slopes), "falcon": (_falcon, _falcon_slopes)}
)
