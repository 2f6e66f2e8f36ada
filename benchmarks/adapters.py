"""What adapters cost: drains with none, with some that no job uses, and with several numbers of them; siblings
whose kinds have an adapter each, plain and activated; and the first use of one from host memory.

    python -m benchmarks.adapters --shape llama-8b                 # on a GPU
    python -m benchmarks.adapters --shape smollm2-135m --jobs 16 --counts 1 2     # anywhere

Drains without adapters frame the others, in one process, and the median of `--repeats` counts. Each takes an H200 some
15 s for 300 jobs, since one of them writes 1,048 tokens; all of it, some seven minutes.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from safetensors.torch import save_file

from benchmarks.results import record
from thothy_ai.bench.drain import BenchCore, as_requests
from thothy_ai.bench.models import bench_model
from thothy_ai.bench.workload import TokenDraw, WorkloadJob, read_workload
from thothy_ai.engine.api.core import CoreRequest
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.weights.loader import LoadedModel

WORKLOADS = Path(__file__).parent / "workloads"
INVOCATION = (7, 11, 13)  # of activated adapters: tokens that their prompts have behind the source


def write_adapters(loaded: LoadedModel, folder: Path, count: int, rank: int, invocation: Sequence[int] = ()) -> None:
    """Random adapters of all layers, by number: the same numbers, times a factor of each one's own."""
    generator = torch.Generator().manual_seed(0)
    tensors: dict[str, torch.Tensor] = {}
    for name, module in loaded.model.adapters.modules.items():
        a = torch.randn(rank, module.inputs, generator=generator) * module.inputs**-0.5
        tensors[f"base_model.model.{name}.lora_A.weight"] = a.bfloat16()
        b = torch.randn(module.rows, rank, generator=generator) * 0.01
        tensors[f"base_model.model.{name}.lora_B.weight"] = b.bfloat16()
    fields: dict[str, Any] = {"peft_type": "LORA", "r": rank}
    if invocation:
        fields["alora_invocation_tokens"] = [*invocation]
    folder.mkdir()
    weights = folder / "weights"
    save_file(tensors, weights)
    for number in range(count):
        own = folder / str(number)
        own.mkdir()
        (own / "adapter_config.json").write_text(json.dumps(fields | {"lora_alpha": rank + number}))
        (own / "adapter_model.safetensors").hardlink_to(weights)


def siblings(jobs: Sequence[WorkloadJob], draw: TokenDraw, *, activated: bool, prefix: str) -> list[CoreRequest]:
    """Jobs over shared sources, each kind with an adapter; the invocation follows the part that siblings share."""
    kinds = sorted({job.kind for job in jobs})
    made = []
    for job, request in zip(jobs, as_requests(jobs, draw, prefix), strict=True):
        shared = sum(part.tokens for part in job.shared)
        prompt = (*request.prompt[:shared], *INVOCATION, *request.prompt[shared:])
        name = f"{'activated' if activated else 'plain'}-{kinds.index(job.kind)}"
        made.append(replace(request, prompt=prompt, adapter=name))
    return made


