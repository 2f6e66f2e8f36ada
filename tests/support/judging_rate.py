"""Measures how many translations the processes of a worker's `Judges` judge per second, and what a backlog costs.

    python -m tests.support.judging_rate [--jobs N] [--processes 1 2 4]

Each job is what a worker asks for it: its prompt, then the verdict on its output. The outputs are the labelled
translations that editors accepted, so that every check runs. All jobs are asked for at once, as after a burst.
`worker ms` and `processes ms` are processor time per job, which is what counts on a busy machine; the latter includes
what the processes take to start.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import resource
import statistics
import time
from collections.abc import Sequence

from benchmarks.validators import FOLDER
from thothy_ai.jobs import Output
from thothy_ai.jobs.api.plan import Outputs
from thothy_ai.jobs.evaluation.labelled import LabelledText, load
from thothy_ai.plans.advance import Judgement, PlannedJob, PlanStep
from thothy_ai.plans.judges import Judges

SECONDS = 60.0  # of processor time that one task may take


async def judged(judges: Judges, text: LabelledText) -> bool | None:
    """Whether the text is accepted; None of one that is translated by several calls."""
    job = PlannedJob(text.kind, dict(text.request))
    step = await judges.advance(job, [], None)
    if not isinstance(step, PlanStep) or len(step.calls) > 1:
        return None
    answered: list[Outputs] = [(Output(json.dumps({"text": text.artifact["text"]})),)]
    end = await judges.advance(job, answered, step)
    return isinstance(end, Judgement) and end.accepted


async def measured(texts: Sequence[LabelledText], processes: int) -> str:
    """A line of the table."""
    judges = Judges((), SECONDS, processes)
    waits: list[float] = []

    async def one(text: LabelledText) -> bool | None:
        began = time.perf_counter()
        accepted = await judged(judges, text)
        waits.append(time.perf_counter() - began)
        return accepted

    try:
        await asyncio.gather(*(judged(judges, text) for text in texts[: 4 * processes]))  # imports, caches
        began, busy = time.perf_counter(), _cpu()
        accepted = await asyncio.gather(*map(one, texts))
        seconds, own = time.perf_counter() - began, _cpu() - busy
    finally:
        before = _cpu(resource.RUSAGE_CHILDREN)
        await judges.close()
    theirs = _cpu(resource.RUSAGE_CHILDREN) - before
    each = [1000 * used / len(texts) for used in (own, theirs)]
    rate, median, count = len(texts) / seconds, statistics.median(waits), sum(map(bool, accepted))
    return f"{processes:>9}  {rate:>6.0f}  {each[0]:>9.2f}  {each[1]:>12.2f}  {median:>10.2f}  {count:>8}"


def _cpu(whose: int = resource.RUSAGE_SELF) -> float:
    used = resource.getrusage(whose)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1024)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args()
    translations = [text for text in load(FOLDER) if text.kind == "translation" and text.accepted]
    texts = list(itertools.islice(itertools.cycle(translations), options.jobs))
    print("processes  jobs/s  worker ms  processes ms  median (s)  accepted")  # noqa: T201
    for processes in options.processes:
        print(asyncio.run(measured(texts, processes)))  # noqa: T201


if __name__ == "__main__":
    main()
