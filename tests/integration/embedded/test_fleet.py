"""A stack with two engines: each has a worker, a socket, a log and a name; both work on one queue."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from sqlalchemy import text

from tests.support.echo_kind import Echo
from tests.support.null_stack import NullStack
from tests.support.queue_bench import eventually
from thothy_ai.admin.doctor import Level, examine
from thothy_ai.admin.engines import engines, workers
from thothy_ai.db.connect import make_engine
from thothy_ai.embedded.placement import placements
from thothy_ai.jobs import registry
from thothy_ai.producer import Producer
from thothy_ai.settings import Settings

pytestmark = pytest.mark.usefixtures("clean_environment")
TWO = placements(None, 2, ())
JOBS = 40


def test_two_engines_work_on_one_queue(home: Path) -> None:
    registry.load_extra(("tests.support.echo_kind",))
    settings = Settings.load(home=home, kinds=("tests.support.echo_kind",), worker_in_flight=4, engine_name="box")
    with NullStack(settings, latency=0.5, engines=TWO) as stack, Producer(stack.settings) as producer:
        assert {"engine-0", "engine-1", "worker-0", "worker-1"} <= set(stack.pids())
        assert sorted(path.name for path in home.glob("*.sock")) == ["engine-1.sock", "engine.sock"]
        assert all((home / "logs" / f"{name}.log").exists() for name in ("engine-0", "worker-1"))
        record = make_engine(stack.settings)
        eventually(lambda: [each.state for each in engines(record)] == ["ready", "ready"])
        names = [each.name for each in engines(record)]
        assert names == ["box-0", "box-1"]
        eventually(lambda: workers(stack.settings, names).serving == {"box-0": 1, "box-1": 1})
        checked = examine(lambda: stack.settings, ("engines",))
        assert [(each.level, each.says) for each in checked] == [
            (Level.OK, "box-0 (null) ready, box-1 (null) ready"),
        ]
        producer.enqueue_many([Echo(text=f"ok {number}") for number in range(JOBS)])
        with record.connect() as connection:
            both = text("SELECT count(DISTINCT engine_session_id) FROM attempt")

            def shared() -> bool:
                producer.enqueue(Echo(text="ok too"))  # faster than they run: there is work until both have had some
                return connection.scalar(both) == 2

            eventually(shared)
        before, killed = {each.id for each in engines(record)}, stack.pids()["engine-1"]
        assert killed is not None
        os.kill(killed, signal.SIGKILL)
        eventually(lambda: [each.state for each in engines(record) if each.id not in before] == ["ready"])
        assert [(each.name, each.state) for each in engines(record)] == [("box-0", "ready"), ("box-1", "ready")]
        record.dispose()
    assert not list(home.glob("*.sock"))


def test_a_stack_that_was_killed_does_not_hold_its_engines_names(home: Path) -> None:
    """Nothing waits until the old sessions are silent: this stack holds the home's lock."""
    settings = Settings.load(home=home)
    with NullStack(settings, services=[]) as stack:
        record = make_engine(stack.settings)
        with record.begin() as connection:
            connection.execute(
                text(
                    "INSERT INTO engine_session (id, model, device, dtype, gpus, num_blocks, block_size, started_at,"
                    " engine_name, heartbeat_at) VALUES (uuidv7(), 'm', 'd', '', 0, 0, 0, now(), 'box', now() + '1 h')"
                )
            )
            connection.execute(text("UPDATE engine_session SET heartbeat_at = now()"))
        record.dispose()
    with NullStack(settings, services=[]) as stack:
        record = make_engine(stack.settings)
        assert engines(record) == []
        record.dispose()
