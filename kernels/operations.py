"""The operations between a model's matrix multiplications, as one object: plain torch or Triton."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from thothy_ai.kernels.experts import ExpertActivation, Experts, ExpertWeights, Routed, Routing
from thothy_ai.kernels.fp8 import BlockQuantized, Quantized
from thothy_ai.kernels.grouped import GroupedInts
from thothy_ai.kernels.lora import AdapterTokens, AdapterWeights, Shrunk
from thothy_ai.kernels.paged import Attention, AttentionBatch, AttentionShape, LayerCache
from thothy_ai.kernels.rotary import QKNorm, Rotary
from thothy_ai.kernels.sampling import Biases, SamplingBatch, TokenChooser, TokenLogprobs
from thothy_ai.kernels.states import Convolution, DeltaGates, SpaceGates
from thothy_ai.kernels.step import StepColumns, StepTokens


class QuantizedMatmul(Protocol):
    """A matmul with one weight [N, in] of fp8 or of int8."""

    def __call__(self, x: Quantized) -> Tensor:
        """x [T, in] -> [T, N]."""
        ...


class BlockMatmul(Protocol):
    """A matmul with one fp8 weight [N, in] that has a scale for each block."""

    def __call__(self, x: BlockQuantized) -> Tensor:
        """x [T, in], with a scale for each token and width of the weight's blocks -> [T, N]."""
        ...


class GroupedMatmul(Protocol):
    """A matmul with one integer weight [N, in] that has groups."""

    def __call__(self, x: Tensor) -> Tensor:
        """x [T, in] -> [T, N] in its type."""
        ...


