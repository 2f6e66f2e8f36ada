"""Servers that die amid a drain and come back: everybody waits, nobody dies, nothing is lost or doubled."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from crowd import Crowd, check_each_once, enqueue
from queue_bench import QUICK, Queue, eventually

from thothy_ai.db.connect import make_engine
from thothy_ai.db.schema import migrate
from thothy_ai.embedded import Postgres, Valkey
from thothy_ai.producer import Producer
from thothy_ai.settings import Settings


def test_postgres_and_redis_killed_amid_a_drain(clean_environment: None, tmp_path: Path) -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="thothy-test-", ignore_cleanup_errors=True)))
        folder.chmod(0o755)  # Postgres may have to run as nobody
        postgres = stack.enter_context(Postgres(folder / "postgres"))
        valkey = stack.enter_context(Valkey(folder / "valkey", durable=False))
        settings = Settings.load(home=folder, database_url=postgres.url, redis_url=valkey.url, **QUICK)
        migrate(settings)
        engine = make_engine(settings)
        stack.callback(engine.dispose)
        queue = Queue(settings, engine, stack.enter_context(Producer(settings)))
        crowd = Crowd(queue, tmp_path / "workers.log", stack)

        enqueue(queue, 150)
        worker = crowd.worker(0.3)
        eventually(lambda: queue.count("succeeded") > 10)
        valkey.process.kill()
        valkey.process.start()
        succeeded = queue.count("succeeded")
        eventually(lambda: queue.count("succeeded") > succeeded + 20)
        postgres.process.kill()
        postgres.process.start()
        engine.dispose()
        crowd.drained()
        check_each_once(queue, 150)
        assert worker.poll() is None
