"""What KV budgets save where sources are very long: the same jobs with and without them, in one run.

    python -m benchmarks.kv_budgets                 on a GPU
    python -m benchmarks.kv_budgets --device cpu --shape tiny --tokens 600 --output 40 --jobs 8 --budgets 128

Prompts are random, independent of each other, and not cached. This measures time and memory. What a model no longer
knows is measured by `benchmarks.kv_budget_losses`, and what outputs lose by `thothy eval KIND --source-tokens N
--kv-budget N`, both with a real model.
"""

from __future__ import annotations

import time

import torch

from benchmarks.command_line import CommandLine, positive
from benchmarks.results import record
from thothy_ai.bench.drain import BenchCore, DrainFailedError
from thothy_ai.bench.models import bench_model
from thothy_ai.bench.shapes import SHAPES
from thothy_ai.engine.api import SamplingParams
from thothy_ai.engine.api.core import CoreRequest
from thothy_ai.engine.api.options import EngineOptions

WARM_UP = 2  # jobs
FIGURES = "seconds; output tokens/s; most rows; most of the KV cache"


def main() -> None:
    line = CommandLine("kv_budgets", __doc__)
    line.add_argument("--device", default="auto")
    line.add_argument("--shape", choices=[*SHAPES], default="llama-8b")
    line.add_argument("--tokens", type=positive(int), default=16_000, help="of a prompt")
    line.add_argument("--output", type=positive(int), default=600, help="tokens of an output")
    line.add_argument("--jobs", type=positive(int), default=96)
    line.add_argument("--kv-tokens", type=positive(int), help="size of the KV cache; by default what memory allows")
    line.add_argument("--budgets", type=positive(int), nargs="+", default=[4096, 2048])
    given = line.parse_args()
    options = EngineOptions(
        url="", device=given.device, max_context=given.tokens + given.output, kv_tokens=given.kv_tokens,
        prefix_cache=False,
    )  # fmt: skip
    with line.checked():
        loaded = bench_model(given.shape, options)
        core = BenchCore(loaded, options)
    figures: list[tuple[str, str]] = []
    for budget in (None, *given.budgets):
        try:
            _, value = drained(core, given.jobs, given.tokens, given.output, loaded.config.vocab_size, budget)
        except DrainFailedError as error:
            core.close()
            line.error(str(error))
        name = "all KV is kept" if budget is None else f"a budget of {budget:,}"
        figures.append((f"{name}: {FIGURES}", value))
        print(*figures[-1], sep=" | ", flush=True)
    core.close()
    if loaded.model.device.type == "cuda":
        work = f"{given.jobs} prompts of {given.tokens:,} tokens, outputs of {given.output}"
        command = f"python -m benchmarks.kv_budgets --device {given.device} --shape {given.shape}"
        command += f" --tokens {given.tokens} --output {given.output} --jobs {given.jobs}"
        command += f" --kv-tokens {given.kv_tokens}" if given.kv_tokens is not None else ""
        command += f" --budgets {' '.join(map(str, given.budgets))}"
        device = torch.cuda.get_device_name(loaded.model.device)
        record(f"KV budgets, {given.shape}, {work}", "Engine", command, figures, device=device)


def drained(
    core: BenchCore, jobs: int, tokens: int, output: int, vocab: int, budget: int | None = None
) -> tuple[float, str]:
    """Drain so many jobs of these lengths, after a few others; returns the seconds, and the `FIGURES`."""
    core.run(requests(WARM_UP, tokens, output, vocab, budget))
    run = core.run(requests(jobs, tokens, output, vocab, budget))
    rate, most = jobs * output / run.seconds, max(run.running)
    return run.seconds, f"{run.seconds:.1f} s; {rate:,.0f}; {most}; {max(run.kv_used):.0%}"


def requests(jobs: int, tokens: int, output: int, vocab: int, budget: int | None) -> list[CoreRequest]:
    generator = torch.Generator().manual_seed(jobs)
    prompts = torch.randint(3, vocab, (jobs, tokens), generator=generator).tolist()
    sampling = SamplingParams(max_tokens=output, ignore_eos=True)
    names = (f"{time.monotonic_ns()}-{number:04}" for number in range(jobs))
    return [
        CoreRequest(name, tuple(each), sampling, kv_budget=budget) for name, each in zip(names, prompts, strict=True)
    ]


if __name__ == "__main__":
    main()
