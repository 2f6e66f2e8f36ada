"""What open consoles cost, and how long a page of jobs takes among millions.

python -m benchmarks.console_load                    viewers of 100,000 jobs that change 500 times a second
python -m benchmarks.console_load --pages 10000000   pages of jobs by each filter, among so many; both record
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

import httpx
from sqlalchemy import Engine, text

from benchmarks.backlog import fill, servers
from benchmarks.results import Table, record, table
from tests.support.browser import browser
from tests.support.fetched import fetched
from thothy_ai.admin.jobs import JobList
from thothy_ai.db.connect import make_engine
from thothy_ai.db.console_links import make_link
from thothy_ai.db.statements import statement
from thothy_ai.embedded.process import free_ports
from thothy_ai.settings import Settings

JOBS, CHANGES = 100_000, 500  # and changes per second
VIEWERS = 50
HEADS = ("measurement", "result", "target")
SECONDS, SETTLE = 20.0, 5.0
DAY = timedelta(days=1)
TICKS = os.sysconf("SC_CLK_TCK")
ROOT = Path(__file__).parents[1]
CHANGE = text("""
    WITH part AS (SELECT id FROM job WHERE state = 'queued' ORDER BY id DESC LIMIT :jobs)
    UPDATE job SET state = 'cancelled', finished_at = now() FROM part WHERE job.id = part.id
""")
BACK = text("""
    WITH part AS (SELECT id FROM job WHERE finished_at IS NOT NULL ORDER BY finished_at DESC LIMIT :jobs)
    UPDATE job SET state = 'queued', finished_at = NULL FROM part WHERE job.id = part.id
""")
TRANSACTIONS = text("SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()")
# Of two tenants, three kinds and two models; a day's jobs per 200,000, and most have ended.
MILLIONS = """
    INSERT INTO job (id, tenant, kind, state, priority, not_before, enqueued_at, source_key, idempotency_key,
                     request_digest, max_attempts, model, reason, finished_at, parent_id, batch_id)
    SELECT CAST(lpad(to_hex(CAST(1000 * extract(epoch FROM at) AS bigint)), 12, '0') || '7000' || '8000'
                || lpad(to_hex(n), 12, '0') AS uuid),
           CASE WHEN n % 1000 = 0 THEN 'small' ELSE 'default' END, (ARRAY['hook', 'summary', 'translation'])[n % 3 + 1],
           CASE WHEN n > :rows - 20000 THEN 'queued' WHEN n % 100 = 0 THEN 'dead' ELSE 'succeeded' END, 0, at, at,
           md5((n / 10)::text), 'key-' || n, 'd', 3, CASE WHEN n % 2 = 0 THEN 'm' END,
           CASE WHEN n <= :rows - 20000 AND n % 100 = 0 THEN CASE WHEN n = 100 THEN 'rare' ELSE 'too_long' END END,
           CASE WHEN n <= :rows - 20000 THEN at + interval '1 minute' END, NULL, NULL
    FROM generate_series(CAST(:first AS int), CAST(:last AS int)) AS n,
        LATERAL (SELECT now() - (:rows - n) * interval '1 day' / 200000 AS at) AS times
