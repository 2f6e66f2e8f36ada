"""What windows save that give memory back: a drain bound by KV, in as many bytes as if each layer kept all tokens.

    python -m benchmarks.windows                    on a GPU

The shape's layers with windows are first put in one group with all others, so that a sequence keeps all of its tokens
in each layer; attention reads the same tokens in both drains. Prompts are random and independent of each other.
"""

from __future__ import annotations

from unittest import mock

import torch

from benchmarks.command_line import CommandLine, positive
from benchmarks.kv_budgets import FIGURES, drained
from benchmarks.results import record
from thothy_ai.bench.drain import BenchCore
from thothy_ai.bench.models import bench_model
from thothy_ai.bench.shapes import SHAPES
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.models import layer_groups


def main() -> None:
    line = CommandLine("windows", __doc__)
    line.add_argument("--device", default="auto")
    line.add_argument("--shape", choices=[*SHAPES], default="gpt-oss-20b")
    line.add_argument("--weights", default="auto", choices=("auto", "fp8"))
    line.add_argument("--tokens", type=positive(int), default=1000, help="of a prompt")
    line.add_argument("--output", type=positive(int), default=1000, help="tokens of an output")
    line.add_argument("--jobs", type=positive(int), default=300)
    line.add_argument("--kv-tokens", type=positive(int), default=200_000, help="that all layers can keep")
    given = line.parse_args()
    options = EngineOptions(
        url="", device=given.device, weights=given.weights, max_context=given.tokens + given.output,
        kv_tokens=given.kv_tokens, prefix_cache=False,
    )  # fmt: skip
    figures: list[tuple[str, str]] = []
    seconds: list[float] = []
    device = ""
    for name, worthwhile in (("all layers keep all tokens", 0.0), ("windows give back", layer_groups._WORTHWHILE)):
        with line.checked(), mock.patch.object(layer_groups, "_WORTHWHILE", worthwhile):
            loaded = bench_model(given.shape, options)
            core = BenchCore(loaded, options)
        took, value = drained(core, given.jobs, given.tokens, given.output, loaded.config.vocab_size)
        device = core.core.info().device
        core.close()
        seconds.append(took)
        figures.append((f"{name}: {FIGURES}", value))
        print(*figures[-1], sep=" | ", flush=True)
        del loaded, core
    figures.append(("times as fast", f"{seconds[0] / seconds[1]:.2f}"))
    print(*figures[-1], sep=" | ", flush=True)
    if torch.cuda.is_available() and given.device != "cpu":
        command = f"python -m benchmarks.windows --shape {given.shape} --weights {given.weights}"
        command += f" --tokens {given.tokens} --output {given.output} --jobs {given.jobs} --kv-tokens {given.kv_tokens}"
        work = f"{given.jobs} jobs of {given.tokens:,} tokens in and {given.output:,} out, {given.kv_tokens:,} of KV"
        record(f"Windows that give memory back, {given.shape}, {work}", "Engine", command, figures, device=device)


if __name__ == "__main__":
    main()
