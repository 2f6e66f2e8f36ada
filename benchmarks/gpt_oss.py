"""`python -m benchmarks.gpt_oss [--small]`: a drain over the shape of gpt-oss-20b with random weights in MXFP4.

Prompts of 200 to 2,000 tokens and answers of 200, greedy. `--small` is for trying it on a CPU.
"""

from __future__ import annotations

import argparse
import random
import time
from typing import Any

from thothy_ai.bench.drain import BenchCore
from thothy_ai.bench.models import bench_model
from thothy_ai.bench.shapes import SHAPES
from thothy_ai.engine.api import SamplingParams
from thothy_ai.engine.api.core import CoreRequest
from thothy_ai.engine.api.options import EngineOptions

NAME = "gpt-oss-20b"
SHAPE: dict[str, Any] = {
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    "num_hidden_layers": 24,
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_local_experts": 32,
    "num_experts_per_tok": 4,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "sliding_window": 128,
    "vocab_size": 201_088,
    "tie_word_embeddings": False,
    "max_position_embeddings": 131_072,
    "rms_norm_eps": 1e-5,
    "quantization_config": {"quant_method": "mxfp4"},
}
SMALL = {"num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 64, "num_local_experts": 4, "vocab_size": 512,
         "num_attention_heads": 4, "num_key_value_heads": 2}  # fmt: skip
ANSWER = 200


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.gpt_oss", description=__doc__)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--requests", type=int, default=512)
    arguments = parser.parse_args()
    SHAPES[NAME] = SHAPE | (SMALL if arguments.small else {})
    options = EngineOptions(url="", max_context=4096)
    began = time.perf_counter()
    drain = BenchCore(bench_model(NAME, options), options)
    print(f"ready after {time.perf_counter() - began:.1f} s", flush=True)
    drain.run(_requests(8, "warm"))
    requests = _requests(arguments.requests, "job")
    began = time.perf_counter()
    drain.run(requests)
    seconds = time.perf_counter() - began
    drain.close()
    prompts = sum(len(request.prompt) for request in requests)
    answers = ANSWER * len(requests)
    print(f"{len(requests)} requests, {prompts} prompt tokens, {answers} output tokens in {seconds:.2f} s")
    print(f"{prompts / seconds:.0f} prompt tokens/s, {answers / seconds:.0f} output tokens/s")


def _requests(count: int, name: str) -> list[CoreRequest]:
    draw, vocab = random.Random(count), SHAPES[NAME]["vocab_size"]
    sampling = SamplingParams(max_tokens=ANSWER, ignore_eos=True)
    lengths = [draw.randint(200, 2000) for _ in range(count)]
    return [
        CoreRequest(f"{name} {index}", tuple(draw.choices(range(vocab), k=length)), sampling)
        for index, length in enumerate(lengths)
    ]


if __name__ == "__main__":
    main()
