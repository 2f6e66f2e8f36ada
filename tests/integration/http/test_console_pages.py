"""Every page and every form of the console in a real browser, before a whole stack whose engine has no model.

The routes are walked: a page or a form that this module does not know fails it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, urlsplit

import pytest

from tests.support.browser import Browser
from tests.support.console import Console, routes
from tests.support.console_world import DEAD, World, fill
from tests.support.decided import written
from tests.support.fetched import fetched
from tests.support.queue_bench import Queue, eventually
from thothy_ai.db.api_keys import UNLIMITED, create_key
from thothy_ai.db.connect import make_engine
from thothy_ai.db.console_links import make_link
from thothy_ai.embedded import EmbeddedStack
from thothy_ai.embedded.process import free_port
from thothy_ai.embedded.stack import DOOR, SERVICES
from thothy_ai.http.console.site import stamp
from thothy_ai.jobs import registry
from thothy_ai.producer import Producer
from thothy_ai.settings import Settings

KINDS = ("tests.support.echo_kind",)
WIDTHS = (360, 768, 1440)
EXTREMES = (320, 3840)
VIEWS = [(width, dark) for width in WIDTHS for dark in (False, True)]
RUNBOOK = "ThothyQueueStopped"
MAX_BYTES = 300_000  # of a page, whatever it shows
FIRST_BYTES = 100_000  # of everything that a first visit loads
MAIN_PAGES = (
    "/now", "/review", "/jobs", "/dead", "/drains", "/engines", "/models", "/webhooks", "/keys", "/changes",
)  # fmt: skip
NOT_PAGES = ("/console", "/events", "/others", "/prompt", ".csv", ".jsonl")  # ends of addresses
BARRIERS = """axe.run({resultTypes: ['violations']}).then(found => found.violations
    .filter(each => ['serious', 'critical'].includes(each.impact))
    .map(each => [each.id, each.nodes.map(node => node.html).slice(0, 3)]))"""
UNNAMED = """[...document.querySelectorAll('input:not([type=hidden]), select, textarea')]
    .filter(each => !each.labels.length && !each.ariaLabel).map(each => each.outerHTML)"""
SIDEWAYS = """[...document.querySelectorAll('body *')].filter(each => each.getBoundingClientRect().right > innerWidth)
    .map(each => each.outerHTML.slice(0, 100)).slice(-3)"""
OPEN_ALL = """document.querySelectorAll('details').forEach(each => each.open = true);
    document.querySelectorAll('[data-open]')
        .forEach(each => document.getElementById(each.dataset.open).hidden = false)"""
HOSTILE = (
    "</textarea></script><script>window.ran = 1</script>\"'><img src=x onerror='window.ran = 1'>"
    "<a href=javascript:window.ran=1>{{ 7 * 7 }}${7 * 7}\u202egnp.\u2066\u061c\u200b\u200d\u200e\u200f\ufeff\x1b[31m"
    "\x07\x85\u2028"
    "\U0001f469\u200d\U0001f680\U0001f3f3\ufe0f 漢字テスト" + "w" * 400
)  # fmt: skip
MEGABYTE = (HOSTILE + " ") * (1_000_000 // len(HOSTILE))
ESCAPED = """[!window.ran, !document.querySelector('main img, main script:not([src]), main a[href^=javascript]'),
    !/[\\u061c\\u200b\\u200e\\u200f\\u202e\\u2066\\ufeff\\x1b\\x07]/.test(document.body.innerText)]"""


class Pages(NamedTuple):
    """A browser before a console, which it is signed in to."""

    browser: Browser
    console: Console

    @property
    def queue(self) -> Queue:
        return self.console.queue

    def show(self, page: str, width: int = 1440, *, dark: bool = False) -> None:
        self.browser.load(f"{self.console.address}/console{page}", width, dark=dark)

    def sign_in(self, role: str = "operator") -> None:
        self.show(f"/enter?token={make_link(self.queue.engine, 'Ada', role, None)}")
        self.browser.click("Go to the console")

    def signs_in_with(self, key: str) -> bool:
        self.show("/sign-in")
        self.browser.write("#key", key)
        self.browser.click("Sign in", "main")
        return "/sign-in" not in str(self.browser.evaluate("location.pathname"))

    def says(self, text: str) -> None:
        """The page says what was done, in a banner."""
        shown = self.browser.evaluate("[...document.querySelectorAll('.banner')].map(e => e.innerText).join('\\n')")
        assert text in shown, shown


@pytest.fixture(scope="module")
def pages(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    registry.load_extra(KINDS)
    home = tmp_path_factory.mktemp("home")
    settings = Settings.load(home=home, kinds=KINDS, http_port=free_port(), metrics_port=0)
    with EmbeddedStack(settings, services=(*SERVICES, DOOR), null=True) as stack, Producer(stack.settings) as producer:
        queue = Queue(stack.settings, make_engine(stack.settings), producer)
        yield Pages(chromium, Console(queue, f"http://127.0.0.1:{settings.http_port}"))
        queue.engine.dispose()


def addresses(world: World) -> dict[str, tuple[str, ...]]:
    """The pages of each route, in their states."""
    return {
        "/console/sign-in": ("/sign-in", "/sign-in?next=/console/jobs"),
        "/console/enter": ("/enter?token=x",),
        "/console/now": ("/now",),
        "/console/review": ("/review", "/review?held=1", "/review?kind=none"),
        "/console/review/{id:uuid}": tuple(f"/review/{each}" for each in (world.piece, world.draft, world.held)),
        "/console/jobs": ("/jobs", "/jobs?state=dead&state=cancelled", "/jobs?key=none", "/jobs?state=moon"),
        "/console/jobs/{id:uuid}": tuple(f"/jobs/{each}" for each in (world.waiting, world.dead, world.child)),
        "/console/dead": ("/dead", "/dead?reason=repetition", "/dead?kind=none"),
        "/console/drains": ("/drains", "/drains?window=7+d&by=tenant", "/drains?by=moon"),
        "/console/drains/{began}": (f"/drains/{stamp(world.drained_from)}",),
        "/console/engines": ("/engines",),
        "/console/models": ("/models",),
        "/console/webhooks": ("/webhooks", "/webhooks?state=delivered"),
        "/console/keys": ("/keys",),
        "/console/changes": ("/changes", "/changes?after=x"),
        "/console/runbooks": ("/runbooks",),
        "/console/runbooks/{name}": (f"/runbooks/{RUNBOOK}", "/runbooks/none"),
        "": ("/nowhere",),
    }


def problems(pages: Pages, page: str, views: Sequence[tuple[int, bool]] = VIEWS) -> list[object]:
    """What keeps people from using the page that is shown, in windows of each width and scheme and with all opened."""
    browser, found = pages.browser, []
    browser.evaluate(f"void eval({json.dumps(Path(fetched('fetch-axe')).read_text())})")
    for width, dark in views:
        browser.resize(width, dark=dark)
        found += [(page, width, dark, each) for each in browser.evaluate(BARRIERS)]
        found += overflow(pages, page, width)
    browser.evaluate(OPEN_ALL)
    found += [(page, "all open", each) for each in browser.evaluate(BARRIERS)]
    for width in (*EXTREMES, *WIDTHS):
        browser.resize(width)
        found += overflow(pages, f"{page}, all open", width)
    found += [(page, "unnamed", each) for each in browser.evaluate(UNNAMED)]
    if (titles := browser.evaluate("document.querySelectorAll('h1').length")) != 1:
        found.append((page, "titles", titles))
    elsewhere = {url for url in browser.requests.values() if not url.startswith((pages.console.address, "data:"))}
    return found + [(page, each) for each in (*browser.errors, *browser.refused, *elsewhere)]


def overflow(pages: Pages, page: str, width: int) -> list[object]:
    """The parts that make the page scroll sideways."""
    wide = pages.browser.evaluate("document.documentElement.scrollWidth")
    return [(page, width, "scrolls to", wide, pages.browser.evaluate(SIDEWAYS))] if wide > width else []


def test_pages_of_an_empty_queue(pages: Pages) -> None:
    pages.sign_in()
    found: list[object] = []
    for page in MAIN_PAGES:
        pages.show(page)
        found += problems(pages, page, [(1440, False)])
    assert not found, "\n".join(map(str, found))


def test_every_page_in_every_state_can_be_used(pages: Pages) -> None:
    known = addresses(fill(pages.queue, "A note of usual length, on two lines\nof one sentence."))
    assert {each for each in routes("GET") if not each.endswith(NOT_PAGES)} == {*known} - {""}, (
        "name its addresses above"
    )
    found: list[object] = []
    for role, all_views in (("operator", True), ("reader", False)):
        pages.sign_in(role)
        for first, page in ((number == 0, page) for states in known.values() for number, page in enumerate(states)):
            pages.browser.forget()
            pages.show(page)
            if pages.browser.received > FIRST_BYTES:
                found.append((page, "loads", pages.browser.received))
            found += problems(pages, page, VIEWS if first and all_views else [VIEWS[0], VIEWS[-1]])
    assert not found, "\n".join(map(str, found))


def test_every_form_is_sent_at_every_width(pages: Pages) -> None:
    fill(pages.queue, "Words of a form.")
    pages.sign_in()
    pages.browser.posted.clear()
    for width, dark in ((360, True), (768, False), (1440, True)):
        for do in (
            sign_in_and_out, change_engines, change_jobs, redrive_and_purge, decide, try_deliveries_again, change_keys,
        ):  # fmt: skip
            do(pages, width, dark)
            assert pages.browser.errors == [], (do.__name__, width)
    sent = {re.sub(r"[0-9a-f-]{36}", "{id:uuid}", urlsplit(url).path) for url in pages.browser.posted}
    assert routes("POST") == sent, "send its form above"


def sign_in_and_out(pages: Pages, width: int, dark: bool) -> None:
    key = create_key(pages.queue.engine, "default", ["admin"], UNLIMITED, name="", expires_at=None)
    pages.show("/jobs", width, dark=dark)
    pages.browser.click("Sign out")
    pages.browser.write("#key", "no key")
    pages.browser.click("Sign in", "main")
    pages.says("not a valid key")
    eventually(lambda: pages.signs_in_with(key))
    assert pages.browser.evaluate("location.pathname") == "/console/review"
    pages.sign_in()
    pages.browser.resize(width, dark=dark)


def change_engines(pages: Pages, width: int, dark: bool) -> None:
    browser, form = pages.browser, "form:has(select[name=scope])"
    pages.show("/engines", width, dark=dark)
    browser.write(f"{form} input[name=name]", "echo")
    browser.write(f"{form} input[name=note]", "a new glossary")
    browser.click("Pause it")
    pages.says("Paused the kind echo.")
    browser.click("Resume", "tr:has(input[value=echo])")
    pages.says("Resumed the kind echo.")
    pages.show("/models", width, dark=dark)
    browser.write("input[name=alias]:not([type=hidden])", "fast")
    browser.write("input[name=model]", "null")
    browser.click("Set the alias")
    pages.says("fast now stands for null.")
    browser.click("Remove", "tr:has(input[value=fast])")
    pages.says("fast is no longer an alias.")


def change_jobs(pages: Pages, width: int, dark: bool) -> None:
    [job] = pages.queue.enqueue("ok", idempotency_key=f"chosen {width} {dark}")
    browser, page = pages.browser, f"/jobs?key={quote(f'chosen {width} {dark}')}"
    for verb, sure, done in (
        ("Set priority", "Change the priority of 1 job", "1 job was given another priority"),
        ("Cancel", "Cancel 1 job", "1 job was cancelled"),
    ):
        pages.show(page, width, dark=dark)
        browser.click("", f"input[value='{job}']", leads=False)
        browser.click(verb, "#chosen")
        browser.click(sure)
        pages.says(done)
    pages.show(page, width, dark=dark)
    browser.click("", "input[name=which][value=all]", leads=False)
    browser.click("Queue again", "#chosen")
    browser.click("Queue again 1 job")
    pages.says("1 job was queued again")
    assert pages.queue.job(job).state == "queued"


def redrive_and_purge(pages: Pages, width: int, dark: bool) -> None:
    [job] = pages.queue.enqueue("ok", idempotency_key=f"dead {width} {dark}")
    for verb, sure, done in (
        ("Queue again", "Queue 1 job again", "1 job queued again."),
        ("Delete", "Delete 1 job, history included", "1 job deleted."),
    ):
        pages.queue.rows(DEAD, id=job, d="of a test")
        pages.show("/dead", width, dark=dark)
        pages.browser.click("", f"input[value='{job}']", leads=False)
        pages.browser.click(verb, "#chosen")
        pages.browser.click(sure)
        pages.says(done)


def decide(pages: Pages, width: int, dark: bool) -> None:
    """By keyboard; what is written is checked meanwhile."""
    browser, job = pages.browser, written(pages.queue)
    pages.show(f"/review/{job}", width, dark=dark)
    browser.key("e")
    browser.write("#edit textarea", "Better words.")
    browser.until("document.querySelector('#checked').textContent.trim().length > 0")
    browser.click("Save the edit")
    pages.says("was edited")
    browser.key("s")
    browser.write("#send-back textarea", "Say when.")
    browser.key("Escape")
    browser.key("r")
    browser.write("#reject textarea", "Dull.")
    browser.click("Reject", "#reject")
    pages.says("was rejected")
    pages.show(f"/review/{job}", width, dark=dark)
    browser.click("Open it again")
    pages.says("was reopened")
    browser.key("a", leads=True)
    pages.says("was approved")
    decisions = pages.queue.rows("SELECT action FROM decision WHERE job_id = :id ORDER BY decided_at", id=job)
    assert [each[0] for each in decisions] == ["edit", "reject", "reopen", "approve"]


def try_deliveries_again(pages: Pages, width: int, dark: bool) -> None:
    pages.queue.rows("UPDATE webhook_delivery SET dead_at = now()")
    pages.show("/webhooks?state=dead", width, dark=dark)
    pages.browser.click("", "tbody input[name=id]", leads=False)
    pages.browser.click("Try again now")
    pages.says("1 delivery is tried again now")


def change_keys(pages: Pages, width: int, dark: bool) -> None:
    pages.show("/keys", width, dark=dark)
    pages.browser.write("input[name=name]", f"desk {width} {dark}")
    pages.browser.click("Create the key")
    assert pages.browser.evaluate("document.querySelector('main').innerText.includes('cannot be shown again')")
    pages.browser.click(f"Revoke … desk {width} {dark}")
    pages.browser.click("Revoke the key")
    pages.says("is revoked")
    with pages.console.signed_in(name=f"Bo {width} {dark}"):
        pages.show("/keys", width, dark=dark)
        pages.browser.click("End", "tr:has([name=session])")


@pytest.mark.parametrize("long", ["", MEGABYTE], ids=["everywhere", "of a megabyte"])
def test_hostile_texts_are_shown_as_text(pages: Pages, long: str) -> None:
    world = fill(pages.queue, f"{len(long)}{HOSTILE}", long)
    pages.sign_in()
    found: list[object] = []
    for page in (each for state in addresses(world).values() for each in state):
        pages.show(page, 360)
        pages.browser.evaluate(OPEN_ALL)
        for width in (*EXTREMES, *WIDTHS):
            pages.browser.resize(width)
            found += overflow(pages, page, width)
        if (shown := pages.browser.evaluate(ESCAPED)) != [True] * len(shown):
            found.append((page, shown))
        found += [(page, each) for each in (*pages.browser.errors, *pages.browser.refused)]
        if (size := pages.browser.evaluate("document.documentElement.outerHTML.length")) > MAX_BYTES:
            found.append((page, "has characters", size))
    assert not found, "\n".join(map(str, found))
