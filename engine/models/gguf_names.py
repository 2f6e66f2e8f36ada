"""Where GGUF files of a family keep its tensors and its settings, and names that several families share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

Sizes = Callable[[str], int]  # the number that a file has at a key of its architecture
Change = Callable[[Tensor, Sizes], Tensor]


@dataclass(frozen=True, slots=True)
class Joined:
    """A tensor that is joined from several. `parts`: alternative sets of tensors, of which a file has one."""

    join: Callable[[Sequence[Tensor], Sizes], Tensor]
    parts: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class GGUFNames:
    """How files of one `architecture` (llama.cpp's name of it, which may have `aliases`) differ from transformers'
    checkpoints.

    Tensors:
      `layer`: a tensor's name after "blk.N." -> transformers' name after "model.layers.N.", both without their ending.
      `whole`: the same for names whose endings also differ.
      `experts`: a stack of all experts' matrices -> the name of one expert's, with "{}" for its number.
      `stacks`: transformers' own stack -> the file's stacks whose rows alternate in it.
      `joined`: a tensor of transformers -> the file's tensors that it is joined from, and how.
      `interleaved`: rows of queries and keys are stored with their rotary pairs side by side.
      `one_plus`: norms are stored as 1 + w.
      `changed`: functions from a file's tensor to transformers', by the name after "blk.N."; no rule above applies.
      `unpacked`: those of them that reorder columns, which blocks of quantized numbers do not allow.
      `top`: names of tensors outside layers that differ from the usual ones.

    Settings (keys that begin with a dot follow the architecture's name):
      `settings`: a field of transformers' configuration -> the key of its value, which is required.
      `defaults`: the same for optional values, with their defaults.
      `implied`: the only values that the family supports, by key; others are refused.
      `needless`: keys that llama.cpp does not use either.
      `windows_in_some`: a file can say which layers have a window, and the configuration has `layer_types`.
      `present`: a field that is true if layer 0 has a tensor -> that tensor.
      `derived`: more fields, computed from the fields that were read.
      `norm_eps`: the field and the key of the norms' epsilon.
      `head_dim`: the key of the size of heads for rotary embedding.
      `optional_bias`: the configuration has a field `attention_bias`, which is true if layer 0 has a bias of queries.
      `partial_rotary`: a file can say that only some of a head's dimensions rotate.
      `by_layer`: fields computed from each layer's numbers (0 for none), which a file must list at the keys `listed`.
      `uneven`: layers may differ in their numbers of KV heads, in the sizes of their MLPs, and in whether they have
      values. `derived` gets lists of these as `_kv_heads`, `_inner` and `_with_values`. Only `derived` sees fields
      whose names begin with "_".
      `sharing`: the key of the number of last layers that read earlier layers' keys and values instead of their own.
      `proportional`: in layers without a window, only a part of each head has rotary frequencies.
      `further_layers`: the key of the number of last layers that predict further tokens; they are left out.
    """

    architecture: str
    layer: Mapping[str, str]
    whole: Mapping[str, str] = field(default_factory=dict)
    experts: Mapping[str, str] = field(default_factory=dict)
    stacks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    joined: Mapping[str, Joined] = field(default_factory=dict)
    interleaved: bool = False
    one_plus: bool = False
    changed: Mapping[str, Change] = field(default_factory=dict)
    unpacked: tuple[str, ...] = ()
    top: Mapping[str, str] = field(default_factory=lambda: {"output_norm": "model.norm"})
    listed: tuple[str, ...] = (".attention.head_count_kv",)
    by_layer: Callable[..., Mapping[str, Any]] | None = None
    aliases: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, tuple[str, bool | int | float]] = field(default_factory=dict)
    implied: Mapping[str, int] = field(default_factory=dict)
    needless: tuple[str, ...] = ()
    windows_in_some: bool = False
    present: Mapping[str, str] = field(default_factory=dict)
    derived: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict
    norm_eps: tuple[str, str] = ("rms_norm_eps", ".attention.layer_norm_rms_epsilon")
    head_dim: str = ".attention.key_length"
    optional_bias: bool = True
    partial_rotary: bool = False
    further_layers: str | None = None
    uneven: bool = False
    sharing: str | None = None
    proportional: bool = False

    @property
    def windowed(self) -> bool:
        """Whether files have the size of a window."""
        return "sliding_window" in self.settings

    @property
    def sparse(self) -> bool:
        """Whether files can have experts."""
        return bool(self.experts or self.stacks or self.joined) or any("_exps." in name for name in self.whole)

    @property
    def all_of_layer(self) -> Mapping[str, str]:
        """`layer`, and the names of joined tensors."""
        every = ((part, whole) for whole, joined in self.joined.items() for parts in joined.parts for part in parts)
        return {**self.layer, **dict(every)}


GGUF_SCORES = ".expert_gating_func"
GGUF_SOFTMAX, GGUF_SIGMOID, GGUF_SOFTMAX_OF_CHOSEN = 1, 2, 3  # its values
GGUF_ATTENTION = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
}
GGUF_GATED_MLP = {"ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
GGUF_ROUTER = "ffn_gate_inp"
GGUF_EXPERTS = {
    "ffn_gate_exps": "mlp.experts.{}.gate_proj",
    "ffn_up_exps": "mlp.experts.{}.up_proj",
    "ffn_down_exps": "mlp.experts.{}.down_proj",
}
GGUF_FUSED_MLP = {"ffn_up": "mlp.gate_up_proj", "ffn_down": "mlp.down_proj"}
GGUF_QK_NORMS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
GGUF_SANDWICH_NORMS = {
    "attn_norm": "input_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
GGUF_NORMS_AFTER_ATTENTION = {"attn_norm": "input_layernorm", "post_attention_norm": "post_attention_layernorm"}
GGUF_NORMS_BEFORE = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
GGUF_LLAMA_LAYER = {**GGUF_NORMS_BEFORE, **GGUF_ATTENTION, **GGUF_GATED_MLP}
