"""Architectures that were checked: those that the fallback runs, and those that it refuses, with the reason.

tests/unit/engine holds both against small random models, token for token, thus the tables say what is.
"""

from __future__ import annotations

CHECKED = (
    "apertus", "arcee", "biogpt", "bitnet", "deepseek_v2", "deepseek_v3", "dots1", "ernie4_5", "ernie4_5_moe",
    "exaone4", "gpt2", "gpt_neox", "granitemoe", "granitemoehybrid", "helium", "hunyuan_v1_dense", "nemotron", "olmo",
    "olmoe", "opt", "phi", "stablelm", "starcoder2",
)  # fmt: skip
REFUSED = {  # architecture: the reason, as errors give it
    "bert": "attention is bidirectional: it is an encoder",
    "bloom": "attention with ALiBi is not implemented",
    "falcon": "its attention does not go through transformers' attention interface",
    "gptj": "its attention does not go through transformers' attention interface",
    "jamba": "recurrent state is not implemented",
    "mamba": "recurrent state is not implemented",
    "mpt": "attention with ALiBi is not implemented",
    "recurrent_gemma": "recurrent state is not implemented",
    "rwkv": "recurrent state is not implemented",
    "t5": "encoder-decoders are not implemented",
}
