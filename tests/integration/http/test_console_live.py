"""Pages of the console that follow what happens, and what becomes of them when a service is away."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from sqlalchemy import Engine, text

from tests.support.browser import Browser
from tests.support.console import Console, sent
from tests.support.door import PATIENCE
from thothy_ai.admin.jobs import JobList
from thothy_ai.db.console_links import make_link
from thothy_ai.http.console.site import PAGE_SECONDS, PAGE_THREADS


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
    chromium.load(f"{console.address}/console/jobs/{job}", 1440)
    chromium.evaluate("document.querySelector('details').open = true")
    with console.signed_in() as client:
        sent(client, "/jobs", "/jobs/change", action="retry", which="ticked", id=str(job), number="1")
    chromium.until("document.querySelector('#job h1 .state').textContent == 'queued'")
    chromium.until("document.querySelector('#job').textContent.includes('It waits')")
    assert chromium.evaluate("document.querySelector('details').open")
