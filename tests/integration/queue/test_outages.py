"""Servers that die amid a drain and come back: every process waits, none dies, nothing is lost or done twice."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.patience import PATIENCE
from tests.support.queue_bench import QUICK, Queue, eventually, runner_bench
from tests.support.server_folder import server_folder
from tests.support.worker_fleet import WorkerFleet, check_each_once, enqueue
from thothy_ai.db.connect import make_engine
from thothy_ai.db.migration import migrate
from thothy_ai.embedded import Postgres, Valkey
from thothy_ai.producer import Producer
from thothy_ai.queue.reaper import Reaper
from thothy_ai.settings import Settings

if TYPE_CHECKING:
    from conftest import Services

LEASE = 3


def test_postgres_and_redis_killed_amid_a_drain(clean_environment: None, tmp_path: Path) -> None:
    with ExitStack() as stack:
        folder = stack.enter_context(server_folder(ignore_cleanup_errors=True))
        postgres = stack.enter_context(Postgres(folder / "postgres"))
        valkey = stack.enter_context(Valkey(folder / "valkey", durable=False))
        settings = Settings.load(home=folder, database_url=postgres.url, redis_url=valkey.url, **QUICK)
        migrate(settings)
        engine = make_engine(settings)
        stack.callback(engine.dispose)
        queue = Queue(settings, engine, stack.enter_context(Producer(settings)))
        fleet = WorkerFleet(queue, tmp_path / "workers.log", stack)

        enqueue(queue, 150)
        worker = fleet.worker(0.3)
        eventually(lambda: queue.count("succeeded") > 10)
        valkey.process.kill()
        valkey.process.start()
        succeeded = queue.count("succeeded")
        enqueue(queue, 150)  # the others may have ended meanwhile
        eventually(lambda: queue.count("succeeded") > succeeded + 20)
        postgres.process.kill()
        postgres.process.start()
        engine.dispose()
        fleet.drained()
        check_each_once(queue, 300)
        assert worker.poll() is None


def test_an_outage_longer_than_a_lease_counts_as_no_failure(queue: Queue, services: Services) -> None:
    name = queue.engine.url.database
    reaper = Reaper(queue.settings.model_copy(update={"lease_seconds": PATIENCE}))  # for so long it takes none back
    thread = threading.Thread(target=reaper.run)
    with runner_bench(queue, lease_seconds=LEASE) as bench:
        [job_id] = bench.work("hang on")
        eventually(lambda: queue.job(job_id).state == "running")
        thread.start()
        try:
            lease_until = queue.job(job_id).lease_until
            services.postgres.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
            services.postgres.execute(
                f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
            )
            time.sleep(2.5 * LEASE)  # how long the outage lasts: more than two leases
            services.postgres.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
            eventually(lambda: queue.job(job_id).lease_until > lease_until + timedelta(seconds=2.5 * LEASE))
        finally:
            reaper.stop()
            thread.join(PATIENCE)
        assert (queue.job(job_id).state, queue.job(job_id).failures, queue.job(job_id).attempt) == ("running", 0, 1)
