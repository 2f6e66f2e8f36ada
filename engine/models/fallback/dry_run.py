"""Finds out what a model's attention modules do, by a forward pass of tensors without storage.

Each call of the attention interface is recorded with its head sizes, its scale and its mask. Masks are not guessed from
configurations: transformers' functions that make masks are asked which tokens a query sees. UnsupportedModelError if
paged attention can't compute the same.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from thothy_ai.engine.api.errors import UnsupportedModelError, one_line
from thothy_ai.engine.models.fallback.by_hand import attend_by
from thothy_ai.engine.models.fallback.refusals import BY_LENGTH
from thothy_ai.kernels.paged import AttentionParams

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_DRY_RUN = "thothy_ai_dry_run"
_EXPERTS = "batched_mm"  # the form of experts that counts no tokens, thus runs without storage
_LOCK = threading.Lock()  # transformers' registers belong to the process
_TOKENS = 4
_PASSED = {"dropout", "scaling", "sliding_window", "softcap", "s_aux", "position_ids", "is_causal",
           "slopes"}  # understood  # fmt: skip
_ROPE_TYPE = "rope_type"  # of rotary modules
_WINDOW = "thothy_ai_window"  # of masks
_MaskFunction = Callable[[int, int, Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class LayerAttention:
    """One attention module's call. Keys and queries are of `key_dim` per head, values of `value_dim`."""

    num_heads: int
    num_kv_heads: int
    key_dim: int
    value_dim: int
    params: AttentionParams


def attention_of(model: PreTrainedModel, max_context: int) -> dict[str, LayerAttention]:
    """The attention of each layer of a model on the meta device, by the names of the modules, in order.

    UnsupportedModelError unless each layer has one that is plain.
    """
    if model._can_set_experts_implementation():
        model.set_experts_implementation(_EXPERTS)
    names = {module: name for name, module in model.named_modules()}
    # Rotary embedding that asks for the longest position has none to look at here; some asks its configuration.
    for holder, name in (*((module, _ROPE_TYPE) for module in names), (model.config, "rope_parameters")):
        if hasattr(holder, name):
            setattr(holder, name, _of_any_length(getattr(holder, name)))
    with _LOCK:
        calls = _Recorder(max_context).run(model)
    return {names[module]: layer for module, layer in calls.items()}


def _of_any_length(kinds: object) -> object:
    """A type of rotary embedding, or all that a mapping has at any depth: "default" for those that vary by length."""
    if isinstance(kinds, dict):
        return {name: _of_any_length(kind) for name, kind in kinds.items()}
    return "default" if isinstance(kinds, str) and kinds in BY_LENGTH else kinds


class _Recorder:
    """Replaces attention and the functions that make its masks, and records calls."""

    def __init__(self, max_context: int) -> None:
        self._max_context = max_context
        self._layers: dict[nn.Module, LayerAttention] = {}

    @torch.no_grad()
    def run(self, model: PreTrainedModel) -> dict[nn.Module, LayerAttention]:
        """The calls of the model's attention modules, in order."""
        from transformers import AttentionInterface, AttentionMaskInterface  # noqa: PLC0415  slow to import

        AttentionInterface.register(_DRY_RUN, self._attend)
        AttentionMaskInterface.register(_DRY_RUN, self._mask)
        attend_by(model, _DRY_RUN)
        ids = torch.zeros(1, _TOKENS, dtype=torch.int64, device="meta")
        mask = torch.ones(1, _TOKENS, dtype=torch.int64)  # with storage: some models ask whether it is all ones
        try:
            model(input_ids=ids, attention_mask=mask, position_ids=ids, use_cache=False)
        except UnsupportedModelError:
            raise
        except Exception as error:  # a model's code may raise anything
            raise UnsupportedModelError(f"its pass can't be followed without weights: {one_line(error)}") from error
        expected = model.config.num_hidden_layers
        if len(self._layers) != expected:
            raise UnsupportedModelError(
                f"{len(self._layers)} of {expected} layers attend through transformers' attention interface; others "
                "keep recurrent state, or attend in a way of their own"
            )
        shapes = {(each.num_heads, each.num_kv_heads, each.key_dim, each.value_dim) for each in self._layers.values()}
        if len(shapes) > 1:
            raise UnsupportedModelError(f"layers have heads of different numbers or sizes: {sorted(shapes)}")
        return self._layers

    def _mask(self, *, q_length: int, kv_length: int, mask_function: _MaskFunction, **_: object) -> Tensor:
        """In the place of transformers' makers of masks: a mask without storage that knows its window."""
        mask = torch.empty(1, 1, q_length, kv_length, dtype=torch.bool, device="meta")
        setattr(mask, _WINDOW, _window_of(mask_function, self._max_context))
        return mask

    def _attend(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        **passed: Any,  # noqa: ANN401  of many types
    ) -> tuple[Tensor, None]:
        if module in self._layers:
            raise UnsupportedModelError("an attention module attends more than once per pass")
        _require_plain(module, query, key, value, passed)
        self._layers[module] = LayerAttention(
            num_heads=query.shape[1],
            num_kv_heads=key.shape[1],
            key_dim=query.shape[3],
            value_dim=value.shape[3],
            params=AttentionParams(
                scale=passed.get("scaling"),
                window=_window(module, attention_mask, passed),
                soft_cap=passed.get("softcap"),
                slopes=passed.get("slopes"),
            ),
        )
        return query.new_empty(1, query.shape[2], query.shape[1], value.shape[3]), None


