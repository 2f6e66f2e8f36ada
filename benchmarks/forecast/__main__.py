"""How often the forecast is right, on simulated days that no constant of it was chosen on.

python -m benchmarks.forecast               records the result
python -m benchmarks.forecast --seeds 4 --print-only
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from statistics import median

from benchmarks.command_line import CommandLine, positive
from benchmarks.forecast.days import DAY, Sample, simulate
from benchmarks.results import Table, record, table

FIRST_SEED = 1000  # those below were used to choose constants
TITLE = "Forecast, simulated days"
NOTE = """{days:g} days of each of {seeds} seeds from {first} on, which no constant was chosen on: four sizes of
service, bursts of one to three kinds with siblings, deadlines and priorities, single jobs all day, retries, follow-up
jobs, engines that are lost and come back, warm-up, drifting speed. A forecast about every {minutes:g} minutes while
jobs are open. The truth is the same future without further arrivals, and with them in the last row.

"""
HEADER = ("forecasts", "number", "median error", "p90 held", "p90 / p50, median", "bias, median")


def main() -> None:
    """Simulate, and write or print the table."""
    line = CommandLine("forecast", __doc__)
    line.add_argument("--seeds", type=positive(int), default=8, help="number of services (default: 8)")
    line.add_argument("--days", type=positive(float), default=1.5, help="days of each (default: 1.5)")
    line.add_argument("--minutes", type=positive(float), default=20.0, help="between forecasts (default: 20)")
    line.add_argument("--print-only", action="store_true", help="record nothing")
    given = line.parse_args()
    seeds = range(FIRST_SEED, FIRST_SEED + given.seeds)
    with ProcessPoolExecutor() as pool:
        work = partial(simulate, days=given.days, every=60 * given.minutes)
        samples = [sample for each in pool.map(work, seeds) for sample in each]
    note = NOTE.format(days=given.days, seeds=given.seeds, first=FIRST_SEED, minutes=given.minutes)
    found = list(rows(samples))
    print(note + table(HEADER, found))
    if not given.print_only:
        figures = [(f"{name}: median error; p90 held", f"{error}; {held}") for name, _, error, held, *_ in found]
        tables = [Table(" ".join(note.split()), HEADER, found)]
        record(TITLE, "Accuracy", "python -m benchmarks.forecast", figures, tables=tables)


def rows(samples: Sequence[Sample]) -> Iterator[tuple[str, ...]]:
    """One row per group of forecasts."""
    yield row("all", samples)
    yield row("while jobs wait", [each for each in samples if each.waited])
    yield row("no job waits, some run", [each for each in samples if not each.waited])
    yield row("first day, from no history", [each for each in samples if each.at < DAY])
    yield row("later days", [each for each in samples if each.at >= DAY])
    coming = [each for each in samples if each.arriving and each.emptied and each.waited]
    yield row("with arrivals, while jobs wait", [_arriving(each) for each in coming], with_p90=False)


def _arriving(sample: Sample) -> Sample:
    assert sample.arriving is not None
    assert sample.emptied is not None
    return Sample(sample.at, sample.arriving.p50, sample.arriving.p90, sample.emptied, sample.waited, None)


def row(name: str, samples: Sequence[Sample], *, with_p90: bool = True) -> tuple[str, ...]:
    """The figures of a group."""
    judged = [each for each in samples if each.p50 > 0 and each.truth > 0]
    if not judged:
        return (name, "0", "-", "-", "-", "-")
    return (
        name,
        f"{len(judged):,}",
        f"{median(abs(each.p50 - each.truth) / each.truth for each in judged):.1%}",
        f"{sum(each.truth <= each.p90 for each in judged) / len(judged):.1%}" if with_p90 else "-",
        f"{median(each.p90 / each.p50 for each in judged):.2f}" if with_p90 else "-",
        f"{median(each.p50 / each.truth for each in judged) - 1:+.1%}",
    )


if __name__ == "__main__":
    main()
