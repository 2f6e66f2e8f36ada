"""The benchmark's command line. It uses argparse, because it also runs without the service's libraries."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from thothy_ai.bench.requests import JOBS
from thothy_ai.bench.shapes import ON_A_CPU, ON_A_GPU, SHAPES, described
from thothy_ai.bench.workload import Order
from thothy_ai.engine.api.options import Command, EngineOptions, options_of

PEERS = ("transformers", "vllm")
JOBS_ON_A_CPU = 16
_OF_KINDS = ("kind", "tokenizer")
_OF_FILES = ("draw", "urgent", "tolerance", "profile", "peer", "peer_seconds")
_EXAMPLE = "Example: thothy bench drain benchmarks/workloads/templates.json --shape llama-8b"


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """What to drain, on which engine, and what to compare with. `draw` None: the lengths in the file.

    Either `workload` or `kinds` is set; `kind` belongs to `kinds`. `house_prompt` is in tokens, with `kinds` in words.
    `shape` and `jobs` are chosen to suit the device if they are None.
    """

    workload: Path | None
    kinds: bool
    kind: str | None
    house_prompt: int
    tokenizer: Path | None
    shape: str | None
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
    urgent: float | None = None

    @property
    def model_name(self) -> str:
        """The name of the model's folder, or of the shape."""
        return self.engine.model.resolve().name if self.engine.model else str(self.shape)


def parse(arguments: Sequence[str] | None = None, program: str | None = None) -> BenchOptions:
    """Parse a command line. Raises SystemExit with code 2 if it is wrong."""
    parser = drain_parser(program)
    given = vars(parser.parse_args(arguments))
    kinds = given["kinds"]
    if kinds == (given["workload"] is not None):
        parser.error("give either a workload FILE or --kinds")
    for name in _OF_FILES if kinds else _OF_KINDS:
        if given[name] not in (None, False, 0) or (name in {"draw", "tolerance"} and given[name] is not None):
            parser.error(f"--{name.replace('_', '-')} goes with {'a workload FILE' if kinds else '--kinds'}")
    return _options(given)


def parse_service(arguments: Sequence[str] | None = None, program: str | None = None) -> BenchOptions:
    """Parse a command line of `thothy bench service`, as for a drain of kinds. Raises SystemExit as `parse` does."""
    defaults = vars(drain_parser().parse_args(["--kinds"]))
    return _options(defaults | vars(service_parser(program).parse_args(arguments)))


def _options(given: dict[str, Any]) -> BenchOptions:
    engine = {declared.name: given.pop(declared.name) for declared in options_of(Command.BENCH)}
    return BenchOptions(**given | {"engine": EngineOptions(url="", **engine), "order": Order(given["order"])})


