"""What attempts are billed for adds up to what engines were busy for, through SIGKILLs of engines and a worker."""

from __future__ import annotations

import signal
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.support.queue_bench import Queue, eventually
from tests.support.worker_fleet import WorkerFleet, enqueue
from thothy_ai.admin.report.check import check_bill
from thothy_ai.admin.report.drain_report import drain_report
from thothy_ai.queue.books import close_hours, settle_sessions

JOBS = 320
ANSWER_SECONDS = 3.0
HOUR = timedelta(hours=1)


def more(queue: Queue) -> None:
    """Enqueue jobs, and wait until some run."""
    enqueue(queue, JOBS // 4)
    eventually(lambda: queue.count("running"))


def kill_at_work(queue: Queue, process: subprocess.Popen[bytes], engine: str) -> None:
    """Enqueue jobs, and kill an engine or its worker when the engine has jobs that it cannot have answered."""
    enqueue(queue, JOBS // 4)
    begun = (
        "SELECT FROM job WHERE state = 'running' AND engine_name = :name"
        f" AND started_at > clock_timestamp() - interval '{ANSWER_SECONDS} s'"
    )

    def is_caught() -> bool:
        if not queue.rows(begun, name=engine):
            return False
        process.send_signal(signal.SIGSTOP)  # a busy machine may have been late: ask again once nothing can end
        caught = bool(queue.rows(begun, name=engine))
        process.send_signal(signal.SIGKILL if caught else signal.SIGCONT)
        return caught

    eventually(is_caught)


def staffed(queue: Queue, *names: str) -> bool:
    """Whether these engines are ready, and have their workers: each gets a share of what is enqueued now."""
    query = "SELECT engine_name FROM engine_session WHERE state = 'ready' AND worker_heartbeat_at IS NOT NULL"
    return {row.engine_name for row in queue.rows(query)} >= set(names)


def known(queue: Queue) -> list[str]:
    """Engine sessions that were busy, as their workers have recorded."""
    return [str(row.id) for row in queue.rows("SELECT id FROM engine_session WHERE busy_seconds > 0")]


def test_seconds_are_conserved_through_crashes_of_two_engines(queue: Queue, fleet: WorkerFleet, tmp_path: Path) -> None:
    urls = [f"unix://{tmp_path}/{name}.sock" for name in ("a", "b")]
    engines = [fleet.null_engine(url, ANSWER_SECONDS, engine_name=Path(url).stem) for url in urls]
    workers = [fleet.sharing_worker(url) for url in urls]
    eventually(lambda: staffed(queue, "a", "b"))
    more(queue)
    eventually(lambda: len(known(queue)) == 2)
    kill_at_work(queue, engines[0], "a")
    engines.append(fleet.null_engine(urls[0], ANSWER_SECONDS, engine_name="a2"))
    eventually(lambda: staffed(queue, "a2"))
    more(queue)
    eventually(lambda: len(known(queue)) == 3)
    kill_at_work(queue, workers[1], "b")
    engines[1].kill()
    engines.append(fleet.null_engine(urls[1], ANSWER_SECONDS, engine_name="b2"))
    fleet.sharing_worker(urls[1])
    eventually(lambda: not queue.open())
    for engine in engines:
        engine.terminate()
    # A heartbeat would open a session again, which is then not settled.
    eventually(lambda: not queue.rows("SELECT FROM engine_session WHERE ended_at IS NULL"))
    # As an engine's own side reports it, which sees more of what is lost with the engine than its workers do. On a busy
    # machine the reaper has settled some sessions by now.
    queue.rows(
        "UPDATE engine_session SET busy_seconds = busy_seconds * 1.1 + 0.5, settled_at = NULL"
        " WHERE EXISTS (SELECT FROM attempt WHERE outcome = 'lost' AND engine_session_id = engine_session.id)"
    )
    before = [tuple(row) for row in queue.rows("SELECT id, busy_seconds FROM engine_session ORDER BY id")]
    queue.ask("queue/end_sessions", silence_seconds=-1)
    with queue.engine.begin() as connection:
        settle_sessions(connection)
    now = datetime.now(UTC)
    checked = check_bill(queue.engine, now - HOUR, now + HOUR)
    assert len(before) >= 3
    assert queue.rows("SELECT 1 FROM attempt WHERE outcome IN ('lost', 'released')")
    assert checked.billed_seconds > JOBS * ANSWER_SECONDS * 0.99
    assert checked.findings == ()
    assert abs(checked.busy_seconds - checked.billed_seconds) <= 0.01 * checked.busy_seconds

    report = drain_report(queue.engine, now - HOUR, now + HOUR)
    assert abs(report.bill.total.usage.busy_seconds - checked.busy_seconds) <= 0.01 * checked.busy_seconds
    while close_hours(queue.engine, open_hours=-1):
        pass
    again = drain_report(queue.engine, now - HOUR, now + HOUR)
    assert abs(again.total.busy_seconds - report.total.busy_seconds) < 1e-6
    assert check_bill(queue.engine, now - HOUR, now + HOUR).findings == ()