class Operations(Protocol):
    """Functions that keep no state, and makers of objects that do; plain torch says what each computes."""

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float, /) -> Tensor:
        """x [T, N] normalized by the root mean square of each row, times weight [N], in the type of x."""
        ...

    def add_rms_norm(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float, /) -> Tensor:
        """The normalized sum [T, N] of x and residual, which is overwritten with the sum."""
        ...

    def add_rms_norm_fp8(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float, /) -> Quantized:
        """As `add_rms_norm`, quantized by token."""
        ...

    def layer_norm(self, x: Tensor, weight: Tensor, eps: float, /) -> Tensor:
        """x [T, N] less its mean, over its standard deviation, times weight [N], in the type of x."""
        ...

    def add_layer_norm(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float, /) -> Tensor:
        """The layer norm [T, N] of the sum of x and residual, which is overwritten with the sum."""
        ...

    def layer_norm_heads(self, x: Tensor, weight: Tensor, eps: float, /) -> None:
        """Overwrite each head of x [T, heads, N] with its layer norm, times that head's weight of [heads, N]."""
        ...

    def rms_norm_heads(self, x: Tensor, weight: Tensor, eps: float, /) -> None:
        """Overwrite x [T, heads, N] with its RMS norm over all heads of a token, times weight [heads * N]."""
        ...

    def silu_mul(self, gate_up: Tensor, shrunk: Shrunk | None = None, /) -> Tensor:
        """silu(gate) * up of [T, 2 * N] -> [T, N], after adding the adapters' part B A x, if `gate_up` lacks it, which
        may be overwritten.
        """
        ...

    def silu_mul_fp8(self, gate_up: Tensor, /) -> Quantized:
        """As `silu_mul`, quantized by token."""
        ...

    def gelu_tanh_mul(self, gate_up: Tensor, shrunk: Shrunk | None = None, /) -> Tensor:
        """As `silu_mul`, with GELU by its tanh approximation."""
        ...

    def gelu_tanh_mul_fp8(self, gate_up: Tensor, /) -> Quantized:
        """As `gelu_tanh_mul`, quantized by token."""
        ...

    def sigmoid_mul(self, x: Tensor, gate: Tensor, /) -> Tensor:
        """x times sigmoid(gate), both [T, N]."""
        ...

    def add_gated(self, total: Tensor, x: Tensor, score: Tensor, /) -> None:
        """Add x [T, N] times sigmoid(score), score [T, 1], to total [T, N]."""
        ...

    def quantize_fp8(self, x: Tensor, /) -> Quantized:
        """x [T, N], quantized by token."""
        ...

    def rotate_and_cache(
        self,
        qkv: Tensor,
        norms: QKNorm | None,
        eps: float,
        rotary: Rotary | None,
        positions: Tensor,
        slots: Tensor,
        cache: LayerCache,
        num_heads: int,
        /,
    ) -> Tensor:
        """Queries [T, heads, head_dim] of the merged projection, normed and rotated; keys and values are cached, if
        there are any: a projection without values takes them from keys.

        A table narrower than head_dim / 2 turns the first dimensions of each head; None turns none.
        """
        ...

    def rotate_and_cache_latents(
        self,
        q: Tensor,
        kv: Tensor,
        weight: Tensor,
        eps: float,
        rotary: Rotary,
        positions: Tensor,
        slots: Tensor,
        cache: LayerCache,
        out: Tensor,
        /,
        *,
        interleaved: bool,
    ) -> None:
        """Queries' last numbers [T, heads, rotary] are rotated into those of `out` [T, heads, rank + rotary]; of kv
        [T, rank + rotary], the latents, normed by weight [rank], and the rotated keys are cached.
        """
        ...

    def attention(self, shape: AttentionShape, /) -> Attention:
        """Attention for steps of at most this shape."""
        ...

    def convolve(
        self, x: Tensor, convolution: Convolution, inputs: Tensor, batch: AttentionBatch, out: Tensor | None = None, /
    ) -> Tensor:
        """The convolution of x [T, channels] over each row's tokens, in `out` if that is given; the rows' last `inputs`
        are replaced.
        """
        ...

    def copy_states(self, stack: Tensor, sources: Tensor, targets: Tensor, /) -> None:
        """Copy slots `sources` [N] of `stack` [layers, slots, ...] to slots `targets` [N], both int32; no slot is in
        both, unless it is copied to itself.
        """
        ...

    def gated_delta(
        self,
        mixed: Tensor,
        learned: Tensor,
        forgotten: Tensor,
        gates: DeltaGates,
        memory: Tensor,
        batch: AttentionBatch,
        out: Tensor | None = None,
        /,
    ) -> Tensor:
        """The gated delta rule over each row's queries, keys and values [T, ...]: [T, H, V] float32, in `out` if that
        is given; the rows' states in `memory` are replaced.
        """
        ...

    def state_space(
        self,
        mixed: Tensor,
        steps: Tensor,
        gates: SpaceGates,
        memory: Tensor,
        batch: AttentionBatch,
        out: Tensor | None = None,
        /,
    ) -> Tensor:
        """A state space over each row's values, keys and queries [T, ...]: [T, H, V] float32, in `out` if that is
        given; the rows' states in `memory` are replaced.
        """
        ...

    def gate_rms_norm(self, x: Tensor, gate: Tensor, weight: Tensor, eps: float, /) -> Tensor:
        """x [T, groups, N] float32 times silu(gate), normalized group by group, times weight [groups * N]."""
        ...

    def gated_rms_norm(self, x: Tensor, gate: Tensor, weight: Tensor, eps: float, /) -> Tensor:
        """x [T, H, N] float32, normalized head by head, times weight [N] and silu(gate): [T, H * N] as the gate."""
        ...

    def step_tokens(
        self, token_ids: Tensor, block_tables: Tensor, columns: StepColumns, total: int, block_size: int, /
    ) -> StepTokens:
        """A step's tokens, read from device-resident rows, which have one or several block tables each."""
        ...

    def fp8_matmul(self, weight: Quantized, bias: Tensor | None, dtype: torch.dtype, /) -> QuantizedMatmul:
        """The matmul with one fp8 weight [N, in] and bias [N] or none, with results of `dtype`."""
        ...

    def quantize_fp8_groups(self, x: Tensor, size: int, /) -> BlockQuantized:
        """x [T, N], quantized by token and `size` numbers."""
        ...

    def block_matmul(self, weight: BlockQuantized, bias: Tensor | None, dtype: torch.dtype, /) -> BlockMatmul:
        """The matmul with one fp8 weight [N, in] in blocks and bias [N] or none, with results of `dtype`."""
        ...

    def route(
        self, x: Tensor, weight: Tensor, bias: Tensor | None, correction: Tensor | None, routing: Routing, /
    ) -> Routed:
        """Experts of tokens x [T, K], by a router's weight [E, K], bias [E] or none, and correction [E] or none."""
        ...

    def experts(self, weights: ExpertWeights, activation: ExpertActivation, /) -> Experts:
        """The experts of one layer, ready to be called."""
        ...

    def quantize_int8(self, x: Tensor, /) -> Quantized:
        """x [T, N], quantized to int8 by token."""
        ...

    def int8_matmul(self, weight: Quantized, bias: Tensor | None, dtype: torch.dtype, /) -> QuantizedMatmul:
        """The matmul with one int8 weight [N, in] and bias [N] or none, with results of `dtype`."""
        ...

    def grouped_matmul(self, weight: GroupedInts, bias: Tensor | None, /) -> GroupedMatmul:
        """The matmul with one integer weight [N, in] that has groups, and bias [N] or none."""
        ...

    def sort_by_adapter(self, slots: Tensor, adapters: int, /) -> AdapterTokens:
        """Tokens sorted by their slots [T] int32, of so many adapters; slot `adapters` means none."""
        ...

    def shrink(self, x: Tensor | Quantized, weights: AdapterWeights, tokens: AdapterTokens, /) -> Shrunk:
        """A x of x [T, in], by each token's adapter."""
        ...

    def expand_add(self, shrunk: Shrunk, out: Tensor, /) -> None:
        """Add B of what was shrunk to `out` [T, out], in place."""
        ...

    def token_chooser(self, max_rows: int, device: torch.device, /) -> TokenChooser:
        """What chooses tokens for steps of at most `max_rows` members, whose logits are on `device`."""
        ...

    def changed_scores(self, step: SamplingBatch, members: Tensor, biases: Biases, /) -> Tensor:
        """Scores [A, V] float32 of these members [A] after biases and penalties; the mask is not applied."""
        ...

    def token_logprobs(self, logits: Tensor, members: Tensor, tokens: Tensor, top: int, /) -> TokenLogprobs:
        """Log-probabilities of tokens [A] chosen for these members [A], and of the `top` likeliest."""
        ...

    def scatter(self, target: Tensor, index: Tensor, values: Tensor, /) -> None:
        """Set target.flatten()[index] to values, in place."""
        ...

    def add_importance(self, cache: LayerCache, blocks: Tensor, importance: Tensor, /) -> None:
        """Add to `importance` [B] float32 how much the tokens in each of the full `blocks` [B] int32 matter to later
        ones, by one layer's keys and values.
        """
        ...


def operations_for(device: torch.device, *, flex: bool = False) -> Operations:
    """The one place that decides what runs where: Triton's kernels on a GPU, plain torch elsewhere; with `flex`,
    attention through torch's FlexAttention on both.
    """
    attention: Callable[[AttentionShape], Attention] | None = None
    if flex:
        from thothy_ai.kernels.flex import FlexAttention  # noqa: PLC0415  few models need it

        attention = FlexAttention
    if device.type != "cuda":
        from thothy_ai.kernels.reference.operations import ReferenceOperations  # noqa: PLC0415  one of the two is needed

        return ReferenceOperations(attention)
    from thothy_ai.kernels.triton.operations import TritonOperations  # noqa: PLC0415  triton is where a GPU is

    return TritonOperations(attention)
