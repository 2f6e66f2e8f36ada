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
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from sqlalchemy import Engine, text

from benchmarks.command_line import CommandLine, positive
from benchmarks.phases import BenchmarkError, Phases, logs_in_errors
from benchmarks.results import Table, record
from benchmarks.templated import Templated
from thothy_ai.bench.models import random_folder
from thothy_ai.bench.progress import counted
from thothy_ai.bench.shapes import SHAPES
from thothy_ai.bench.workload import read_workload
from thothy_ai.db.connect import make_engine
from thothy_ai.embedded import EmbeddedStack
from thothy_ai.embedded.placement import Placement, placements
from thothy_ai.embedded.supervisor import Patience
from thothy_ai.engine.api.errors import InvalidRequestError
from thothy_ai.engine.process.gpus import all_gpus, visible_gpus
from thothy_ai.engine.text.tokenizer import load_tokenizer
from thothy_ai.producer import EnqueueOptions, Producer
from thothy_ai.settings import Settings

WORKLOAD = Path(__file__).parent / "workloads" / "templates.json"
WORDS = ["the", "of", "and", "to", "in", "is", "was", "for", "on", "that", "with", "as", "by", "at", "from", "it", "an"]
HEADER = ("engines", "seconds", "times one engine's", "output tokens", "jobs of each", "seconds of each")
IN_FLIGHT = 1_024
WARM_UP_JOBS = 64
ONE_ATTEMPT = EnqueueOptions(max_attempts=1)
POLL_SECONDS = 0.1
STATES = text("SELECT state, count(*) FROM job WHERE finished_at IS NULL GROUP BY 1")
TIMES = text("SELECT extract(epoch FROM max(finished_at) - min(enqueued_at)) FROM job WHERE tenant = :tenant")
TOKENS = text("SELECT coalesce(sum(output_tokens), 0) FROM attempt JOIN job ON id = job_id WHERE job.tenant = :tenant")
ENDS = text(
    "SELECT outcome, attempt.reason, count(*) FROM attempt JOIN job ON id = job_id"
    " WHERE job.tenant = :tenant GROUP BY outcome, attempt.reason ORDER BY count(*) DESC"
)
SUCCEEDED = "succeeded"
BY_ENGINE = text(
    "SELECT count(*), extract(epoch FROM max(finished_at) - min(min(enqueued_at)) OVER ())"
    " FROM job WHERE tenant = :tenant GROUP BY engine_name ORDER BY engine_name"
)


@dataclass(frozen=True, slots=True)
class Result:
    """Seconds from enqueueing to the last commit, output tokens; and of each engine the jobs, and the seconds until its
    last commit.
    """

    seconds: float
    tokens: int
    shares: tuple[tuple[int, float], ...]

    def cells(self) -> tuple[str, ...]:
        """Output tokens, and what each engine did."""
        jobs = " and ".join(f"{jobs:,}" for jobs, _ in self.shares)
        return (f"{self.tokens:,}", jobs, " and ".join(f"{seconds:.2f}" for _, seconds in self.shares))


class Drain:
    """One stack with its jobs, as far as they are."""

    def __init__(self, stack: EmbeddedStack, database: Engine, phases: Phases, characters: float) -> None:
        """`characters`: of a token, on average."""
        self._stack, self._database, self._phases, self._characters = stack, database, phases, characters
        self._state = ""

    def run(self, tenant: str, jobs: int) -> Result:
        """Enqueue jobs, and wait until they have ended. Raises `BenchmarkError`."""
        with self._phases.phase(f"{tenant}: {jobs:,} jobs", lambda: self._state):
            self._state = "making the jobs"
            wanted, made = _jobs(tenant, jobs, self._characters)
            self._state = "enqueueing"
            with Producer.from_settings(self._stack.settings.model_copy(update={"tenant": tenant})) as producer:
                producer.enqueue_many([(job, ONE_ATTEMPT) for job in made])
            while self._open(jobs):
                self._stack.wait(POLL_SECONDS)  # raises when a process has ended
        return self._result(tenant, wanted)

    def _result(self, tenant: str, wanted: int) -> Result:
        """Raises `BenchmarkError` unless every job has succeeded."""
        with self._database.connect() as connection:
            ends = connection.execute(ENDS, {"tenant": tenant}).all()
            if any(outcome != SUCCEEDED for outcome, _, _ in ends):
                how = "; ".join(f"{count} {outcome} {reason or ''}".rstrip() for outcome, reason, count in ends)
                raise BenchmarkError(f"{tenant}: not every job has succeeded: {how}")
            shares = tuple((count, float(end)) for count, end in connection.execute(BY_ENGINE, {"tenant": tenant}))
            tokens, seconds = (connection.scalar(each, {"tenant": tenant}) for each in (TOKENS, TIMES))
        self._phases.say(f"{tenant}: {tokens:,} output tokens; the workload has {wanted:,}")
        return Result(float(seconds), int(tokens), shares)

    def _open(self, jobs: int) -> int:
        with self._database.connect() as connection:
            states: dict[str, int] = dict(connection.execute(STATES).all())
        left = sum(states.values())
        self._state = f"{jobs - left:,} of {jobs:,} ended, {states.get('running', 0):,} with a worker"
        return left


