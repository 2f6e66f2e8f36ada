"""A decoder computed by transformers, except for its attention."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from thothy_ai.engine.api.errors import UnsupportedModelError
from thothy_ai.engine.models.fallback.attention import CurrentStep, StepContext
from thothy_ai.kernels.operations import Operations
from thothy_ai.kernels.paged import Attention, LayerCache
from thothy_ai.kernels.states import LayerState
from thothy_ai.kernels.step import StepTokens

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel


class TransformersDecoder:
    """transformers' model, whose attention modules read `step`. All T tokens of a step are one row [1, T].

    `captures` is set once that was tried: some models wait for the device in their pass (experts that count tokens).
    """

    captures_between_attention = False
    ends_with_attention = False

    def __init__(self, model: PreTrainedModel, step: CurrentStep) -> None:
        self.captures = False
        self._body, self._step = model.base_model, step
        self._head = _head_of(model)
        self._embedding = model.get_input_embeddings()

    @property
    def table(self) -> Tensor:
        """The table of token embeddings."""
        table = self._embedding.weight
        assert isinstance(table, Tensor)
        return table

    def body(
        self,
        tokens: StepTokens,
        caches: Sequence[LayerCache | LayerState],
        attention: Attention,
        operations: Operations,
    ) -> tuple[Tensor, Tensor]:
        """The final hidden states [T, hidden], twice: the residual stream is within transformers' layers."""
        del operations  # attention modules have theirs
        self._step.context = StepContext(tokens, attention, cast("Sequence[LayerCache]", caches))
        try:
            output = self._body(input_ids=tokens.ids[None], position_ids=tokens.positions[None], use_cache=False)
        finally:
            self._step.context = None
        hidden: Tensor = output[0][0]
        return hidden, hidden

    def tail(self, attended: Tensor, residual: Tensor, wanted: Tensor | None, operations: Operations) -> Tensor:
        del residual, operations
        return attended if wanted is None else attended.index_select(0, wanted)

    def logits(self, hidden: Tensor) -> Tensor:
        """[R, hidden] -> [R, vocab], with whatever transformers does to logits."""
        logits: Tensor = self._head(inputs_embeds=hidden[None], use_cache=False)[0][0]
        return logits

    def logits_into(self, hidden: Tensor, out: Tensor) -> None:
        out.copy_(self.logits(hidden))

    def abridged(
        self, caches: Sequence[LayerCache | LayerState]
    ) -> tuple[TransformersDecoder, Sequence[LayerCache | LayerState]]:
        return self, caches  # the kinds of transformers' layers are not known


class _Output(tuple[Tensor]):
    """What a model returns, of whichever type: its hidden states come first, and all else is None."""

    __slots__ = ()

    def __new__(cls, hidden: Tensor) -> _Output:
        return super().__new__(cls, (hidden,))

    @property
    def last_hidden_state(self) -> Tensor:
        return self[0]

    def __getattr__(self, name: str) -> None:
        """None for any other field that a head passes on."""
        if name.startswith("__"):
            raise AttributeError(name)


class _Given(nn.Module):
    """Replaces the model below a head; its hidden states are the embeddings passed to it."""

    def __init__(self, config: PreTrainedConfig) -> None:
        super().__init__()
        self.config = config

    @property
    def decoder(self) -> _Given:
        """Itself: some heads (OPT's) call a part of the model below them."""
        return self

    def forward(self, *_: object, inputs_embeds: Tensor, **__: object) -> _Output:
        """The embeddings, in the form that a model below a head returns."""
        return _Output(inputs_embeds)


def _head_of(model: PreTrainedModel) -> PreTrainedModel:
    """The model with hidden states in place of what computes them; it shares the head's weights."""
    if model.base_model is model:
        raise UnsupportedModelError("a model that is not divided into layers and a head")
    head = copy.copy(model)
    head._modules = {**model._modules, model.base_model_prefix: _Given(model.config)}
    return head


def require_head(model: PreTrainedModel, rows: int = 3) -> None:
    """UnsupportedModelError unless a model on the meta device computes logits of hidden states alone."""
    config, head = model.config, model.get_output_embeddings()
    if (taken := getattr(head, "in_features", config.hidden_size)) != config.hidden_size:
        raise UnsupportedModelError(
            f"its head takes {taken} numbers of each token, and its layers have {config.hidden_size}"
        )
    hidden = torch.empty(1, rows, config.hidden_size, device="meta", dtype=model.dtype)
    logits = _head_of(model)(inputs_embeds=hidden, use_cache=False)[0]
    if logits.shape != (1, rows, config.vocab_size):
        raise UnsupportedModelError(f"logits of {tuple(logits.shape[1:])} for {rows} tokens")