"""
CHUNK = 250_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, metavar="JOBS", help="measure pages among so many jobs")
    if (jobs := parser.parse_args().pages) is None:
        rows = list(_viewers())
        record("Open consoles, CPU", "Service", "python -m benchmarks.console_load", rows)
    else:
        rows = list(_pages(jobs))
        slowest = max(rows, key=lambda row: int(row[1].partition(" ")[0]))
        figures = [(f"{jobs:,} jobs, the slowest of {len(rows)} pages: {slowest[0]}", *slowest[1:])]
        command = f"python -m benchmarks.console_load --pages {jobs}"
        tables = [Table("by filter", HEADS, rows)]
        record("Pages of the console's jobs", "Service", command, figures, tables=tables)
    print(table(HEADS, rows))


def _viewers() -> Iterator[tuple[str, str, str]]:
    with servers() as (settings, database), ExitStack() as stack:
        fill(database, JOBS)
        stack.enter_context(_changing(database))
        address, server = stack.enter_context(_serving(settings))
        cookie = _signed_in(database, address)
        newest = JobList().page(database, limit=50)
        shown = ",".join(job["id"].hex for job in newest)
        paths = ("/now/events", f"/jobs/events?top=1&shown={shown}")
        asked, used = {}, {}
        for viewers in (0, 1, VIEWERS):
            with _watching(address, cookie, [paths[number % 2] for number in range(viewers)]):
                time.sleep(SETTLE)
                before, spent, began = _transactions(database), _cpu(server), time.monotonic()
                time.sleep(SECONDS)
                seconds = time.monotonic() - began
                asked[viewers] = (_transactions(database) - before) / seconds
                used[viewers] = (_cpu(server) - spent) / seconds
        both = [paths[0], paths[1]]
        with _watching(address, cookie, both):  # what one of each page asks
            time.sleep(SETTLE)
            before, began = _transactions(database), time.monotonic()
            time.sleep(SECONDS)
            of_two = (_transactions(database) - before) / (time.monotonic() - began) - asked[0]
        yield (
            f"transactions per second: of one console of each page; of {VIEWERS}",
            f"{of_two:.1f}; {asked[VIEWERS] - asked[0]:.1f}",
            "equal",
        )
        share = used[VIEWERS] / VIEWERS * 10
        per_ten = (used[VIEWERS] - used[1]) / (VIEWERS - 1) * 10
        yield (
            "server, % of a core: one viewer; all; per ten",
            (f"{used[1]:.1%}; {used[VIEWERS]:.1%}; {share:.1%} ({per_ten:.1%} more for each ten)"),
            "below 10 % per ten",
        )
        for name, path in (("Now", "/now"), ("Jobs", "/jobs")):
            yield f"Chromium that shows {name}, % of a core", f"{_browsing(database, address, path):.1%}", "below 20 %"


@contextmanager
def _changing(database: Engine) -> Iterator[None]:
    """Change jobs on a thread."""
    stopped = threading.Event()

    def change() -> None:
        due, turn = time.monotonic(), 0
        while not stopped.wait(max(0.0, due - time.monotonic())):
            with database.begin() as connection:
                connection.execute((CHANGE, BACK)[turn % 2], {"jobs": CHANGES // 10})
            due, turn = due + 0.1, turn + 1

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


@contextmanager
def _serving(settings: Settings) -> Iterator[tuple[str, int]]:
    """`thothy serve` as a process of its own: its address and its id."""
    port = free_ports(1)
    environment = {**os.environ, **settings.environment(), "THOTHY_HTTP_PORT": str(port)}
    process = subprocess.Popen([sys.executable, "-m", "thothy_ai.cli", "serve"], env=environment, cwd=ROOT)
    address = f"http://127.0.0.1:{port}"
    try:
        while True:
            try:
                httpx.get(f"{address}/console/sign-in")
                break
            except httpx.TransportError:
                assert process.poll() is None
                time.sleep(0.1)
        yield address, process.pid
    finally:
        process.terminate()
        process.wait()


def _signed_in(database: Engine, address: str) -> str:
    token = make_link(database, "Ada", "operator", None)
    return httpx.post(f"{address}/console/enter", data={"token": token}).cookies["thothy_console"]


@contextmanager
def _watching(address: str, cookie: str, paths: Sequence[str]) -> Iterator[None]:
    """Read these streams on threads."""
    with httpx.Client(
        base_url=f"{address}/console", cookies={"thothy_console": cookie}, timeout=None, limits=httpx.Limits()
    ) as client:

        def watch(path: str) -> None:
            try:
                with client.stream("GET", path) as stream:
                    assert stream.status_code == 200, stream.status_code
                    for _ in stream.iter_raw():
                        if stopped.is_set():
                            return
            except httpx.TransportError:
                assert stopped.is_set()

        stopped = threading.Event()
        threads = [threading.Thread(target=watch, args=(path,)) for path in paths]
        for thread in threads:
            thread.start()
        yield
        stopped.set()
        for thread in threads:
            thread.join()


def _browsing(database: Engine, address: str, path: str) -> float:
    """The share of a core that a browser with this page takes, all of its processes together."""
    with tempfile.TemporaryDirectory() as home, browser(fetched("fetch-chromium"), Path(home)) as chromium:
        chromium.load(f"{address}/console/enter?token={make_link(database, 'Ada', 'operator', None)}", 1440)
        chromium.press("button.main")
        chromium.load(f"{address}/console{path}", 1440)
        time.sleep(SETTLE)
        processes = _browser_processes(Path(home))
        before, began = sum(map(_cpu, processes)), time.monotonic()
        time.sleep(SECONDS)
        return (sum(map(_cpu, processes)) - before) / (time.monotonic() - began)


def _browser_processes(home: Path) -> list[int]:
    """The processes of the session of the browser whose files are in `home`."""
    found = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdecimal()]
    commands = {each: _read(each, "cmdline") for each in found}
    sessions = {os.getsid(each) for each, command in commands.items() if str(home) in command}
    return [each for each in found if _read(each, "stat") and os.getsid(each) in sessions]


def _read(process: int, name: str) -> str:
    try:
        return Path(f"/proc/{process}/{name}").read_text(errors="replace")
    except OSError:  # it has ended
        return ""


def _cpu(process: int) -> float:
    fields = _read(process, "stat").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS if fields else 0.0


def _transactions(database: Engine) -> int:
    with database.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        return int(connection.scalar(TRANSACTIONS) or 0)


def _pages(jobs: int) -> Iterator[tuple[str, str, str]]:
    """Each filter's first page, and the page behind a cursor that has nine tenths of the jobs before it."""
    with servers() as (settings, database):
        _fill_pages(settings, jobs)
        with database.connect() as connection:
            newest = connection.scalar(statement("admin/job_before"), {"after": None, "jobs": 0})
            deep = connection.scalar(statement("admin/job_before"), {"after": None, "jobs": jobs * 9 // 10})
        middle = datetime.now(UTC) - timedelta(days=jobs / 400_000)
        wanted = {
            "no filter": {},
            "state: queued": {"state": "queued"},
            "state: dead": {"state": "dead"},
            "state: running, of which there is none": {"state": "running"},
            "kind": {"kind": "hook"},
            "kind that no job has": {"kind": "none"},
            "tenant of one job in 1,000": {"tenant": "small"},
            "model": {"model": "m"},
            "reason": {"reason": "too_long"},
            "reason of the oldest job": {"reason": "rare"},
            "key": {"key": "key-77"},
            "beginning of a key": {"key": "key-77*"},
            "source that no job has": {"source": "zz"},
            "batch": {"batch": newest},
            "parent": {"parent": newest},
            "a day, in the middle": {"since": f"{middle:%Y-%m-%dT%H:%M}", "until": f"{middle + DAY:%Y-%m-%dT%H:%M}"},
        }
        with _serving(settings) as (address, _):
            signed_in = {"thothy_console": _signed_in(database, address)}
            with httpx.Client(base_url=f"{address}/console", cookies=signed_in, timeout=60) as client:
                for name, query in wanted.items():
                    yield name, _page_row(client, query), "below 200 ms"
                    yield f"{name}; deep", _page_row(client, {**query, "after": deep}), "below 200 ms"


def _fill_pages(settings: Settings, jobs: int) -> None:
    patient = make_engine(settings, answer_seconds=None)
    with patient.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for first in range(1, jobs + 1, CHUNK):
            last = min(first + CHUNK - 1, jobs)
            connection.execute(text(MILLIONS), {"rows": jobs, "first": first, "last": last})
        connection.execute(text("VACUUM ANALYZE job"))
        connection.execute(text("CHECKPOINT"))
    patient.dispose()


def _page_row(client: httpx.Client, query: Mapping[str, object]) -> str:
    """The median time of a page of jobs, and what is on it."""
    times = []
    for _ in range(5):
        began = time.perf_counter()
        page = client.get("/jobs", params={name: str(value) for name, value in query.items()})
        times.append(time.perf_counter() - began)
        page.raise_for_status()
    further = ", more further back" if "Look further back" in page.text else ""
    return f"{median(times) * 1e3:.0f} ms, {page.text.count('<tr id=')} found{further}"


if __name__ == "__main__":
    main()
