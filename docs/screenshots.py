"""Takes the pictures of `console-pages.md`, of a queue that the bundled model works on, or with `--null` of one whose
engine makes its texts up, which takes seconds instead of minutes.

python -m docs.screenshots --null

Look at each picture before it is committed: what is written differs from run to run.
"""

from __future__ import annotations

import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from tests.support.browser import Browser, browser
from tests.support.fetched import fetched
from thothy_ai import Producer
from thothy_ai.admin.report.recorded_drains import list_drains
from thothy_ai.admin.review import review_queue
from thothy_ai.db.connect import make_engine
from thothy_ai.db.console_links import make_link
from thothy_ai.db.states import TERMINAL, ReviewState
from thothy_ai.demo.plan import demo_jobs
from thothy_ai.embedded import EmbeddedStack
from thothy_ai.embedded.process import free_port
from thothy_ai.embedded.stack import DOOR, SERVICES
from thothy_ai.engine.checkpoint.bundled import bundled_model_path
from thothy_ai.http.console.site import stamp
from thothy_ai.jobs import Hook
from thothy_ai.producer import Job
from thothy_ai.settings import Settings

FOLDER = Path(__file__).parent / "console"
JOBS = 150
MAX_BYTES, QUALITIES = 60_000, (50, 40, 30, 20)  # of a picture: the first that fits
TENANTS = ("acme", "northwind")
CLOSED = "http://127.0.0.1:9/hook"  # a webhook that nobody answers


class View(NamedTuple):
    """A page in a window."""

    name: str
    page: str
    width: int = 1200
    height: int = 750
    dark: bool = False
    until: str = "true"  # a condition, before which no picture is taken


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="thothy-pictures-") as folder:
        Path(folder).chmod(0o755)  # Postgres may have to run as nobody
        settings = Settings.load(
            home=Path(folder) / "home",
            http_port=free_port(),
            metrics_port=0,
            model=bundled_model_path(),
            price_per_compute_hour=2.4,
        )
        with (
            EmbeddedStack(settings, services=(*SERVICES, DOOR), null="--null" in sys.argv[1:]) as stack,
            browser(fetched("fetch-chromium"), Path(folder)) as shown,
        ):
            _take(shown, stack.settings)


def _take(shown: Browser, settings: Settings) -> None:
    address, database = f"http://127.0.0.1:{settings.http_port}/console", make_engine(settings)
    shown.load(f"{address}/enter?token={make_link(database, 'Ada', 'operator', None)}", 1200)
    shown.click("Go to the console")
    with Producer(settings) as producer:
        jobs = _enqueued(producer)
        _wait(jobs[:1])
        _save(shown, address, View("now", "now", until="document.body.innerText.includes('with an artifact')"))
        _wait(jobs)
        _change(shown, address)
        drafts = [each.job_id for each in review_queue(database, [ReviewState.NEEDS_REVIEW, ReviewState.NEEDS_EDIT])]
        failed = min(jobs, key=lambda job: job.state != "dead")  # the first otherwise
        began = datetime.now(UTC) - timedelta(hours=1)
        while not (drains := list_drains(database, began, datetime.now(UTC))):
            time.sleep(1.0)
    database.dispose()
    for view in (
        View("jobs", "jobs", dark=True),
        View("job", f"jobs/{failed.id}"),
        View("review", "review"),
        View("artifact", f"review/{drafts[0]}"),
        View("artifact-on-a-phone", f"review/{drafts[0]}", 390, 844, dark=True),
        View("drains", "drains"),
        View("drain", f"drains/{stamp(drains[0].started_at)}", dark=True),
        View("dead", "dead"),
        View("engines", "engines"),
        View("models", "models", dark=True),
        View("webhooks", "webhooks"),
        View("keys", "keys"),
        View("changes", "changes", dark=True),
    ):
        _save(shown, address, view)


def _enqueued(producer: Producer) -> list[Job]:
    """The demo's jobs, of two tenants, and one whose source is too long for the model."""
    soon, requests = datetime.now(UTC) + timedelta(hours=6), (demo_jobs() * JOBS)[:JOBS]
    requests.append(Hook(source=requests[0].source * 60, audience="indie founders"))
    return [
        producer.of_tenant(TENANTS[number % 2]).enqueue(
            request,
            idempotency_key=f"issue-48/{number:03}",
            max_attempts=1 if number % 4 else 2,
            deadline=None if number % 5 else soon,
            priority=0 if number % 7 else 5,
            webhook=None if number % 6 else CLOSED,
        )
        for number, request in enumerate(requests)
    ]


def _wait(jobs: list[Job]) -> None:
    """Until all have ended."""
    while not all(job.refresh().state in TERMINAL for job in jobs):
        time.sleep(1.0)


def _change(shown: Browser, address: str) -> None:
    """A pause, an alias, two keys and a decision."""
    shown.load(f"{address}/engines", 1200)
    shown.write("form:has(select[name=scope]) input[name=name]", "translation")
    shown.write("form:has(select[name=scope]) input[name=note]", "the glossary is being revised")
    shown.click("Pause it")
    shown.load(f"{address}/models", 1200)
    shown.write("input[name=alias]:not([type=hidden])", "fast")
    shown.write("input[name=model]", "SmolLM2-135M-Instruct.Q4_1")
    shown.click("Set the alias")
    for name in ("CMS", "Newsletter desk"):
        shown.load(f"{address}/keys", 1200)
        shown.write("input[name=name]", name)
        shown.click("Create the key")
    shown.load(f"{address}/review", 1200)
    shown.click("Begin with the first")
    shown.key("h", leads=True)


def _save(shown: Browser, address: str, view: View) -> None:
    shown.load(f"{address}/{view.page}", view.width, view.height, dark=view.dark)
    shown.until(view.until)
    picture = FOLDER / f"{view.name}.webp"
    for quality in QUALITIES:
        shown.picture(picture, whole=False, quality=quality)
        if picture.stat().st_size <= MAX_BYTES:
            return


if __name__ == "__main__":
    main()