def drain_parser(program: str | None = None) -> argparse.ArgumentParser:
    """The parser of `thothy bench drain`."""
    parser = _Parser(
        prog=program,
        usage="%(prog)s [OPTIONS] FILE | --kinds",
        description="Drain a workload file, or with --kinds real jobs, and print the figures.",
        epilog=_epilog(_EXAMPLE),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("workload", nargs="?", type=Path, metavar="FILE", help="The jobs by their lengths, as JSON.")
    jobs = parser.add_argument_group("jobs")
    orders = [order.value for order in Order]
    jobs.add_argument("--order", choices=orders, default="listed", help="Order of submission. [default: listed]")
    _add_count(jobs)
    jobs.add_argument("--draw", type=int, metavar="SEED", help="Draw new lengths of the same kinds and distributions.")
    house = "Begin every prompt with the same N tokens; with --kinds, with a system message of N words."
    jobs.add_argument("--house-prompt", type=_bounded(int, 1), default=0, metavar="N", help=house)
    urgent = "Drain again while an urgent job is submitted every so many seconds."
    jobs.add_argument("--urgent", type=_bounded(float, 0.01), metavar="SECONDS", help=urgent)
    of_kinds = parser.add_argument_group("jobs of the kinds")
    kinds = "Drain jobs with their kinds' prompts, schemas and sampling: with schemas, again, and without."
    of_kinds.add_argument("--kinds", action="store_true", help=kinds)
    _add_kind(of_kinds)
    _add_tokenizer(of_kinds)
    _add_engine(parser.add_argument_group("engine"))
    report = parser.add_argument_group("report")
    tolerance = "Tolerance of the check of tokens, in nats. Default: by data type."
    report.add_argument("--tolerance", type=float, metavar="NATS", help=tolerance)
    report.add_argument("--profile", action="store_true", help="Profile a second drain by kernel (GPU only).")
    report.add_argument("--peer", choices=PEERS, help="Run the same jobs on this engine afterwards.")
    report.add_argument("--peer-seconds", type=float, metavar="SECONDS", help="A peer's time for the same jobs.")
    name = "Name of the peer that --peer-seconds is about. [default: peer]"
    report.add_argument("--peer-name", default="peer", metavar="NAME", help=name)
    _add_json(report)
    return parser


def service_parser(program: str | None = None) -> argparse.ArgumentParser:
    """The parser of `thothy bench service`."""
    parser = _Parser(
        prog=program,
        usage="%(prog)s [OPTIONS]",
        description="Run jobs through the whole service and straight to its engine, and print the figures.",
        epilog=_epilog("Example: thothy bench service --shape llama-8b --tokenizer FOLDER"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    jobs = parser.add_argument_group("jobs")
    _add_count(jobs)
    _add_kind(jobs)
    engine = parser.add_argument_group("engine")
    _add_tokenizer(engine)
    _add_engine(engine)
    _add_json(parser.add_argument_group("report"))
    return parser


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Report a usage error in one line."""
        sys.stderr.write(f"thothy: {message} (see {self.prog} --help)\n")
        raise SystemExit(2)


def _epilog(example: str) -> str:
    width = max(map(len, SHAPES))
    shapes = [f"  {shape:<{width}}  {described(shape)}" for shape in SHAPES]
    return "\n".join(("shapes:", *shapes, "", example))


def _add_count(group: argparse._ArgumentGroup) -> None:
    limit = f"Drain N jobs. [default: {JOBS_ON_A_CPU} on a CPU; on a GPU all of a file, {JOBS:,} of the kinds]"
    group.add_argument("--jobs", type=_bounded(int, 1), metavar="N", help=limit)
    group.add_argument("--seed", type=int, default=0, help="Seed of what is drawn at random. [default: 0]")


def _add_kind(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--kind", metavar="NAME", help="Jobs of this kind alone. Default: a mix of the built-in kinds.")


def _add_tokenizer(group: argparse._ArgumentGroup) -> None:
    tokenizer = "Tokenizer for --shape: a folder with a tokenizer.json and a chat template."
    group.add_argument("--tokenizer", type=Path, metavar="FOLDER", help=tokenizer)


def _add_engine(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--shape",
        choices=sorted(SHAPES),
        help="Random weights of this shape, unless --model is given. "
        f"[default: {ON_A_CPU} on a CPU; on a GPU the first of {', '.join(ON_A_GPU)} that fits]",
    )
    for declared in options_of(Command.BENCH):
        option, default = declared.option, declared.default
        if declared.kind is bool:
            parsing: dict[str, Any] = {"action": argparse.BooleanOptionalAction if declared.negation else "store_true"}
        else:
            kind = _bounded(declared.kind, option.minimum, option.maximum)
            parsing = {"type": kind, "choices": option.choices or None, "metavar": option.metavar}
        text = option.help  # with the default added below, as in `thothy engine --help`
        if default is not None and default is not False:
            text += f" [default: {declared.flag[2:] if default is True else default}]"
        group.add_argument(declared.flag, default=default, help=text, **parsing)


def _add_json(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--json", action="store_true", dest="as_json", help="Print one JSON document.")


def _bounded(kind: type, minimum: float | None = None, maximum: float | None = None) -> Callable[[str], Any]:
    """A reader of values of this type. A value outside the limits is a usage error."""

    def read(text: str) -> Any:
        value = kind(text)
        if minimum is not None and value < minimum:
            raise argparse.ArgumentTypeError(f"{text} is less than {minimum:g}")
        if maximum is not None and value > maximum:
            raise argparse.ArgumentTypeError(f"{text} is more than {maximum:g}")
        return value

    read.__name__ = kind.__name__  # argparse's own messages show it
    return read
