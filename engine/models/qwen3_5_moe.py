"""Qwen3.5 and Qwen3.6 with mixtures of experts (text): as Qwen3.5, with experts in every layer."""

from __future__ import annotations

from typing import ClassVar, Self

from thothy_ai.engine.checkpoint.configuration import Configuration
from thothy_ai.engine.models.gguf_delta_net import (
    GGUF_DELTA_APART,
    GGUF_DELTA_DEFAULTS,
    GGUF_DELTA_GATES,
    GGUF_DELTA_NET,
    GGUF_DELTA_SETTINGS,
    GGUF_SHARED_EXPERT,
    GGUF_SHARED_SETTINGS,
    GGUF_TILED_CHANGES,
    delta_fields,
)
from thothy_ai.engine.models.gguf_names import (
    GGUF_ATTENTION,
    GGUF_EXPERTS,
    GGUF_NORMS_AFTER_ATTENTION,
    GGUF_QK_NORMS,
    GGUF_SOFTMAX,
    GGUFNames,
)
from thothy_ai.engine.models.qwen3_5 import Qwen35


class Qwen35Moe(Qwen35):
    """A Qwen3.5 with Qwen3-Next's experts."""

    model_type: ClassVar[str] = "qwen3_5_moe_text"
    gguf: ClassVar[GGUFNames | None] = GGUFNames(
        "qwen35moe",
        {**GGUF_DELTA_NET, **GGUF_DELTA_APART, **GGUF_ATTENTION, **GGUF_QK_NORMS, **GGUF_SHARED_EXPERT,
         **GGUF_NORMS_AFTER_ATTENTION},
        whole=GGUF_DELTA_GATES,
        experts=GGUF_EXPERTS,
        one_plus=True,
        changed=GGUF_TILED_CHANGES,
        unpacked=("ssm_out", "ffn_gate_inp_shexp"),
        partial_rotary=True,
        settings={**GGUF_DELTA_SETTINGS, **GGUF_SHARED_SETTINGS},
        defaults=GGUF_DELTA_DEFAULTS,
        implied={".expert_gating_func": GGUF_SOFTMAX},
        needless=(".rope.dimension_sections",),
        further_layers=".nextn_predict_layers",
        derived=delta_fields,
    )  # fmt: skip

    @classmethod
    def read(cls, config: Configuration) -> Self:
        return cls._read(config, (True,) * config.num_hidden_layers)
