"""Models with sliding windows or chunks, and what they release before their sequences end."""

from __future__ import annotations

from typing import Any

import torch

from tests.support.tiny_models import GEMMA4_EXPERTS, GEMMA4_SMALL
from thothy_ai.engine.api.core import OnEvents
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.core.loop import EngineCore
from thothy_ai.engine.process.build import build_core
from thothy_ai.engine.weights.loader import LoadedModel

WINDOW = 20  # sequences come to 57 tokens
SHORT = 5  # in one block of 4 or two, wherever it begins
QWEN = {"use_sliding_window": True, "sliding_window": WINDOW}
HALVES = {  # the layers that see everything keep half as much as the others
    "num_hidden_layers": 4,
    "num_key_value_heads": 3,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
}
WINDOWS: dict[str, tuple[str, dict[str, Any]]] = {
    "mistral": ("mistral", {"sliding_window": WINDOW}),
    "mistral, short": ("mistral", {"sliding_window": SHORT}),
    "qwen2, all layers": ("qwen2", QWEN | {"max_window_layers": 0}),
    "qwen2, some layers": ("qwen2", QWEN | {"max_window_layers": 1}),
    "gemma2": ("gemma2", {}),
    "gemma4, small": ("gemma4_text", GEMMA4_SMALL),
    "gemma4, experts": ("gemma4_text", GEMMA4_EXPERTS | HALVES),
    "gemma3": (
        "gemma3_text",
        {"num_hidden_layers": 5, "sliding_window": 16, "layer_types": ["sliding_attention"] * 4 + ["full_attention"]},
    ),
    "gemma3, two groups that see everything": (
        "gemma3_text",
        {
            "num_hidden_layers": 6,
            "sliding_window": 8,
            "layer_types": ["sliding_attention", "full_attention", "full_attention"] * 2,
        },
    ),
    "gpt_oss": ("gpt_oss", {"sliding_window": 16}),
    "llama4": ("llama4_text", {"attention_chunk_size": 16}),
    "llama4, chunks that end within blocks": ("llama4_text", {"attention_chunk_size": 10, "num_experts_per_tok": 2}),
    "llama4, chunks within blocks": ("llama4_text", {"attention_chunk_size": 3}),
    "llama4, all layers": ("llama4_text", {"attention_chunk_size": WINDOW, "layer_types": ["chunked_attention"] * 3}),
}
WINDOWED = {"mistral", "mistral, short", "qwen2, all layers", "llama4, all layers"}  # in each layer
ALL_FIT = {"mistral, short", "llama4, chunks within blocks"}  # however many are admitted


class Released:
    """Counts the blocks that sequences release before their end, and spoils those that nothing holds or finds."""

    def __init__(self) -> None:
        self.blocks = 0

    def build(self, loaded: LoadedModel, options: EngineOptions, on_events: OnEvents) -> EngineCore:
        core = build_core(loaded, options, on_events)
        scheduler = core._scheduler
        scheduler._lengths.observe("", 0, 1)  # so that more are admitted than fit: what windows leave is known else
        release = scheduler._tables.release_unread

        def spoiling(sequence):
            before = sequence.released.copy()
            some = release(sequence)
            parts = zip(sequence.tables, before, sequence.released, strict=True)
            released = [block for table, first, end in parts for block in table[first:end]]
            self.blocks += len(released)
            scheduler.check()
            pool = scheduler.pool
            free = [block for block in released if not pool._references[block] and pool._keys[block] is None]
            for layer in core._runner._cache.layers if free else ():
                layer.keys[free] = torch.nan
                layer.values[free] = 300.0
            return some

        scheduler._tables.release_unread = spoiling
        return core