def _require_plain(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, passed: dict[str, Any]) -> None:
    """UnsupportedModelError unless the call is plain attention of a step's tokens to those before them."""
    heads, kv_heads, tokens = query.shape[1], key.shape[1], key.shape[2]
    if getattr(module, "is_cross_attention", False) or tokens != query.shape[2]:
        raise UnsupportedModelError("cross-attention is not implemented")
    if passed.get("is_causal") is False or getattr(module, "is_causal", True) is False:
        raise UnsupportedModelError("attention is bidirectional: it is an encoder")
    if heads % kv_heads or value.shape[1] != kv_heads or query.shape[3] != key.shape[3]:
        raise UnsupportedModelError(
            f"{heads} query heads of {query.shape[3]} over {kv_heads} key heads of {key.shape[3]} and "
            f"{value.shape[1]} value heads"
        )
    if isinstance(passed.get("scaling"), Tensor):
        raise UnsupportedModelError("attention with a computed scale is not implemented")
    others = [name for name in passed if name not in _PASSED and not (passed[name] is None or passed[name] is False)]
    if others:
        raise UnsupportedModelError(f"attention with {', '.join(others)} is not implemented")


def _window(module: nn.Module, mask: Tensor | None, passed: dict[str, Any]) -> int | None:
    """How many tokens a query sees, by the mask, or by what was passed instead of one."""
    if mask is None:
        if not getattr(module, "is_causal", False):
            raise UnsupportedModelError("attention without a mask")
        window: int | None = passed.get("sliding_window")
        return window
    if not hasattr(mask, _WINDOW):
        raise UnsupportedModelError("a model that makes or changes attention masks itself (biases by position)")
    found: int | None = getattr(mask, _WINDOW)
    return found


def _window_of(mask_function: _MaskFunction, max_context: int) -> int | None:
    """The window of a causal mask; None if all tokens before the query are seen in any context."""
    places = torch.arange(max_context + 1)
    if bool(_seen(mask_function, 0, places)[1:].any()):
        raise UnsupportedModelError("attention is bidirectional: it is an encoder")
    window = int(_seen(mask_function, max_context, places).sum())
    for query in (0, 1, max_context // 2, max_context - 1, max_context):
        wanted = (places <= query) & (places > query - window)
        if not torch.equal(_seen(mask_function, query, places), wanted):
            raise UnsupportedModelError("an attention mask that is neither causal nor a sliding window")
    return None if window > max_context else window


def _seen(mask_function: _MaskFunction, query: int, places: Tensor) -> Tensor:
    """Which of `places` the query sees [N] bool."""
    try:
        seen = mask_function(0, 0, torch.tensor(query), places)
    except Exception as error:  # it may depend on tokens or images
        raise UnsupportedModelError(f"an attention mask of its own: {one_line(error)}") from error
    return torch.as_tensor(seen).expand_as(places)
