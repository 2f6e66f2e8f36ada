"""The benchmark's command: reads the workload, measures, prints the report."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from thothy_ai.bench.draws import redraw
from thothy_ai.bench.options import BenchOptions, parse
from thothy_ai.bench.workload import Work, read_workload
from thothy_ai.engine.errors import EngineError

if TYPE_CHECKING:
    from thothy_ai.bench.measure import Report

_PROGRAM = "python -m thothy_ai.bench"
_WARM_UP_JOBS = 64


def main(arguments: Sequence[str] | None = None, program: str = _PROGRAM) -> None:
    """Run a command line; SystemExit 1, after one line on standard error, if it fails or a token is wrong."""
    options = parse(arguments, program)
    try:
        report = _run(options)
    except EngineError as error:
        sys.stderr.write(f"{program}: {error}\n")
        raise SystemExit(1) from error
    sys.stdout.write(json.dumps(asdict(report)) + "\n" if options.as_json else _text(report))


def _run(options: BenchOptions) -> Report:
    from thothy_ai.bench.measure import measure  # noqa: PLC0415  imports torch, which help does not need

    return measure(options, _work(options))


def _work(options: BenchOptions) -> Work:
    """The jobs to drain, and those of the warm-up: the last ones listed, with other tokens."""
    workload = read_workload(options.workload)
    if options.draw is not None:
        workload = redraw(workload, options.draw)
    jobs = workload.ordered(options.order, options.seed)[: options.jobs]
    return Work(workload.name, jobs, workload.jobs[-_WARM_UP_JOBS:])


def _text(report: Report) -> str:
    """The figures under their title, then the most expensive kernels."""
    width = max(len(name) for name, _ in report.figures)
    lines = [report.title, report.where, "", *(f"{name:<{width}}  {value}" for name, value in report.figures)]
    if report.kernels:
        lines += ["", f"{'seconds':>8} {'launches':>9}  kernel"]
        lines += [f"{k.seconds:8.3f} {k.launches:9,}  {k.kind:<9} {k.name}" for k in report.kernels]
    return "\n".join(lines) + "\n"
