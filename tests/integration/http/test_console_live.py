"""Pages of the console that follow what happens, and what becomes of them when a service is away."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from sqlalchemy import Engine, text

from tests.support.answering_backend import AnsweringBackend
from tests.support.browser import Browser
from tests.support.console import Console, sent
from tests.support.door import served_door
from tests.support.patience import PATIENCE
from tests.support.queue_bench import QUICK, Queue
from tests.support.served_engine import served
from tests.support.server_folder import server_folder
from thothy_ai.admin.jobs import JobList, states_of
from thothy_ai.db.connect import make_engine
from thothy_ai.db.console_links import make_link
from thothy_ai.db.migration import migrate
from thothy_ai.embedded import Postgres, Valkey
from thothy_ai.embedded.process import free_ports
from thothy_ai.http.console.site import PAGE_SECONDS, PAGE_THREADS
from thothy_ai.producer import Producer
from thothy_ai.settings import Settings


def test_a_slow_page_has_a_limit_and_holds_up_nothing_else(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, going = threading.Semaphore(0), threading.Event()

    def hang(_: JobList, database: Engine, **__: object) -> None:
        with database.connect() as connection:
            assert connection.scalar(text("SHOW statement_timeout")) == f"{PAGE_SECONDS}s"
            connection.execute(text("SET LOCAL statement_timeout = '50ms'"))
            asked.release()
            going.wait(PATIENCE)
            connection.execute(text("SELECT pg_sleep(60)"))

    monkeypatch.setattr(JobList, "look", hang)
    with console.signed_in() as client, ThreadPoolExecutor(2 * PAGE_THREADS) as threads:
        pages = [threads.submit(client.get, "/jobs") for _ in range(2 * PAGE_THREADS)]
        for _ in range(PAGE_THREADS):
            assert asked.acquire(timeout=PATIENCE)
        assert httpx.get(f"{console.address}/api/jobs", timeout=PATIENCE).status_code == 200
        going.set()
        answers = [page.result() for page in pages]
    assert {answer.status_code for answer in answers} == {503}
    assert "That takes too long" in answers[0].text


STATE = "document.querySelector('#rows .state').textContent"


def test_lists_and_jobs_stay_live_without_moving(console: Console, chromium: Browser) -> None:
    job = console.enqueued("ok")
    token = make_link(console.queue.engine, "Ada", "operator", None)
    chromium.load(f"{console.address}/console/enter?token={token}", 1440)
    chromium.press("button.main")
    chromium.load(f"{console.address}/console/jobs", 1440)
    chromium.evaluate("document.querySelector('#rows input').click()")
    console.enqueued("another")
    chromium.until("document.querySelector('#newer').textContent.includes('1 newer job')")
    with console.signed_in() as client:
        sent(client, "/jobs", "/jobs/change", action="cancel", which="ticked", id=str(job), number="1")
    chromium.until(f"{STATE} == 'cancelled'")
    assert chromium.evaluate("document.querySelectorAll('#rows tr').length") == 1
    assert chromium.evaluate("document.querySelector('#rows input').checked")
    for ticked in (True, False):
        chromium.evaluate("document.querySelector('[data-all]').click()")
        assert chromium.evaluate(f"document.querySelectorAll('#rows input:checked').length == {int(ticked)}")
    chromium.load(f"{console.address}/console/jobs/{job}", 1440)
    chromium.evaluate("document.querySelector('details').open = true")
    with console.signed_in() as client:
        sent(client, "/jobs", "/jobs/change", action="retry", which="ticked", id=str(job), number="1")
    chromium.until("document.querySelector('#job h1 .state').textContent == 'queued'")
    chromium.until("document.querySelector('#job').textContent.includes('It waits')")
    assert chromium.evaluate("document.querySelector('details').open")
    chromium.until("document.querySelector('#prompt pre') != null")


AWAY, LOST = "document.querySelector('#away').textContent", "!document.querySelector('#lost').hidden"
QUEUED = """[...document.querySelectorAll('.figure')]
    .find(each => each.querySelector('dt').textContent == 'queued')?.querySelector('dd').textContent"""
CANCEL = "document.querySelector('button[value=cancel]').click()"


class World:
    """A console with servers of its own, each of which can be stopped and started."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self.postgres = stack.enter_context(Postgres(folder / "postgres"))
        self.valkey = stack.enter_context(Valkey(folder / "valkey", durable=False))
        self.settings = Settings.load(
            home=folder,
            database_url=self.postgres.url,
            redis_url=self.valkey.url,
            http_port=free_ports(1),
            **(QUICK | {"engine_url": f"unix://{folder}/engine.sock"}),
        )
        migrate(self.settings)
        self.database = make_engine(self.settings)
        stack.callback(self.database.dispose)
        self.queue = Queue(self.settings, self.database, stack.enter_context(Producer(self.settings)))
        self.engine, self.server = stack.enter_context(ExitStack()), stack.enter_context(ExitStack())
        self.start_engine()
        self.start_server()
        self.address = f"http://127.0.0.1:{self.settings.http_port}"

    def start_engine(self) -> None:
        self.engine.enter_context(served(AnsweringBackend(lambda _: ["Hello."]), self.settings.require_engine_url()))

    def start_server(self) -> None:
        self.server.enter_context(served_door(self.settings, port=self.settings.http_port))

    def start_postgres(self) -> None:
        self.postgres.process.start()
        self.database.dispose()

    def sign_in(self, chromium: Browser) -> None:
        token = make_link(self.database, "Ada", "operator", None)
        chromium.load(f"{self.address}/console/enter?token={token}", 1440)
        chromium.press("button.main")


