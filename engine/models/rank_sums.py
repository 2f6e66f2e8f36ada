"""Moves a decoder's sums over ranks into the norms that follow them, where one kernel computes both."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from thothy_ai.engine.models.decoder import Decoder, DecoderLayer
from thothy_ai.engine.models.layers.attention import SelfAttention
from thothy_ai.engine.models.layers.blocks import PreNormLayer
from thothy_ai.engine.models.layers.experts import DenseBlock, SparseBlock, SparseLayer
from thothy_ai.engine.models.layers.latent_attention import LatentAttention
from thothy_ai.engine.models.layers.mlp import GeGLU, SwiGLU
from thothy_ai.engine.models.layers.norm import FinalNorm
from thothy_ai.engine.models.layers.parallel import ReducedExperts, ReducedLinear
from thothy_ai.engine.models.ranks import Ranks

T = TypeVar("T")


def sums_in_norms(decoder: Decoder, ranks: Ranks) -> Decoder:
    """The decoder with a rank's summands as updates, which norms sum, wherever a divided layer's result is an update.

    Decoders with layers of other kinds are returned as they are.
    """
    if not isinstance(decoder.norm, FinalNorm):
        return decoder
    layers, summands = list[DecoderLayer](), False
    own: DecoderLayer
    for layer in decoder.layers:
        if not isinstance(layer, PreNormLayer | SparseLayer):
            return decoder
        first = replace(layer.attention_norm, ranks=ranks) if summands else layer.attention_norm
        if isinstance(layer, PreNormLayer):
            own, summands = _pre_norm_layer(replace(layer, attention_norm=first), ranks)
        else:
            own, summands = _sparse_layer(replace(layer, attention_norm=first), ranks)
        layers.append(own)
    norm = replace(decoder.norm, ranks=ranks) if summands else decoder.norm
    return replace(decoder, layers=tuple(layers), norm=norm)


def _pre_norm_layer(layer: PreNormLayer, ranks: Ranks) -> tuple[PreNormLayer, bool]:
    """The layer, and whether its updates are summands."""
    if (attention := _unsummed(layer.attention)) is not None:
        layer = replace(layer, attention=attention, mlp_norm=replace(layer.mlp_norm, ranks=ranks))
    mlp = _unsummed(layer.mlp)
    return (layer, False) if mlp is None else (replace(layer, mlp=mlp), True)


def _sparse_layer(layer: SparseLayer, ranks: Ranks) -> tuple[SparseLayer, bool]:
    """The layer, and whether its updates are summands."""
    attention, summing = _unsummed(layer.attention), _summing(layer.feed_forward, ranks)
    if attention is not None and summing is not None:
        layer = replace(layer, attention=attention, feed_forward=summing)
    own = _unsummed(layer.feed_forward)
    return (layer, False) if own is None else (replace(layer, feed_forward=own), True)


def _summing(block: T, ranks: Ranks) -> T | None:
    """The block with a norm that sums; None if it has none that can."""
    match block:
        case DenseBlock():
            return replace(block, norm=replace(block.norm, ranks=ranks))
        case SparseBlock():
            return replace(block, norm=replace(block.norm, ranks=ranks))
    return None


def _unsummed(part: T) -> T | None:
    """The part with this rank's summands as results; None if its results are no plain sums over ranks."""
    match part:
        case SelfAttention(output=ReducedLinear() as last) | LatentAttention(output=ReducedLinear() as last):
            return replace(part, output=last.linear)
        case SwiGLU(down=ReducedLinear() as last) | GeGLU(down=ReducedLinear() as last):
            return replace(part, down=last.linear)
        case DenseBlock() if (mlp := _unsummed(part.mlp)) is not None:
            return replace(part, mlp=mlp)
        case SparseBlock(experts=ReducedExperts() as experts, shared=None):
            return replace(part, experts=experts.experts)
        case SparseBlock(experts=ReducedExperts() as experts) if (mlp := _unsummed(part.shared)) is not None:
            return replace(part, experts=experts.experts, shared=mlp)
    return None
