"""The benchmark's command line. It has its own parser, since it runs where the service's libraries are not."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from thothy_ai.bench.shapes import SHAPES
from thothy_ai.bench.workload import Order
from thothy_ai.engine.options import EngineOptions

PEERS = ("transformers", "vllm")
_EXAMPLE = "Example: thothy bench drain benchmarks/workloads/templates.json --shape llama-8b"


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """What to drain, on what, and what to compare it with. `jobs` None: all; `draw` None: the lengths of the file."""

    workload: Path
    shape: str
    engine: EngineOptions
    order: Order
    jobs: int | None
    seed: int
    draw: int | None
    tolerance: float | None
    profile: bool
    peer: str | None
    peer_seconds: float | None
    peer_name: str
    as_json: bool

    @property
    def model_name(self) -> str:
        """The folder's name, or the shape's."""
        return self.engine.model.resolve().name if self.engine.model else self.shape


def parse(arguments: Sequence[str] | None = None, program: str | None = None) -> BenchOptions:
    """Options from a command line; SystemExit with code 2 for a wrong one."""
    given = _parser(program).parse_args(arguments)
    engine = EngineOptions(
        url="",
        model=given.model,
        device=given.device,
        dtype=given.dtype,
        weights=given.weights,
        kv_dtype=given.kv_dtype,
        kv_tokens=given.kv_tokens,
        memory_utilization=given.memory_utilization,
        max_rows=given.max_rows,
        token_budget=given.token_budget,
        block_size=given.block_size,
        prefix_cache=given.prefix_cache,
        overlap=given.overlap,
        graphs=given.graphs,
    )
    return BenchOptions(
        workload=given.workload,
        shape=given.shape,
        engine=engine,
        order=Order(given.order),
        jobs=given.jobs,
        seed=given.seed,
        draw=given.draw,
        tolerance=given.tolerance,
        profile=given.profile,
        peer=given.peer,
        peer_seconds=given.peer_seconds,
        peer_name=given.peer_name,
        as_json=given.as_json,
    )


def _parser(program: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=program,
        description="Drain a workload file through the engine, check its tokens and print what it took.",
        epilog=_EXAMPLE,
    )
    parser.add_argument("workload", type=Path, metavar="FILE", help="jobs by their lengths, as JSON")
    _add_work(parser.add_argument_group("jobs"))
    _add_engine(parser.add_argument_group("engine"))
    _add_report(parser.add_argument_group("report"))
    return parser


def _add_work(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--order", choices=[order.value for order in Order], default="listed", help="of the hand-over")
    group.add_argument("--jobs", type=_positive, metavar="N", help="only the first N")
    group.add_argument("--seed", type=int, default=0, help="of the token ids, and of an order the file does not give")
    group.add_argument("--draw", type=int, metavar="SEED", help="new lengths of the same kinds and distributions")


def _add_engine(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--shape", choices=sorted(SHAPES), default="llama-8b", help="random weights of this shape")
    group.add_argument("--model", type=Path, help="a model's folder or GGUF file, instead of a shape")
    group.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:1")
    group.add_argument("--dtype", default="auto", help="auto, or a torch type such as bfloat16")
    group.add_argument("--weights", choices=("auto", "fp8"), default="auto", help="auto: as --dtype")
    group.add_argument("--kv-dtype", choices=("auto", "fp8"), default="auto", help="auto: as --dtype")
    group.add_argument("--kv-tokens", type=_positive, metavar="N", help="size of the KV pool; default: what fits")
    group.add_argument("--memory-utilization", type=float, default=0.9, help="part of a GPU's memory to plan for")
    group.add_argument("--max-rows", type=_positive, metavar="N", help="most sequences running at once")
    group.add_argument("--token-budget", type=_positive, metavar="N", help="most tokens that a step computes")
    group.add_argument("--block-size", type=_positive, metavar="N", help="tokens of a KV block")
    switch = argparse.BooleanOptionalAction
    group.add_argument("--prefix-cache", action=switch, default=True, help="share the KV of equal beginnings")
    group.add_argument("--overlap", action=switch, help="launch a step before the last one is read")
    group.add_argument("--graphs", action=switch, help="replay decode steps from CUDA graphs")


def _add_report(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--tolerance", type=float, metavar="NATS", help="for the check of tokens; default: by type")
    group.add_argument("--profile", action="store_true", help="split the time of a second drain by kernels (GPU)")
    group.add_argument("--peer", choices=PEERS, help="run the same jobs on this one afterwards")
    group.add_argument("--peer-seconds", type=float, metavar="S", help="what a peer took for the same jobs")
    group.add_argument("--peer-name", default="peer", help="whose --peer-seconds these are")
    group.add_argument("--json", action="store_true", dest="as_json", help="print one JSON document")


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return value
