"""The same jobs through one engine and through several: what a second GPU is worth.

    python -m benchmarks.fleet --shape llama-8b --tokenizer FOLDER [--engines 2] [--jobs 1000] [--limit 900]

Each row is an embedded stack in a folder of its own, with an engine and a worker per GPU on one queue, as
`thothy up --gpus` starts it; on a machine without a GPU, engines share the processor. The jobs have the lengths of
`benchmarks/workloads/templates.json`, in its order; words stand for tokens. Progress goes to standard error. A phase
that takes more than `--limit` seconds, and a process that ends, is an error with the last lines of all logs.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch
from sqlalchemy import Engine, text

from benchmarks.command_line import CommandLine, positive
from benchmarks.phases import Phases, logs_in_errors
from benchmarks.results import table, write_section
from benchmarks.templated import MAX_TOKENS, Templated
from thothy_ai.bench.models import random_folder
from thothy_ai.bench.progress import counted
from thothy_ai.bench.shapes import SHAPES
from thothy_ai.bench.workload import read_workload
from thothy_ai.db.connect import make_engine
from thothy_ai.embedded import EmbeddedStack
from thothy_ai.embedded.placement import Placement, placements
from thothy_ai.embedded.supervisor import Patience
from thothy_ai.engine.gpus import all_gpus, visible_gpus
from thothy_ai.errors import ConfigError
from thothy_ai.producer import EnqueueOptions, Producer
from thothy_ai.settings import Settings

WORKLOAD = Path(__file__).parent / "workloads" / "templates.json"
WORDS = ["the", "of", "and", "to", "in", "is", "was", "for", "on", "that", "with", "as", "by", "at", "from", "it", "an"]
IN_FLIGHT = 1_024
WARM_UP_JOBS = 64
ONE_ATTEMPT = EnqueueOptions(max_attempts=1)
POLL_SECONDS = 0.1
STATES = text("SELECT state, count(*) FROM job WHERE finished_at IS NULL GROUP BY 1")
TIMES = text("SELECT extract(epoch FROM max(finished_at) - min(enqueued_at)) FROM job WHERE tenant = :tenant")
BY_ENGINE = text("SELECT coalesce(engine_name, '?'), count(*) FROM job WHERE tenant = :tenant GROUP BY 1 ORDER BY 1")


class Drain:
    """One stack with its jobs, as far as they are."""

    def __init__(self, stack: EmbeddedStack, database: Engine, phases: Phases) -> None:
        self._stack, self._database, self._phases = stack, database, phases
        self._state = ""

    def run(self, tenant: str, jobs: int) -> tuple[float, list[int]]:
        """Seconds from enqueueing to the last commit, and the jobs of each engine. Raises `ThothyError`."""
        with self._phases.phase(f"{tenant}: {jobs:,} jobs", lambda: self._state):
            self._state = "making the jobs"
            made = [(job, ONE_ATTEMPT) for job in _jobs(tenant, jobs)]
            self._state = "enqueueing"
            with Producer.from_settings(self._stack.settings.model_copy(update={"tenant": tenant})) as producer:
                producer.enqueue_many(made)
            while self._open(jobs):
                self._stack.wait(POLL_SECONDS)  # raises when a process has ended
        with self._database.connect() as connection:
            shares = [count for _, count in connection.execute(BY_ENGINE, {"tenant": tenant})]
            return float(connection.scalar(TIMES, {"tenant": tenant})), shares

    def _open(self, jobs: int) -> int:
        with self._database.connect() as connection:
            states: dict[str, int] = dict(connection.execute(STATES).tuples().all())
        left = sum(states.values())
        self._state = f"{jobs - left:,} of {jobs:,} ended, {states.get('running', 0):,} with a worker"
        return left


def measure(model: Path, engines: Sequence[Placement], jobs: int, phases: Phases) -> tuple[float, list[int]]:
    """Seconds from enqueueing to the last commit, and the jobs of each engine. Raises `ThothyError`.

    No process is restarted: one that ends has spoilt the measurement.
    """
    with tempfile.TemporaryDirectory(prefix="thothy-bench-") as folder:
        home = Path(folder)
        home.chmod(0o755)  # servers that run as the user `nobody` must be able to traverse it
        settings = Settings.load(
            home=home,
            model=model,
            kinds=("benchmarks.templated",),
            log_level="WARNING",
            worker_in_flight=IN_FLIGHT,
        )
        stack = EmbeddedStack(settings, engines=engines, patience=Patience(failures=1))
        with logs_in_errors(home), ExitStack() as undo:
            with phases.phase(f"starting {_described(engines)}"):
                undo.enter_context(stack)
            drain = Drain(stack, undo.enter_context(_database(stack.settings)), phases)
            drain.run("warm-up", WARM_UP_JOBS * len(engines))
            return drain.run("measured", jobs)


def engines_here(count: int) -> tuple[Placement, ...]:
    """So many engines, on a GPU each, or on the processor of a machine that has none. Raises `ConfigError`."""
    gpus = visible_gpus(all_gpus())
    if not (gpus or torch.cuda.is_available()):
        return placements(None, count, ())
    there = len(gpus) or torch.cuda.device_count()
    if there < count:
        raise ConfigError(f"{count} engines need as many GPUs; {there} can be used here")
    if gpus:
        return placements(",".join(str(gpu.index) for gpu in gpus[:count]), None, gpus)
    return tuple(Placement(str(number), ("--device", f"cuda:{number}")) for number in range(count))  # without NVML


def _described(engines: Sequence[Placement]) -> str:
    return f"{counted(len(engines), 'engine')} ({'; '.join(' '.join(each.arguments) for each in engines)})"


@contextmanager
def _database(settings: Settings) -> Iterator[Engine]:
    database = make_engine(settings, application="benchmark", pool_size=1)
    try:
        yield database
    finally:
        database.dispose()


def _jobs(mark: str, count: int) -> list[Templated]:
    """The workload's jobs; no prompt of one mark begins as one of another."""
    draw = random.Random(mark)
    rows = read_workload(WORKLOAD).jobs
    templates: dict[str, str] = {}
    made = []
    for number in range(count):
        job = rows[number % len(rows)]
        template, body = job.parts
        prompt = templates.setdefault(template.name, f"{mark} {_words(draw, template.tokens)}")
        made.append(
            Templated(template=prompt, text=_words(draw, body.tokens), tokens=min(job.output_tokens, MAX_TOKENS))
        )
    return made