class Bench:
    """Repeats drains on one core."""

    def __init__(self, core: BenchCore, repeats: int) -> None:
        self._core, self._repeats, self._number = core, repeats, 0

    def seconds(self, make: Callable[[str], list[CoreRequest]]) -> float:
        """The median; requests get new ids, and prompts of their own, so that no cache helps from one to the next."""
        took = []
        for _ in range(self._repeats):
            self._number += 1
            took.append(self._core.run(make(f"run{self._number}")).seconds)
        return median(took)

    @property
    def number(self) -> int:
        return self._number

    def load(self, folder: Path, numbers: range, prefix: str) -> None:
        for number in numbers:
            self._core.core.load_adapter(f"{prefix}{number}", str(folder / f"{number}")).result()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="llama-8b")
    parser.add_argument("--weights", default="auto", choices=("auto", "fp8"))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--counts", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--record", action="store_true", help="Write the figures to benchmarks/results.")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    options = EngineOptions(
        "", device=given.device, weights=given.weights, adapter_slots=given.slots, adapter_rank=given.rank
    )
    began = time.perf_counter()
    loaded = bench_model(given.shape, options)
    templates = read_workload(WORKLOADS / "templates.json").jobs[: given.jobs]
    shared = read_workload(WORKLOADS / "siblings.json").jobs[: given.jobs]
    core = BenchCore(loaded, options)
    bench, vocab = Bench(core, given.repeats), loaded.config.vocab_size
    figures: list[tuple[str, ...]] = []

    def note(*figure: str) -> None:
        figures.append(figure)
        print(f"after {time.perf_counter() - began:.0f} s:", *figure, flush=True)

    def show(name: str, seconds: float, base: float, target: str = "") -> None:
        note(name, f"{seconds:.2f} s, {100 * (seconds / base - 1):+.1f} %", target)

    def drained(count: int) -> float:
        def make(prefix: str) -> list[CoreRequest]:
            requests = as_requests(templates, TokenDraw(vocab, str(bench.number)), prefix)
            return [replace(each, adapter=f"a{index % count}" if count else "") for index, each in enumerate(requests)]

        return bench.seconds(make)

    with tempfile.TemporaryDirectory() as home:
        counts = sorted(given.counts)
        write_adapters(loaded, Path(home) / "a", counts[-1], given.rank)
        note("model and core", f"{time.perf_counter() - began:.1f} s", "")
        Bench(core, 1).seconds(lambda prefix: as_requests(templates, TokenDraw(vocab, "warm-up"), f"warm-up {prefix}"))
        base = drained(0)
        show("no adapter is loaded", base, base)
        there = 0
        for count in counts:
            loading = time.perf_counter()
            bench.load(Path(home) / "a", range(there, count), "a")
            note(f"loading {count - there}", f"{time.perf_counter() - loading:.1f} s", "" if there else "with graphs")
            if not there:
                show("loaded, none used", drained(0), base, "within 1 %")
            there = count
            show(f"{count} adapters", drained(count), base, {8: "within 7 %", 64: "within 15 %"}.get(count, ""))
        show("no adapter again", drained(0), base)
        if there > given.slots:
            note(
                "first use from host memory",
                f"{1e3 * first_use(core, templates[0], vocab, given.slots):.1f} ms",
                "under 50 ms",
            )
        measure_siblings(bench, loaded, shared, Path(home), given.rank, show)
    core.close()
    if given.record:
        subject = f"Adapters, {given.shape}, {given.weights} weights, rank {given.rank}"
        record(subject, "Drains", f"python -m benchmarks.adapters --shape {given.shape}", figures)


def measure_siblings(
    bench: Bench, loaded: LoadedModel, jobs: Sequence[WorkloadJob], home: Path, rank: int, show: Callable[..., None]
) -> None:
    """Without adapters, then with those of their kinds."""
    vocab = loaded.config.vocab_size
    for kind, invocation in (("plain", ()), ("activated", INVOCATION)):
        write_adapters(loaded, home / kind, 4, rank, invocation)
        bench.load(home / kind, range(4), f"{kind}-")
    base = bench.seconds(lambda prefix: [replace(each, adapter="") for each in of(jobs, vocab, bench, prefix)])
    show("siblings, no adapter", base, base)
    for activated in (False, True):
        seconds = bench.seconds(lambda prefix, on=activated: of(jobs, vocab, bench, prefix, activated=on))
        show(f"siblings, an adapter for each kind, {'activated' if activated else 'plain'}", seconds, base)


def of(
    jobs: Sequence[WorkloadJob], vocab: int, bench: Bench, prefix: str, *, activated: bool = False
) -> list[CoreRequest]:
    return siblings(jobs, TokenDraw(vocab, f"siblings {bench.number}"), activated=activated, prefix=prefix)


def first_use(core: BenchCore, job: WorkloadJob, vocab: int, slots: int) -> float:
    """Seconds that a short request takes longer if others' adapters have taken its adapter's slot since."""
    bench = Bench(core, 1)
    names = ["a0", *(f"a{number}" for number in range(1, 1 + slots)), "a0", "a0"]
    *_, copied, resident = [
        bench.seconds(lambda prefix, name=name: [short(job, vocab, prefix, name)]) for name in names
    ]
    return copied - resident


def short(job: WorkloadJob, vocab: int, prefix: str, name: str) -> CoreRequest:
    """A request so short that the copy of its adapter is seen."""
    (request,) = as_requests([job], TokenDraw(vocab, "first"), prefix)
    return replace(request, prompt=request.prompt[:64], sampling=replace(request.sampling, max_tokens=4), adapter=name)


if __name__ == "__main__":
    main()
