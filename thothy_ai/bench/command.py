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
    from thothy_ai.bench.measure import BenchReport

_PROGRAM = "python -m thothy_ai.bench"
FAILED, WRONG_INPUT, INTERRUPTED = 1, 2, 130


def main(
    arguments: Sequence[str] | None = None, program: str = _PROGRAM, make_requests: MakeRequests | None = None
) -> None:
    """Run a command line; `make_requests` makes the jobs of --kinds, which needs the service's libraries.

    On failure, prints one line on standard error and raises SystemExit: 1 if the drain fails or a token is wrong, 2 for
    wrong input, 130 after Ctrl-C.
    """
    options = parse(arguments, program)

    def run(progress: Progress) -> BenchReport:
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

    run_and_print(options, run)


def run_and_print(options: BenchOptions, measure: Callable[[Progress], BenchReport]) -> None:
    """Measure with progress on standard error, and print the report. Raises SystemExit as `main` does."""
    progress = Progress(sys.stderr)
    try:
        report = measure(progress)
    except EngineError as error:
        # Wrong input is a faulty file or option, not too little memory.
        is_wrong = isinstance(error, InvalidRequestError | ModelLoadError) and not isinstance(error, OutOfMemoryError)
        _end(progress, str(error), WRONG_INPUT if is_wrong else FAILED, error)
    except KeyboardInterrupt as error:
        _end(progress, "interrupted", INTERRUPTED, error)
    if options.as_json:
        sys.stdout.write(json.dumps(asdict(report)) + "\n")
        return
    width = max(len(name) for name, _ in report.figures)
    lines = [report.title, report.where, "", *(f"{name:<{width}}  {value}" for name, value in report.figures)]
    if report.kernels:
        lines += ["", f"{'seconds':>8} {'launches':>9}  kernel"]
        lines += [f"{k.seconds:8.3f} {k.launches:9,}  {k.kind:<9} {k.name}" for k in report.kernels]
    sys.stdout.write("\n".join(lines) + "\n")


def _end(progress: Progress, message: str, code: int, cause: BaseException) -> NoReturn:
    progress.say(f"thothy: {' '.join(message.split())}")
    raise SystemExit(code) from cause
