"""The same jobs through one engine and through several: what a second GPU is worth.

    python -m benchmarks.fleet --shape llama-8b --tokenizer FOLDER [--engines 2] [--jobs 1000]

Each row is an embedded stack in a folder of its own, with an engine and a worker per GPU on one queue, as
`thothy up --gpus` starts it; on a machine without a GPU, engines share the processor. The jobs have the lengths of
`benchmarks/workloads/templates.json`, in its order; words stand for tokens.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Engine, TextClause, text

from benchmarks.results import table, write_section
from benchmarks.templated import MAX_TOKENS, Templated
from thothy_ai.bench.models import random_folder
from thothy_ai.bench.workload import read_workload
from thothy_ai.db.connect import make_engine
from thothy_ai.embedded import EmbeddedStack
from thothy_ai.embedded.placement import Placement, placements
from thothy_ai.engine.gpus import all_gpus
from thothy_ai.producer import EnqueueOptions, Producer
from thothy_ai.settings import Settings

WORKLOAD = Path(__file__).parent / "workloads" / "templates.json"
WORDS = ["the", "of", "and", "to", "in", "is", "was", "for", "on", "that", "with", "as", "by", "at", "from", "it", "an"]
IN_FLIGHT = 1_024
WARM_UP_JOBS = 64
ONE_ATTEMPT = EnqueueOptions(max_attempts=1)
POLL_SECONDS = 0.1
OPEN = text("SELECT count(*) FROM job WHERE finished_at IS NULL")
TIMES = text("SELECT extract(epoch FROM max(finished_at) - min(enqueued_at)) FROM job WHERE tenant = :tenant")
BY_ENGINE = text("SELECT coalesce(engine_name, '?'), count(*) FROM job WHERE tenant = :tenant GROUP BY 1 ORDER BY 1")


def measure(model: Path, engines: int, jobs: int) -> tuple[float, list[int]]:
    """Seconds from enqueueing to the last commit, and the jobs of each engine."""
    chosen = _placements(engines)
    with tempfile.TemporaryDirectory(prefix="thothy-bench-") as home:
        Path(home).chmod(0o755)  # servers that run as the user `nobody` must be able to traverse it
        settings = Settings.load(
            home=Path(home),
            model=model,
            kinds=("benchmarks.templated",),
            log_level="WARNING",
            worker_in_flight=IN_FLIGHT,
        )
        with EmbeddedStack(settings, engines=chosen) as stack, _database(stack.settings) as database:
            _drain(stack.settings, database, "warm-up", WARM_UP_JOBS * engines)
            return _drain(stack.settings, database, "measured", jobs)


def _placements(engines: int) -> tuple[Placement, ...]:
    gpus = all_gpus()
    if gpus:
        return placements(",".join(str(gpu.index) for gpu in gpus[:engines]), None, gpus)
    return placements(None, engines, ())


@contextmanager
def _database(settings: Settings) -> Iterator[Engine]:
    database = make_engine(settings, application="benchmark", pool_size=1)
    try:
        yield database
    finally:
        database.dispose()


def _drain(settings: Settings, database: Engine, tenant: str, jobs: int) -> tuple[float, list[int]]:
    with Producer.from_settings(settings.model_copy(update={"tenant": tenant})) as producer:
        producer.enqueue_many([(job, ONE_ATTEMPT) for job in _jobs(tenant, jobs)])
    while _scalar(database, OPEN):
        time.sleep(POLL_SECONDS)
    with database.connect() as connection:
        shares = [count for _, count in connection.execute(BY_ENGINE, {"tenant": tenant})]
    return _scalar(database, TIMES, tenant=tenant), shares


def _scalar(database: Engine, statement: TextClause, **values: object) -> float:
    with database.connect() as connection:
        return float(connection.scalar(statement, values) or 0)


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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="llama-8b")
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--engines", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=1_000)
    chosen = parser.parse_args(argv)
    rows, alone = [], 0.0
    with tempfile.TemporaryDirectory(prefix="thothy-bench-") as parent:
        folder = Path(parent) / chosen.shape
        folder.mkdir()
        model = random_folder(chosen.shape, chosen.tokenizer, folder)
        for engines in (1, chosen.engines):
            seconds, shares = measure(model, engines, chosen.jobs)
            alone = alone or seconds
            divided = " and ".join(f"{share:,}" for share in shares)
            rows.append((str(engines), f"{seconds:.2f}", f"{seconds / alone:.3f}", divided))
            print(*rows[-1], sep=" | ", flush=True)
    title = f"Fleet: {chosen.shape}, {chosen.jobs:,} jobs of templates through the queue"
    command = f"python -m benchmarks.fleet --shape {chosen.shape} --tokenizer {chosen.tokenizer.name}"
    write_section(title, command, table(("engines", "seconds", "times one engine's", "jobs of each"), rows))


if __name__ == "__main__":
    main()
