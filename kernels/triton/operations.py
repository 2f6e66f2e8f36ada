"""The operations between a model's matrix multiplications, in Triton."""

from __future__ import annotations

from collections.abc import Callable

from thothy_ai.kernels.paged import Attention, AttentionShape
from thothy_ai.kernels.triton import (
    activation,
    importance,
    latents,
    layernorm,
    lora,
    norm,
    quantize,
    rope,
    rows,
    scores,
    states,
)
from thothy_ai.kernels.triton.attention import PagedAttention
from thothy_ai.kernels.triton.block_matmul import Fp8BlockMatmul
from thothy_ai.kernels.triton.experts import Experts, route
from thothy_ai.kernels.triton.grouped import GroupedMatmul
from thothy_ai.kernels.triton.hashes import hash_kernels
from thothy_ai.kernels.triton.int8_matmul import Int8Matmul
from thothy_ai.kernels.triton.launchers import prepare_one_at_a_time
from thothy_ai.kernels.triton.matmul import Fp8Matmul
from thothy_ai.kernels.triton.sampling import TokenChooser

# At import, because several threads compile and launch these kernels later.
hash_kernels("thothy_ai.kernels.triton")
prepare_one_at_a_time()


class TritonOperations:
    """Triton's kernels, on a GPU."""

    rms_norm = staticmethod(norm.rms_norm)
    add_rms_norm = staticmethod(norm.add_rms_norm)
    add_rms_norm_fp8 = staticmethod(norm.add_rms_norm_fp8)
    layer_norm = staticmethod(layernorm.layer_norm)
    add_layer_norm = staticmethod(layernorm.add_layer_norm)
    layer_norm_heads = staticmethod(layernorm.layer_norm_heads)
    rms_norm_heads = staticmethod(layernorm.rms_norm_heads)
    silu_mul = staticmethod(activation.silu_mul)
    silu_mul_fp8 = staticmethod(activation.silu_mul_fp8)
    gelu_tanh_mul = staticmethod(activation.gelu_tanh_mul)
    gelu_tanh_mul_fp8 = staticmethod(activation.gelu_tanh_mul_fp8)
    sigmoid_mul = staticmethod(activation.sigmoid_mul)
    add_gated = staticmethod(activation.add_gated)
    quantize_fp8 = staticmethod(quantize.quantize_fp8)
    rotate_and_cache = staticmethod(rope.rotate_and_cache)
    rotate_and_cache_latents = staticmethod(latents.rotate_and_cache_latents)
    convolve = staticmethod(states.convolve)
    copy_states = staticmethod(states.copy_states)
    gated_delta = staticmethod(states.gated_delta)
    gated_rms_norm = staticmethod(states.gated_rms_norm)
    state_space = staticmethod(states.state_space)
    gate_rms_norm = staticmethod(states.gate_rms_norm)
    step_tokens = staticmethod(rows.step_tokens)
    scatter = staticmethod(rows.scatter)
    add_importance = staticmethod(importance.add_importance)
    route = staticmethod(route)
    experts = Experts
    changed_scores = staticmethod(scores.changed_scores)
    token_logprobs = staticmethod(scores.token_logprobs)
    fp8_matmul = Fp8Matmul
    quantize_fp8_groups = staticmethod(quantize.quantize_fp8_groups)
    block_matmul = Fp8BlockMatmul
    quantize_int8 = staticmethod(quantize.quantize_int8)
    int8_matmul = Int8Matmul
    grouped_matmul = GroupedMatmul
    sort_by_adapter = staticmethod(lora.sort_by_adapter)
    shrink = staticmethod(lora.shrink)
    expand_add = staticmethod(lora.expand_add)
    token_chooser = TokenChooser

    def __init__(self, attention: Callable[[AttentionShape], Attention] | None = None) -> None:
        """`attention` makes the attention for a shape; None: `PagedAttention`."""
        self.attention: Callable[[AttentionShape], Attention] = attention or PagedAttention
