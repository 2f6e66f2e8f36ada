"""Any client of Redis can push anything: it is counted and dropped, and runs nothing that Postgres did not dispatch."""

from __future__ import annotations

import base64
import json
import pickle
import urllib.request
from pathlib import Path
from uuid import uuid4

import pytest
from redis import Redis

from tests.support.patience import PATIENCE
from tests.support.queue_bench import Queue, eventually
from tests.support.worker_fleet import KEY, UNACKED, WorkerFleet
from thothy_ai.embedded.process import free_port
from thothy_ai.queue.broker import Broker
from thothy_ai.queue.hints import Hint


class Bomb:
    """Unpickling it makes a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[object, ...]:
        return open, (str(self.file), "w")


@pytest.fixture
def honest(queue: Queue, redis: Redis) -> dict[str, object]:
    """A message as the dispatcher makes it."""
    publish(queue, Hint(uuid4(), 1))
    found: dict[str, object] = json.loads(redis.rpop(KEY))
    return found


def publish(queue: Queue, *hints: Hint) -> None:
    broker = Broker(queue.settings)
    broker.publish(hints, engine="first")
    broker.close()


def body(*arguments: object) -> str:
    return base64.b64encode(json.dumps([arguments, {}, {}]).encode()).decode()


def figures(port: int, name: str) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as answer:
        lines = [line for line in answer.read().decode().splitlines() if line.startswith(name)]
    return {line.rpartition(" ")[0].removeprefix(name): float(line.rpartition(" ")[2]) for line in lines}


def test_malformed_hints_are_counted_and_dropped(
    queue: Queue, redis: Redis, fleet: WorkerFleet, honest: dict[str, object], tmp_path: Path
) -> None:
    port = free_port()
    worker = fleet.worker(metrics_port=port)
    headers, properties = honest["headers"], honest["properties"]
    assert isinstance(headers, dict)
    assert isinstance(properties, dict)
    bomb = tmp_path / "exploded"
    pickled = base64.b64encode(pickle.dumps(Bomb(bomb))).decode()
    hostile: dict[str, list[dict[str, object] | bytes]] = {
        "unknown_task": [honest | {"headers": headers | {"task": "os.system"}}],
        "unknown_format": [honest | {"headers": {}, "body": body("x")}],
        "invalid_task": [
            honest | {"headers": headers | {"expires": "x"}},
            *[honest | {"headers": headers | {"eta": "2099-01-01T00:00:00+00:00"}}] * 20,
            honest | {"content-type": "application/x-python-serialize", "body": pickled},
        ],
        "malformed": [
            honest | {"body": body("'; DROP TABLE job; --", 1)},
            honest | {"body": body(str(uuid4()), "1")},
            honest | {"body": body(str(uuid4()), 2**70)},
            honest | {"body": body("x" * 10_000_000, 1)},
        ],
        "unreadable": [
            b"\x80\x04.",
            b"{",
            b"[" * 100_000,
            b'{"__type__": "decimal", "__value__": "x"}',
            honest | {"headers": {"task": headers["task"]}},
            honest | {"properties": None},
            honest | {"properties": properties | {"delivery_tag": None}},
            honest | {"properties": properties, "body": {"__type__": "decimal", "__value__": "x"}},
        ],
    }
    for messages in hostile.values():
        for message in messages:
            redis.lpush(KEY, message if isinstance(message, bytes) else json.dumps(message).encode())
    wanted = {f'{{reason="{reason}"}}': float(len(messages)) for reason, messages in hostile.items()}
    eventually(lambda: redis.llen(KEY) == 0 and redis.hlen(UNACKED) == 0 and worker.poll() is None)
    eventually(lambda: figures(port, "thothy_messages_dropped_total") == wanted)
    assert not bomb.exists()
    assert fleet.log.stat().st_size < 20_000, "untrusted text fills the log"
    queue.enqueue("ok")
    fleet.drained()
    assert queue.count("succeeded") == 1


def test_reading_the_list_leaves_out_what_is_not_a_hint(queue: Queue, redis: Redis) -> None:
    ours = Hint(uuid4(), 1)
    publish(queue, ours)
    redis.lpush(KEY, b"[" * 100_000, b"{", b"1", b'{"headers": {"id": 1}}')
    broker = Broker(queue.settings)
    assert broker.waiting("first") == ({ours}, set())
    broker.close()


def test_a_hint_that_postgres_has_not_given_out_runs_nothing(queue: Queue, redis: Redis, fleet: WorkerFleet) -> None:
    """Unknown jobs, another tenant's, finished ones, and jobs that may not run yet."""
    port = free_port()
    worker = fleet.worker(metrics_port=port)
    [finished] = queue.enqueue("ok")
    fleet.drained()
    queue.rows("UPDATE queue_control SET paused = true")
    ours, theirs = queue.enqueue("ok ours", "ok theirs")
    queue.rows("UPDATE job SET tenant = 'them' WHERE id = :id", id=theirs)
    forged = [Hint(uuid4(), 1), Hint(finished, 1), Hint(finished, 2), Hint(ours, 1), Hint(theirs, 1), Hint(theirs, 2)]
    publish(queue, *forged)
    eventually(lambda: figures(port, "thothy_worker_claims_stale_total").get("", 0) >= len(forged))
    eventually(lambda: redis.hlen(UNACKED) == 0)
    assert (queue.job(ours).state, queue.job(theirs).state, queue.job(finished).attempt) == ("queued", "queued", 1)
    assert worker.poll() is None
    assert queue.outcomes(theirs) == []
