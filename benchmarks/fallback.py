"""What the fallback costs: a random model of Llama's architecture as a family of its own, and through transformers.

    python -m benchmarks.fallback [--requests 256]

Each row is one engine: all requests are submitted at once, each with a prompt of 128 tokens and 128 tokens to come.
"""

from __future__ import annotations

import argparse
import json
import queue
import random
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch

from thothy_ai.engine.api import SamplingParams
from thothy_ai.engine.api.core import CoreRequest, Event, FinishedEvent
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.models.config import ModelConfig
from thothy_ai.engine.models.fallback import ThroughTransformers
from thothy_ai.engine.models.model import Model
from thothy_ai.engine.process.build import build_core
from thothy_ai.engine.weights.assemble import assemble, model_config
from thothy_ai.engine.weights.loader import LoadedModel
from thothy_ai.engine.weights.random import RandomWeights

_LENGTH = 128  # tokens of a prompt, and of an answer
_LLAMA_1B = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 32_000,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "eos_token_id": 2,
}


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=256)
    requests = parser.parse_args().requests
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    native, through = _configs()
    print(f"{'engine':<40}{'seconds':>9}{'tokens/s':>10}")
    for name, config, graphs in (
        ("a family of its own, graphs", native, True),
        ("a family of its own, no graphs", native, False),
        ("through transformers, graphs", through, True),
        ("through transformers, no graphs", through, False),
    ):
        model = assemble(config, RandomWeights(device, dtype))
        seconds = _drain(model, requests, graphs=graphs)
        print(f"{name:<40}{seconds:>9.2f}{requests * _LENGTH / seconds:>10,.0f}", flush=True)
        del model


def _configs() -> tuple[ModelConfig, ModelConfig]:
    """The same shape as a family of its own, and through transformers."""
    from transformers import AutoConfig  # noqa: PLC0415  slow to import

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(_LLAMA_1B), encoding="utf-8")
        native = model_config(Path(folder))
        architecture = ThroughTransformers.read(AutoConfig.from_pretrained(folder))
    return native, replace(native, architecture=architecture, head_dim=architecture.width)


def _drain(model: Model, requests: int, *, graphs: bool) -> float:
    """Seconds from the first step to the last request's end."""
    events: queue.SimpleQueue[list[Event]] = queue.SimpleQueue()
    options = EngineOptions(url="", max_context=512, max_rows=256, graphs=graphs, kv_tokens=256 * 320)
    core = build_core(LoadedModel(model.config, model, None, "llama"), options, events.put)
    draw = random.Random(0)
    sampling = SamplingParams(max_tokens=_LENGTH, ignore_eos=True)
    for index in range(requests):
        prompt = tuple(draw.choices(range(3, model.config.vocab_size), k=_LENGTH))
        core.submit(CoreRequest(str(index), prompt, sampling))
    began, left = time.perf_counter(), requests
    core.start()
    while left:
        left -= sum(isinstance(event, FinishedEvent) for event in events.get(timeout=300))
    seconds = time.perf_counter() - began
    core.stop()
    core.join(60)
    return seconds


if __name__ == "__main__":
    main()