def _words(draw: random.Random, count: int) -> str:
    return " ".join(draw.choices(WORDS, k=count))


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print, and write RESULTS.md."""
    line = CommandLine("fleet", __doc__)
    line.add_argument("--shape", default="llama-8b", choices=sorted(SHAPES))
    line.add_argument("--tokenizer", type=Path, required=True)
    line.add_argument("--engines", type=positive(int), default=2)
    line.add_argument("--jobs", type=positive(int), default=1_000)
    line.add_argument("--limit", type=positive(float), default=900.0, help="seconds that a phase may take")
    chosen = line.parse_args(argv)
    with line.checked():
        rows = _measured(chosen)
    title = f"Fleet: {chosen.shape}, {chosen.jobs:,} jobs of templates through the queue"
    command = f"python -m benchmarks.fleet --shape {chosen.shape} --tokenizer {chosen.tokenizer.name}"
    write_section(title, command, table(("engines", "seconds", "times one engine's", "jobs of each"), rows))


def _measured(chosen: argparse.Namespace) -> list[tuple[str, ...]]:
    phases, alone = Phases(chosen.limit), 0.0
    rows: list[tuple[str, ...]] = []
    fleets = [engines_here(count) for count in dict.fromkeys((1, chosen.engines))]
    with tempfile.TemporaryDirectory(prefix="thothy-bench-") as parent:
        folder = Path(parent) / chosen.shape
        folder.mkdir()
        with phases.phase("writing the model's folder (its weights are drawn when it is loaded)"):
            model = random_folder(chosen.shape, chosen.tokenizer, folder)
        for engines in fleets:
            seconds, shares = measure(model, engines, chosen.jobs, phases)
            alone = alone or seconds
            divided = " and ".join(f"{share:,}" for share in shares)
            rows.append((str(len(engines)), f"{seconds:.2f}", f"{seconds / alone:.3f}", divided))
            print(*rows[-1], sep=" | ", flush=True)
    return rows


if __name__ == "__main__":
    main()
