"""The benchmark's command: reads the workload, measures, prints the report."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, NoReturn

from thothy_ai.bench.options import BenchOptions, parse
from thothy_ai.bench.progress import Progress
from thothy_ai.bench.requests import MakeRequests
from thothy_ai.bench.workload import read_workload
from thothy_ai.engine.api.errors import EngineError, InvalidRequestError, ModelLoadError, OutOfMemoryError

if TYPE_CHECKING:
    from thothy_ai.bench.measure import Report

_PROGRAM = "python -m thothy_ai.bench"
FAILED, WRONG_INPUT, INTERRUPTED = 1, 2, 130


def main(
    arguments: Sequence[str] | None = None, program: str = _PROGRAM, make_requests: MakeRequests | None = None
) -> None:
    """Run a command line; `make_requests` makes the jobs of --kinds, which needs the service's libraries.

    After one line on standard error, SystemExit: 1 if the drain fails or a token is wrong, 2 for wrong input, 130 after
    Ctrl-C.
    """
    options = parse(arguments, program)
    run_and_print(options, lambda progress: _run(options, progress, make_requests))


def run_and_print(options: BenchOptions, measure: Callable[[Progress], Report]) -> None:
    """Measure with progress on standard error, and print the report; SystemExit as `main`."""
    progress = Progress(sys.stderr)
    try:
        report = measure(progress)
    except EngineError as error:
        _end(progress, str(error), WRONG_INPUT if _is_wrong_input(error) else FAILED, error)
    except KeyboardInterrupt as error:
        _end(progress, "interrupted", INTERRUPTED, error)
    sys.stdout.write(json.dumps(asdict(report)) + "\n" if options.as_json else _text(report))


def _run(options: BenchOptions, progress: Progress, make_requests: MakeRequests | None) -> Report:
    if options.workload is not None:
        workload = read_workload(options.workload)
        progress.update("Starting")
        from thothy_ai.bench.measure import measure

        return measure(options, workload, progress)
    if make_requests is None:
        raise InvalidRequestError("--kinds needs the service's libraries: run thothy bench drain --kinds")
    progress.update("Starting")
    from thothy_ai.bench.kinds import measure_kinds

    return measure_kinds(options, make_requests, progress)


def _is_wrong_input(error: EngineError) -> bool:
    """Whether the file or an option is at fault. Too little memory is not."""
    return isinstance(error, (InvalidRequestError, ModelLoadError)) and not isinstance(error, OutOfMemoryError)


def _end(progress: Progress, message: str, code: int, cause: BaseException) -> NoReturn:
    progress.say(f"thothy: {' '.join(message.split())}")
    raise SystemExit(code) from cause


def _text(report: Report) -> str:
    """The figures under their title, then the most expensive kernels."""
    width = max(len(name) for name, _ in report.figures)
    lines = [report.title, report.where, "", *(f"{name:<{width}}  {value}" for name, value in report.figures)]
    if report.kernels:
        lines += ["", f"{'seconds':>8} {'launches':>9}  kernel"]
        lines += [f"{k.seconds:8.3f} {k.launches:9,}  {k.kind:<9} {k.name}" for k in report.kernels]
    return "\n".join(lines) + "\n"