def measure(model: Path, engines: Sequence[Placement], jobs: int, phases: Phases, characters: float) -> Result:
    """Start a stack, warm it up and drain the jobs. Raises `BenchmarkError`. `characters`: of a token, on average.

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
            drain = Drain(stack, undo.enter_context(_database(stack.settings)), phases, characters)
            drain.run("warm-up", WARM_UP_JOBS * len(engines))
            return drain.run("measured", jobs)


def engines_here(count: int) -> tuple[Placement, ...]:
    """So many engines, on a GPU each, or on the processor of a machine that has none. Raises `InvalidRequestError`."""
    gpus = visible_gpus(all_gpus())
    if not (gpus or torch.cuda.is_available()):
        return placements(None, count, ())
    there = len(gpus) or torch.cuda.device_count()
    if there < count:
        raise InvalidRequestError(f"{count} engines need as many GPUs; {there} can be used here")
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


def _jobs(mark: str, count: int, characters: float) -> tuple[int, list[Templated]]:
    """The workload's output tokens and jobs; no prompt of one mark begins as one of another."""
    draw = random.Random(mark)
    rows = read_workload(WORKLOAD).jobs
    templates: dict[str, str] = {}
    wanted, made = 0, []
    for number in range(count):
        job = rows[number % len(rows)]
        template, body = job.parts
        prompt = templates.setdefault(template.name, f"{mark} {_words(draw, template.tokens)}")
        made.append(Templated.of(prompt, _words(draw, body.tokens), job.output_tokens, characters))
        wanted += job.output_tokens
    return wanted, made


def characters_per_token(tokenizer: Path) -> float:
    """Mean characters of a token of text, as random weights choose them."""
    loaded = load_tokenizer(tokenizer)
    texts = loaded.batch_decode([[token] for token in range(len(loaded))]) if loaded else []
    lengths = [len(text) for text in texts if text.isprintable() and "\ufffd" not in text and '"' not in text]
    return statistics.fmean(lengths or [1])


def _words(draw: random.Random, count: int) -> str:
    return " ".join(draw.choices(WORDS, k=count))


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print and record."""
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
    options = f"--shape {chosen.shape} --tokenizer {chosen.tokenizer.name} --jobs {chosen.jobs}"
    figures = [(f"{row[0]} engines, times one engine's seconds", row[2]) for row in rows[1:]]
    command = f"python -m benchmarks.fleet {options}"
    record(title, "Drains", command, figures, tables=[Table("all figures", HEADER, rows)])


def _measured(chosen: argparse.Namespace) -> list[tuple[str, ...]]:
    phases, alone = Phases(chosen.limit), 0.0
    rows: list[tuple[str, ...]] = []
    fleets = [engines_here(count) for count in dict.fromkeys((1, chosen.engines))]
    with tempfile.TemporaryDirectory(prefix="thothy-bench-") as parent:
        folder = Path(parent) / chosen.shape
        folder.mkdir()
        with phases.phase("writing the model's folder (its weights are drawn when it is loaded)"):
            model = random_folder(chosen.shape, chosen.tokenizer, folder)
        with phases.phase("measuring the tokenizer"):
            characters = characters_per_token(chosen.tokenizer)
        for engines in fleets:
            found = measure(model, engines, chosen.jobs, phases, characters)
            alone = alone or found.seconds
            rows.append((str(len(engines)), f"{found.seconds:.2f}", f"{found.seconds / alone:.3f}", *found.cells()))
            print(*rows[-1], sep=" | ", flush=True)
    return rows


if __name__ == "__main__":
    main()