@pytest.fixture
def world(clean_environment: None) -> Iterator[World]:
    with server_folder(ignore_cleanup_errors=True) as folder, ExitStack() as stack:
        yield World(stack, folder)


def test_pages_say_what_is_away_and_heal_by_themselves(world: World, chromium: Browser) -> None:
    world.queue.enqueue("ok")
    world.sign_in(chromium)
    chromium.evaluate("window.stays = true")
    chromium.until(f"{QUEUED} == '1'")
    assert chromium.evaluate(AWAY).strip() == ""
    world.engine.close()
    chromium.until(f"{AWAY}.includes('The engine of this machine does not answer')")
    world.start_engine()
    chromium.until(f"!{AWAY}.trim()")
    world.valkey.process.kill()
    chromium.until(f"{AWAY}.includes('Redis does not answer')")
    world.valkey.process.start()
    chromium.until(f"!{AWAY}.trim()")
    world.postgres.process.kill()
    chromium.until(f"{AWAY}.includes('Postgres does not answer')")
    assert chromium.evaluate(QUEUED) == "1"  # as it was
    world.start_postgres()
    chromium.until(f"!{AWAY}.trim()")
    world.queue.enqueue("another")
    chromium.until(f"{QUEUED} == '2'")
    world.server.close()
    chromium.until(LOST)
    world.queue.enqueue("a third")
    world.start_server()
    chromium.until(f"!({LOST})")
    chromium.until(f"{QUEUED} == '3'")
    assert chromium.evaluate("window.stays")


def test_a_form_is_not_sent_to_a_server_that_is_away(world: World, chromium: Browser) -> None:
    [job] = world.queue.enqueue("ok")
    world.sign_in(chromium)
    chromium.load(f"{world.address}/console/jobs/{job}", 1440)
    world.server.close()
    chromium.until(LOST)
    chromium.evaluate(CANCEL)
    assert chromium.evaluate(LOST)  # on the same page
    world.start_server()
    chromium.until(f"!({LOST})")
    chromium.press("button[value=cancel]")
    world.postgres.process.kill()
    chromium.press("main form button")
    chromium.until("document.body.textContent.includes('The database does not answer')")
    chromium.load(f"{world.address}/console/jobs/{job}", 1440)
    world.start_postgres()
    chromium.until("document.querySelector('#job h1') != null")  # without a reload by hand
    assert states_of(world.database, [job])[job] == "queued"
