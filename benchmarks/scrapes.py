"""What metrics cost: a scrape of the dispatcher with a million jobs, and the engine's histograms per step and request.

python -m benchmarks.scrapes        prints a table
"""

from __future__ import annotations

import argparse
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from statistics import median

from prometheus_client import CollectorRegistry, start_http_server

from benchmarks.backlog import fill, servers
from benchmarks.results import table
from thothy_ai.db.connect import make_engine
from thothy_ai.engine.api import EngineStats, SamplingParams
from thothy_ai.engine.api.core import CoreRequest
from thothy_ai.engine.core.timing import Timing
from thothy_ai.engine.scheduling.sequence import Sequence
from thothy_ai.engine.wire.codec import pack, unpack
from thothy_ai.queue.collector import QueueCollector
from thothy_ai.settings import Settings

JOBS, SCRAPES = 1_000_000, 50
REPEATS = 20_000
SEQUENCES = 1024
HEADS = ("measurement", "result", "target")


def main() -> None:
    """Run all measurements and print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=JOBS)
    print(table(HEADS, [*_engine_rows(), *_scrape_rows(parser.parse_args().jobs)]))


def _scrape_rows(jobs: int) -> Iterator[tuple[str, str, str]]:
    with servers() as (settings, engine):
        fill(engine, jobs)
        collector = QueueCollector(make_engine(settings, application="metrics", pool_size=1))
        began = time.perf_counter()
        pause = collector.read()
        took = time.perf_counter() - began
        yield f"a reading, {jobs:,} jobs queued", f"{1e3 * took:.0f} ms, the next after {pause:.0f} s", "-"
        seconds = _scraped(collector, settings)
    text = f"{SCRAPES} scrapes over HTTP beside readings, {jobs:,} jobs queued"
    yield text, f"median {1e3 * median(seconds):.1f} ms, slowest {1e3 * max(seconds):.1f} ms", "below 50 ms"


def _scraped(collector: QueueCollector, settings: Settings) -> list[float]:
    """Seconds of each scrape, while a thread reads again and again."""
    registry, stopped = CollectorRegistry(), threading.Event()
    registry.register(collector)
    server, thread = start_http_server(0, settings.metrics_host, registry)
    reading = threading.Thread(target=lambda: [collector.read() for _ in iter(stopped.is_set, True)])
    reading.start()
    try:
        return [_timed(lambda: _get(server.server_port)) for _ in range(SCRAPES)]
    finally:
        stopped.set()
        reading.join()
        server.shutdown()
        thread.join()


def _get(port: int) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
        page.read()


def _timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _engine_rows() -> Iterator[tuple[str, str, str]]:
    timing = Timing()
    sequences = [_sequence(number) for number in range(SEQUENCES)]

    def requests() -> None:
        timing.admitted(sequences)
        for sequence in sequences:
            sequence.reported += 1
        timing.reported()
        for sequence in sequences:
            sequence.reported += 1
            timing.ended(sequence)

    per_request = min(_timed(requests) for _ in range(20)) / SEQUENCES
    for sequence in sequences:
        sequence.reported = sequence.prompt_tokens
    timing.admitted(sequences[:8])  # that wait for their first token

    def steps() -> None:
        for _ in range(REPEATS):
            timing.step(0.015, SEQUENCES)
            timing.reported()

    def with_histograms() -> None:
        unpack(EngineStats, pack(EngineStats(timing=timing.stats)))

    def without() -> None:
        unpack(EngineStats, pack(EngineStats()))

    per_step = min(_timed(steps) for _ in range(5)) / REPEATS
    sent, sent_before = (min(_timed(each) for _ in range(REPEATS)) for each in (with_histograms, without))
    yield "histograms, per request", f"{1e6 * per_request:.1f} µs", "below 1 % of a request"
    yield "histograms, per step", f"{1e6 * per_step:.1f} µs", "below 1 % of a step"
    yield "sending them to the frontend, per step", f"{1e6 * (sent - sent_before):.1f} µs", "below 1 % of a step"


def _sequence(number: int) -> Sequence:
    return Sequence(CoreRequest(str(number), (1, 2, 3), SamplingParams(max_tokens=9), submitted_at=1.0), 9)


if __name__ == "__main__":
    main()
