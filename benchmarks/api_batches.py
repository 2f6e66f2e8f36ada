"""What the Batch API costs beside `enqueue_many`: the same requests, until the last answer is there.

python -m benchmarks.api_batches        prints a table, and records it

Both go through the same stack, whose engine has no model and takes its time, in turns. A batch takes from its upload to
its last state: its lines are checked, enqueued and run, and its answers are written to a file.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from openai import OpenAI

from benchmarks.command_line import CommandLine, positive
from benchmarks.results import record, table
from thothy_ai.embedded import EmbeddedStack
from thothy_ai.embedded.placement import Placement
from thothy_ai.embedded.process import free_port
from thothy_ai.embedded.stack import DOOR, SERVICES
from thothy_ai.jobs.kinds.chat import ROUTE, Chat
from thothy_ai.producer import Producer
from thothy_ai.settings import Settings

WARM_UP = 64
POLL_SECONDS = 0.1
HEADS = ("measurement", "result", "target")
COMMAND = "python -m benchmarks.api_batches"


def bodies(model: str, jobs: int, name: str) -> list[dict[str, Any]]:
    """Requests, of which no two rounds have the same."""
    return [
        {"model": model, "messages": [{"role": "user", "content": f"{name} {number}"}], "max_completion_tokens": 40}
        for number in range(jobs)
    ]


def by_producer(producer: Producer, given: list[dict[str, Any]]) -> float:
    """Seconds until all are answered."""
    began = time.monotonic()
    ended = producer.wait_all(producer.enqueue_many([Chat.model_validate(body) for body in given]))
    took = time.monotonic() - began
    assert all(each.artifact for each in ended)
    return took


def by_batch(client: OpenAI, given: list[dict[str, Any]]) -> float:
    """Seconds until all are answered, in a file."""
    lines = [
        {"custom_id": str(number), "method": "POST", "url": ROUTE, "body": body} for number, body in enumerate(given)
    ]
    content = "\n".join(map(json.dumps, lines)).encode()
    began = time.monotonic()
    file = client.files.create(file=("input.jsonl", content), purpose="batch")
    batch = client.batches.create(input_file_id=file.id, endpoint=ROUTE, completion_window="24h")
    while batch.status not in {"completed", "failed", "expired", "cancelled"}:
        time.sleep(POLL_SECONDS)
        batch = client.batches.retrieve(batch.id)
    took = time.monotonic() - began
    assert batch.request_counts is not None
    assert batch.request_counts.completed == len(given), batch
    return took


def main() -> None:
    """Run both in turns, print and record them."""
    parser = CommandLine("api_batches", __doc__)
    parser.add_argument("--jobs", type=positive(int), default=2_000)
    parser.add_argument("--rounds", type=positive(int), default=3)
    parser.add_argument("--latency", type=positive(float), default=0.5, help="seconds of an answer")
    options = parser.parse_args()
    engine = Placement(arguments=("--null-latency", str(options.latency)))
    direct, batches = [], []
    with tempfile.TemporaryDirectory(prefix="thothy-bench-") as folder:
        Path(folder).chmod(0o755)  # servers that run as the user `nobody` must be able to traverse it
        settings = Settings.load(home=Path(folder), log_level="WARNING", http_port=free_port())
        with (
            EmbeddedStack(settings, services=(*SERVICES, DOOR), null=True, engines=(engine,)) as stack,
            Producer.from_settings(stack.settings) as producer,
        ):
            address = f"http://127.0.0.1:{settings.http_port}/v1"
            with OpenAI(base_url=address, api_key="any") as client:
                while not (models := client.models.list().data):
                    time.sleep(POLL_SECONDS)
                by_producer(producer, bodies(models[0].id, WARM_UP, "warm"))
                by_batch(client, bodies(models[0].id, WARM_UP, "warm too"))
                for turn in range(options.rounds):
                    direct.append(by_producer(producer, bodies(models[0].id, options.jobs, f"direct {turn}")))
                    batches.append(by_batch(client, bodies(models[0].id, options.jobs, f"batch {turn}")))
    first, second = statistics.median(direct), statistics.median(batches)
    rows = [
        (f"{options.jobs:,} jobs through enqueue_many, until all are answered", f"{first:.2f} s", ""),
        ("the same through /v1/batches, until the batch is completed", f"{second:.2f} s", ""),
        ("the batch takes longer by", f"{second / first - 1:+.1%}", "5%"),
    ]
    record("The Batch API, CPU", "Service", COMMAND, rows)
    print(table(HEADS, rows))


if __name__ == "__main__":
    main()
