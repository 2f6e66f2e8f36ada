"""The web console: who may see and change what, and its pages in a real browser."""

from __future__ import annotations

import hashlib
import html
import json
import re
import time
from contextlib import ExitStack
from csv import DictReader
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import UUID

import httpx
import pytest

from tests.support.browser import Browser
from tests.support.console import Console, csrf_of, sent
from tests.support.console_world import DEAD, TRIED, fill
from tests.support.decided import FINDING, written
from tests.support.door import PATIENCE, served_door
from tests.support.queue_bench import Queue, eventually
from thothy_ai.admin.jobs import states_of
from thothy_ai.db.api_keys import UNLIMITED, create_key, id_of, revoke_key
from thothy_ai.db.console_links import make_link
from thothy_ai.db.states import ReviewState
from thothy_ai.embedded.process import free_port
from thothy_ai.http.console import jobs as job_pages
from thothy_ai.http.server import FINISH_SECONDS
from thothy_ai.jobs.checks.gates import measure

MARKS = "\u061c\u200b\u200e\u200f\u202e\ufeff\x1b"  # that would change what stands beside them
HOSTILE = f"<script>alert(1)</script>{MARKS}[31m{{{{ 7 * 7 }}}}" + "x" * 2_000
PAGES = (
    "/now", "/review", "/jobs", "/dead", "/drains", "/engines", "/models", "/webhooks", "/keys", "/changes",
)  # fmt: skip
OF_ALL_TENANTS = {"/now", "/drains", "/engines", "/models"}
WIDTHS = (360, 768, 1440)
BARRIERS = """axe.run().then(found => found.violations.filter(each => ['serious', 'critical'].includes(each.impact))
    .map(each => [each.id, each.nodes.map(node => node.html).slice(0, 3)]))"""
UNNAMED = """[...document.querySelectorAll('input:not([type=hidden]), select')]
    .filter(each => !each.labels.length && !each.ariaLabel).length"""
DRAIN = """INSERT INTO drain
    (started_at, ended_at, succeeded, dead, attempts, with_output, with_artifact, clean, wait_p50, run_p50)
    VALUES (now() - interval '2 hours', now() - interval '1 hour', 90, 10, 120, 100, 80, 60, 4.5, 61)"""
WRITE = """(text => { text.value = 'Kept words.'; text.dispatchEvent(new Event('input', {bubbles: true})); })
    (document.querySelector('#edit textarea'))"""
QUEUED = """[...document.querySelectorAll('.figure')]
    .find(each => each.querySelector('dt').textContent == 'queued')?.querySelector('dd').textContent"""
VENDOR = Path(__file__).parents[3] / "thothy_ai/http/console/static/vendor"


def test_nobody_looks_without_a_session(console: Console) -> None:
    with httpx.Client(base_url=f"{console.address}/console", timeout=PATIENCE) as client:
        for page in (*PAGES, "/changes.jsonl", "/drains/bill.csv", "/now/events"):
            answer = client.get(page)
            assert answer.status_code == 303, page
            assert answer.headers["location"].startswith("/console/sign-in?next=")
        assert client.post("/jobs/change", data={"action": "cancel"}).status_code == 401
        assert client.get("/now", headers={"cookie": "thothy_console=forged"}).status_code == 303


def test_a_link_works_once_and_only_when_its_button_is_pressed(console: Console) -> None:
    token = make_link(console.queue.engine, "Ada", "reader", None)
    with httpx.Client(base_url=f"{console.address}/console", timeout=PATIENCE, follow_redirects=True) as client:
        for _ in range(2):
            assert client.get("/enter", params={"token": token}).status_code == 200
        first = client.post("/enter", data={"token": token})
        assert "Ada" in first.text
        cookie = next(each for each in client.cookies.jar if each.name == "thothy_console")
        assert cookie.path == "/console"
        assert cookie.has_nonstandard_attr("HttpOnly")
        assert client.post("/enter", data={"token": token}).status_code == 401


def test_a_key_signs_in_with_its_role_until_it_is_revoked(console: Console) -> None:
    engine = console.queue.engine
    for scopes, status in ((["admin"], 200), (["read"], 403), (["review"], 403)):
        key = create_key(engine, "ours", scopes, UNLIMITED, name="", expires_at=None)
        with httpx.Client(base_url=f"{console.address}/console", timeout=PATIENCE, follow_redirects=True) as client:
            eventually(lambda: client.post("/sign-in", data={"key": key}).status_code == 200)  # noqa: B023
            assert client.get("/jobs").status_code == 200
            assert client.get("/keys").status_code == status
            assert client.get("/engines").status_code == 403  # it is about all tenants
            revoke_key(engine, id_of(key) or "")
            eventually(lambda: "/sign-in" in str(client.get("/jobs").url))
    for wrong in ("", "thothy_x", create_key(engine, "ours", ["chat"], UNLIMITED, name="", expires_at=None)):
        assert httpx.post(f"{console.address}/console/sign-in", data={"key": wrong}).status_code == 401


def test_a_session_leads_nowhere_else(console: Console) -> None:
    key = create_key(console.queue.engine, "ours", ["read"], UNLIMITED, name="", expires_at=None)
    for elsewhere in (
        "https://evil.example/", "//evil.example/console/", "/v1/models", "/console/\\\\evil", "/console/../../evil",
        "/console/%2e%2E/evil", "/console/..",
    ):  # fmt: skip
        answer = httpx.post(f"{console.address}/console/sign-in", data={"key": key, "next": elsewhere})
        assert answer.headers["location"] == "/console"


def test_forms_need_the_session_s_token_and_a_role(console: Console) -> None:
    job = console.enqueued("ok")
    with console.signed_in() as operator, console.signed_in("editor") as editor:
        fields = {"action": "cancel", "which": "ticked", "id": str(job), "number": "1"}
        assert operator.post("/jobs/change", data=fields).status_code == 403
        assert operator.post("/jobs/change", data={**fields, "csrf": csrf_of(editor.get("/jobs"))}).status_code == 403
        assert sent(editor, "/jobs", "/jobs/change", **fields).status_code == 403
        assert states_of(console.queue.engine, [job])[job] == "queued"
        assert sent(operator, "/jobs", "/jobs/change", **fields).status_code == 200
    assert states_of(console.queue.engine, [job])[job] == "cancelled"


def test_all_that_match_are_changed_and_the_number_is_said_before(console: Console) -> None:
    jobs = [console.enqueued(f"ok {number}") for number in range(60)]
    other = console.enqueued("no", tenant="theirs")
    with console.signed_in() as client:
        fields = {"action": "cancel", "which": "all", "query": "tenant=ours&state=queued"}
        asked = sent(client, "/jobs", "/jobs/ask", **fields)
        assert "Cancel 60 jobs?" in asked.text
        fewer = {**fields, "number": "59", "csrf": csrf_of(asked)}
        assert client.post("/jobs/change", data=fewer).status_code == 409
        done = client.post("/jobs/change", data={**fewer, "number": "60"})
        assert "60 jobs were cancelled" in done.text
        states = states_of(console.queue.engine, [*jobs, other])
        assert {states[job] for job in jobs} == {"cancelled"}
        assert states[other] == "queued"
        again = sent(client, "/jobs", "/jobs/change", action="retry", which="all", query="tenant=ours", number="60")
        assert "60 jobs were queued again" in again.text
        raised = sent(client, "/jobs", "/jobs/change", action="priority", which="all", query="key=none", priority="7")
        assert "0 jobs were" in raised.text
        assert sent(client, "/jobs", "/jobs/ask", action="priority", which="all", priority="x").status_code == 400
        for wrong in ("state=queud", "batch=0190-typo", "parent=x"):
            asked = sent(client, "/jobs", "/jobs/ask", action="cancel", which="all", query=wrong)
            assert asked.status_code == 400, wrong
        log = client.get("/changes.jsonl").text.splitlines()
        assert len(log) == 3
        assert '"Ada"' in log[0]


def test_only_what_an_action_can_change_is_asked_about(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_pages, "MAX_RECORDED", 1)
    open_jobs = [console.enqueued(f"ok {number}") for number in range(2)]
    done, theirs = console.enqueued("done"), console.enqueued("no", tenant="theirs")
    console.queue.rows("UPDATE job SET state = 'succeeded', finished_at = now() WHERE id = :id", id=done)
    ticked = [str(each) for each in (*open_jobs, done, theirs)]
    with console.signed_in(tenant="ours") as client:
        for action, verb in (("cancel", "cancelled"), ("priority", "given another priority")):
            asked = sent(client, "/jobs", "/jobs/ask", action=action, id=ticked).text
            assert f"2 of 4 ticked can be {verb}." in asked
            assert 'name="number" value="2"' in asked
        asked = sent(client, "/jobs", "/jobs/ask", action="retry", id=ticked).text
        assert "None of the 4 ticked can be queued again." in asked
        for wrong in ("", "x", "101", "-101", "1_0", "1.5", "٣", "9" * 500):
            refused = sent(client, "/jobs", "/jobs/change", action="priority", id=ticked, number="2", priority=wrong)
            assert refused.status_code == 400, wrong
            assert "priority: expected a whole number from -100 to 100" in refused.text
        changed = sent(client, "/jobs", "/jobs/change", action="cancel", id=ticked, number="3")
        assert "2 jobs were cancelled; 1 had changed meanwhile and were left" in changed.text
        [log] = map(json.loads, client.get("/changes.jsonl").text.splitlines())
    assert (log["before"]["number"], log["before"]["states"], log["before"]["recorded"]) == (2, {"queued": 2}, 1)


def test_a_refused_filter_or_form_leads_back(console: Console) -> None:
    job = console.enqueued("ok")
    with console.signed_in() as client:
        for page, name in (("/jobs", "batch"), ("/jobs", "state"), ("/jobs", "since"), ("/dead", "since")):
            refused = client.get(f"{page}?kind=echo&{name}=moon")
            assert refused.status_code == 400
            assert f'role="alert">{name}: ' in refused.text
            assert 'name="kind" value="echo"' in refused.text
        asked_from = f"{console.address}/console/jobs/ask?state=queued&kind=echo"
        for referer, back in (
            (asked_from, "/console/jobs?state=queued&amp;kind=echo"),
            (f"{console.address}/console/keys", "/console/keys"),
            ("https://evil.example/console/keys", "/console"),
            (f"{console.address}/v1/models", "/console"),
            (f"{console.address}/console/sign-in?next=x", "/console"),
            ("http://[", "/console"),
        ):
            client.headers["referer"] = referer
            refused = sent(client, "/jobs", "/jobs/change", action="cancel", id=str(job))
            assert refused.status_code == 409
            assert f'<p><a href="{back}">' in refused.text
            assert "Sign in" not in refused.text
        assert 'action="/console/jobs/ask?kind=echo"' in client.get("/jobs?kind=echo").text


def test_a_job_that_cannot_run_is_not_forecast(console: Console) -> None:
    empty = r"<dt>time to empty</dt><dd>empty</dd>"
    stuck = r'<dt>time to empty</dt><dd>-</dd><dd class="more">1 job cannot run</dd>'
    with console.signed_in() as client:
        assert empty in client.get("/now").text
        console.queue.enqueue("ok", model="gone")
        eventually(lambda: stuck in client.get("/now").text)


def test_a_long_error_is_shown_in_full_once(console: Console) -> None:
    job = console.enqueued("ok")
    console.queue.rows(DEAD, id=job, d=(error := "no such tensor; " * 3_000))
    console.queue.rows(TRIED, id=job, d=error, short="w")
    with console.signed_in() as client:
        assert client.get(f"/jobs/{job}?whole=1").text.count(error) == 1
        assert len(client.get(f"/jobs/{job}").text) < 40_000


def test_all_deliveries_of_a_tenant_that_failed_are_tried_again(console: Console) -> None:
    fill(console.queue, "Words of a delivery.")
    console.queue.rows("UPDATE webhook_delivery SET dead_at = now()")
    with console.signed_in(tenant="theirs") as theirs, console.signed_in() as everyone:
        assert "0 deliveries are tried again" in sent(theirs, "/jobs", "/webhooks/retry", which="all").text
        assert "all 1 that failed" in everyone.get("/webhooks").text
        assert sent(everyone, "/jobs", "/webhooks/retry").status_code == 400
        assert "1 delivery is tried again" in sent(everyone, "/jobs", "/webhooks/retry", which="all").text


def test_a_tenant_s_viewer_sees_and_changes_nothing_of_others(console: Console) -> None:
    theirs = console.enqueued("their secret", tenant="theirs")
    console.enqueued("ok")
    with console.signed_in(tenant="ours") as client:
        assert str(theirs) not in client.get("/jobs?tenant=theirs").text
        assert client.get(f"/jobs/{theirs}").status_code == 404
        assert client.get(f"/jobs/{theirs}/events").status_code == 404
        for which in ("ticked", "all"):
            fields = {
                "action": "cancel",
                "which": which,
                "id": str(theirs),
                "query": "tenant=theirs&key=none",
                "number": "9",
            }
            assert sent(client, "/jobs", "/jobs/change", **fields).status_code == 200
        assert sent(client, "/keys", "/keys/create", tenant="theirs", scope="read").status_code == 403
        for page in PAGES:
            assert client.get(page).status_code == (403 if page in OF_ALL_TENANTS else 200), page
    assert states_of(console.queue.engine, [theirs])[theirs] == "queued"


def test_pauses_aliases_and_keys_are_changed_and_recorded(console: Console) -> None:
    with console.signed_in() as client:
        assert "Paused the kind echo." in sent(client, "/engines", "/engines/pause", scope="kind", name="echo").text
        assert "Resumed the kind echo." in sent(client, "/engines", "/engines/resume", scope="kind", name="echo").text
        assert "Paused the queue." in sent(client, "/engines", "/engines/pause", note="new model").text
        assert "new model" in client.get("/engines").text
        sent(client, "/engines", "/engines/resume")
        assert "fast now stands for m." in sent(client, "/models", "/models/alias", alias="fast", model="m").text
        assert sent(client, "/models", "/models/alias", alias="faster", model="fast").status_code == 400
        assert "fast is no longer an alias." in sent(client, "/models", "/models/unalias", alias="fast").text
        assert sent(client, "/models", "/models/unalias", alias="fast").status_code == 404
        assert sent(client, "/engines", "/engines/pause", scope="moon", name="x").status_code == 400
        made = sent(client, "/keys", "/keys/create", tenant="ours", name="desk", scope=["read", "review"], days="3")
        key = re.search(r"thothy_[0-9a-f]{12}_[0-9a-f]{64}", made.text)
        assert key
        eventually(lambda: id_of(key[0]) in client.get("/keys").text)
        assert "is revoked" in sent(client, "/keys", "/keys/revoke", id=id_of(key[0])).text
        actions = [
            line.split('"action": "')[1].split('"')[0] for line in client.get("/changes.jsonl").text.splitlines()
        ]
    assert actions == [
        "revoke key", "create key", "remove alias", "set alias", "set alias", "resume", "pause", "resume", "pause",
    ]  # fmt: skip


def test_what_people_write_is_shown_as_text(console: Console) -> None:
    job = console.enqueued(HOSTILE)
    with console.signed_in(name=f"Eve {HOSTILE[:40]}") as client:
        sent(client, "/engines", "/engines/pause", scope="kind", name="echo", note=HOSTILE[:400])
        for page in (*PAGES, f"/jobs/{job}", f"/jobs?key={quote(HOSTILE[:60])}"):
            text = client.get(page).text
            assert "<script>alert" not in text, page
            shown = re.sub(r'value="[^"]*"', "", text)  # what a form sends back is exact
            assert not set(MARKS) & set(shown), page
        assert "\\u202e" in client.get("/engines").text


def decided(queue: Queue, job: UUID) -> list[tuple[Any, ...]]:
    rows = queue.rows(
        "SELECT version, action, decided_by, note FROM decision WHERE job_id = :id ORDER BY decided_at", id=job
    )
    return [tuple(row) for row in rows]


def test_an_editor_decides_and_goes_on_with_the_next(console: Console) -> None:
    first, second = written(console.queue), written(console.queue)
    with console.signed_in("editor", tenant="default", name="Ann") as client:
        listed = client.get("/review")
        assert str(first) in listed.text
        assert str(second) in listed.text
        page = client.get(f"/review/{first}")
        assert '<mark data-finding="1" tabindex="0">first</mark>' in page.text.replace("The ", "")
        form = {"version": "1", "csrf": csrf_of(page)}
        wrong = (
            {"action": "reject"},
            {"action": "send_back", "note": " "},
            {"action": "publish"},
            {"action": "hold", "version": "x"},
        )
        for each in wrong:
            assert client.post(f"/review/{first}/decide", data={**form, **each}).status_code == 400, each
        assert decided(console.queue, first) == []
        after = client.post(f"/review/{first}/decide", data={**form, "action": "approve"})
        assert str(after.url).endswith(f"/review/{second}")
        assert "was approved" in after.text
        done = client.post(f"/review/{second}/decide", data={**form, "action": "reject", "note": "dull"})
        assert "Nothing waits" in done.text
        twice = client.post(f"/review/{second}/decide", data={**form, "action": "approve"})
        assert twice.status_code == 409
        assert "Ann" in twice.text
    assert decided(console.queue, first) == [(1, "approve", "Ann", None)]
    assert decided(console.queue, second) == [(1, "reject", "Ann", "dull")]


def test_a_decision_goes_on_behind_its_place_and_within_the_filter(
    console: Console, chromium: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("thothy_ai.http.console.review.LISTED", 3)
    jobs = [written(console.queue, deadline=datetime.now(UTC) + timedelta(hours=hour)) for hour in range(1, 6)]
    other = written(console.queue, ReviewState.HELD)
    signed_in(console, chromium)

    def at(job: UUID) -> bool:
        shown = str(chromium.evaluate("location.pathname + location.search"))
        return shown == f"/console/review/{job}?kind=echo&held=1"

    chromium.load(f"{console.address}/console/review?kind=echo&held=1", 360)
    for key in ("j", "j", "j", "k"):
        chromium.key(key)
    chromium.press("a:focus")
    assert at(jobs[1])
    assert "2 of 3+" in chromium.evaluate("document.querySelector('.piece-head nav').innerText")
    chromium.key("a", leads=True)
    assert at(jobs[2])
    chromium.key("j", leads=True)
    chromium.key("k", leads=True)
    assert at(jobs[2])
    for job in jobs[2:]:
        assert at(job)
        chromium.key("a", leads=True)
    assert at(other)
    chromium.key("a", leads=True)
    assert at(jobs[0])
    chromium.key("a", leads=True)
    assert chromium.evaluate("location.pathname + location.search") == "/console/review?kind=echo&held=1"


def test_the_list_and_the_page_speak_of_the_text(console: Console) -> None:
    points = [{"point": "A toaster finds fake honey.", "quote": "It is right."}]
    finding = {**FINDING, "part": "key_points.0.quote", "weight": 0.88}
    job = written(console.queue, body={"key_points": points, "tags": ["bees"]}, findings=(finding, finding))
    plain = written(console.queue, findings=())
    with console.signed_in("editor", name="Ann") as ann, console.signed_in("editor", name="Bo") as bo:
        page = ann.get(f"/review/{job}").text
        for shown in ("Key point 1: point", "Key point 1: quote", "Tag 1", measure(finding, "en")):
            assert shown in page, shown
        assert ">key_points.0" not in page
        assert "<details open><summary>As it is published" in page
        rows = {
            each: re.search(
                f'<a data-row href="/console/review/{each}">([^<]+)</a></td>(.*?)</tr>', bo.get("/review").text
            )
            for each in (job, plain)
        }
        about, other = rows[job], rows[plain]
        assert about
        assert other
        assert (about[1], other[1]) == ("A toaster finds fake honey.", "The first words.")
        assert '<td class="number">2</td><td>Ann</td>' in about[2]
        assert '<td class="number">0</td><td></td>' in other[2]
        assert "Ann" not in ann.get("/review").text.split("</thead>")[1]


def test_what_is_superseded_is_reopened_before_it_is_decided(console: Console) -> None:
    job = written(console.queue)
    console.queue.ask("queue/supersede", ids=[job])
    with console.signed_in("editor", name="Ann") as client:
        page = client.get(f"/review/{job}")
        assert "Reopen it to decide: the text that it follows is another now" in page.text
        assert 'value="approve"' not in page.text
        form = {"version": "1", "csrf": csrf_of(page)}
        assert client.post(f"/review/{job}/decide", data={**form, "action": "approve"}).status_code == 400
        client.post(f"/review/{job}/decide", data={**form, "action": "reopen"})
        assert 'value="approve"' in client.get(f"/review/{job}").text


def test_what_an_editor_writes_is_kept_checked_and_seen_by_others(console: Console) -> None:
    job = written(console.queue)
    with console.signed_in("editor", name="Ann") as ann, console.signed_in("editor", name="Bo") as bo:
        form = {"version": "1", "csrf": csrf_of(ann.get(f"/review/{job}"))}
        kept = ann.post(f"/review/{job}/draft", data={**form, "field:echo": "Better words."})
        assert kept.status_code == 200, kept.text
        assert "Better words." in ann.get(f"/review/{job}").text
        assert "Better words." not in bo.get(f"/review/{job}").text
        assert "Ann is editing this, too" in bo.get(f"/review/{job}/others?version=1").text
        assert "Bo is looking at this, too" in ann.get(f"/review/{job}/others?version=1").text
        assert ann.post(f"/review/{job}/draft", data={**form, "field:moon": "x"}).status_code == 400
        assert ann.post(f"/review/{job}/draft", data={**form, "field:echo": "a\0b"}).status_code == 400
        assert ann.get("/jobs?key=a%00b").status_code == 400
        edited = ann.post(f"/review/{job}/decide", data={**form, "action": "edit", "field:echo": "Best words."})
        assert "version 2" in edited.text
        assert "written another version" in bo.get(f"/review/{job}/others?version=1").text
        assert "Better words." not in ann.get(f"/review/{job}").text
    assert decided(console.queue, job) == [(1, "edit", "Ann", None)]


POINTS = {"echo": "A\u200cB \U0001f469\u200d\U0001f680  two\nlines\u00ad."}


def test_what_nobody_touched_is_saved_as_it_was(console: Console) -> None:
    job = written(console.queue, body=POINTS)
    with console.signed_in("editor") as client:
        page = client.get(f"/review/{job}").text
        text = html.unescape(re.findall(r"<textarea[^>]*name=.field:echo.[^>]*>([^<]*)</textarea>", page)[0])
        form = {"version": "1", "csrf": csrf_of(client.get(f"/review/{job}")), "field:echo": text}
        client.post(f"/review/{job}/draft", data=form)
        assert client.post(f"/review/{job}/decide", data={**form, "action": "edit"}).status_code == 200
    assert console.queue.rows("SELECT body FROM artifact_version WHERE job_id = :id", id=job) == [(POINTS,)]


def test_a_text_on_an_earlier_version_does_not_replace_what_another_has_saved(console: Console) -> None:
    job = written(console.queue)
    with console.signed_in("editor", name="Ann") as ann, console.signed_in("editor", name="Bo") as bo:
        ours = {"version": "1", "csrf": csrf_of(ann.get(f"/review/{job}")), "field:echo": "Words of Ann."}
        ann.post(f"/review/{job}/draft", data=ours)
        theirs = {"version": "1", "csrf": csrf_of(bo.get(f"/review/{job}")), "field:echo": "Words of Bo."}
        bo.post(f"/review/{job}/decide", data={**theirs, "action": "edit"})
        assert "another version" in ann.post(f"/review/{job}/draft", data=ours).text
        page = ann.get(f"/review/{job}").text
        assert "You had written this on an earlier version" in page
        assert re.findall(r"<textarea[^>]*name=.field:echo.[^>]*>([^<]*)</textarea>", page) == ["Words of Bo."]


def test_only_what_a_decision_uses_ends_what_is_written(console: Console) -> None:
    job = written(console.queue)
    with console.signed_in("editor", name="Ann") as ann, console.signed_in("editor", name="Bo") as bo:
        form = {"version": "1", "csrf": csrf_of(ann.get(f"/review/{job}"))}
        ann.post(f"/review/{job}/draft", data={**form, "field:echo": "Words of Ann."})
        noted = ann.post(f"/review/{job}/draft", data={**form, "note_of": "reject", "note": "Dull, and\nlate."})
        assert "data-kept" in noted.text
        long = {**form, "note_of": "reject", "note": "x" * 2_001}
        assert ann.post(f"/review/{job}/draft", data=long).status_code == 400
        ann.post(f"/review/{job}/decide", data={**form, "action": "hold"})
        page = ann.get(f"/review/{job}").text
        assert ">Words of Ann.</textarea>" in page
        assert ">Dull, and\nlate.</textarea>" in page
        for action in ("approve", "reject", "send_back"):
            asked = ann.post(f"/review/{job}/decide", data={**form, "action": action, "note": "Late."})
            assert "without what you have written?" in asked.text
            assert 'name="note" value="Late."' in asked.text
        assert len(decided(console.queue, job)) == 1  # the hold
        theirs = {"version": "1", "csrf": csrf_of(bo.get(f"/review/{job}"))}
        bo.post(f"/review/{job}/decide", data={**theirs, "action": "edit", "field:echo": "Words of Bo."})
        late = ann.post(f"/review/{job}/decide", data={**form, "action": "send_back", "note": "Name the river."})
        assert late.status_code == 409
        page = ann.get(f"/review/{job}").text
        for kept in ("Words of Ann.", "Late.", "Name the river."):
            assert kept in page.split("You had written this on an earlier version")[1], kept
        form["version"] = "2"
        ann.post(f"/review/{job}/draft", data={**form, "field:echo": "Other words."})
        done = ann.post(f"/review/{job}/decide", data={**form, "action": "reject", "note": "No.", "without": "yes"})
        assert "was rejected" in done.text
        page = ann.get(f"/review/{job}").text.split("which no decision has used")[1]
        assert "Other words." in page
        assert "No." not in page


def test_two_of_one_name_are_two_people(console: Console) -> None:
    job = written(console.queue)

    def drafted(page: str) -> bool:
        return ">Words of the first.</textarea>" in page

    for name, personal in (("Ada", True), ("root on vm", False)):
        with (
            console.signed_in("editor", name=name, personal=personal) as first,
            console.signed_in("editor", name=name, personal=personal) as second,
        ):
            ours = {"version": "1", "csrf": csrf_of(first.get(f"/review/{job}")), "field:echo": "Words of the first."}
            assert "data-kept" in first.post(f"/review/{job}/draft", data=ours).text
            page = second.get(f"/review/{job}")
            assert not drafted(page.text)
            seen = second.get(f"/review/{job}/others?version=1").text
            assert f"{name} is editing this, too: it is open elsewhere under your name" in seen
            theirs = {"version": "1", "csrf": csrf_of(page), "field:echo": "Words of the second."}
            second.post(f"/review/{job}/draft", data=theirs)
            assert drafted(first.get(f"/review/{job}").text)
        with console.signed_in("editor", name=name, personal=personal) as later:
            assert not drafted(later.get(f"/review/{job}").text)
            console.queue.rows(
                "UPDATE review_draft SET seen_at = now() - interval '1 hour' WHERE texts->>'echo' LIKE '%first.'"
            )
            assert drafted(later.get(f"/review/{job}").text) == personal
            assert drafted(later.get(f"/review/{job}").text) == personal
        console.queue.rows("DELETE FROM review_draft")


def test_forms_are_bounded_and_come_from_our_pages(console: Console) -> None:
    to = f"{console.address}/console/sign-in"
    assert httpx.post(to, files={"key": b"x"}).status_code == 415
    assert httpx.post(to, data={"key": "x" * 6_000_000}).status_code == 400
    with console.signed_in() as client:
        assert sent(client, "/engines", "/engines/pause", note="x" * 6_000_000).status_code == 413
    assert httpx.post(to, data={"key": "x"}, headers={"sec-fetch-site": "cross-site"}).status_code == 403
    assert httpx.get(f"{to}?next=//[").status_code == 200
    with console.signed_in() as client:
        part = client.get("/jobs/ask", headers={"hx-request": "true"})
        assert part.status_code == 405
        assert "<main" not in part.text
    gone = httpx.get(f"{console.address}/console/now/events", headers={"hx-request": "true"})
    assert (gone.status_code, gone.headers["hx-redirect"]) == (401, "/console/sign-in")


def test_readers_look_and_do_not_decide(console: Console) -> None:
    job = written(console.queue)
    with (
        console.signed_in("reader") as reader,
        console.signed_in("editor") as editor,
        console.signed_in("editor", "other") as other,
    ):
        assert "Approve" not in reader.get(f"/review/{job}").text
        form = {"version": "1", "action": "approve", "csrf": csrf_of(reader.get("/jobs"))}
        assert reader.post(f"/review/{job}/decide", data=form).status_code == 403
        assert other.get(f"/review/{job}").status_code == 404
        assert "Approve" in editor.get(f"/review/{job}").text
    assert decided(console.queue, job) == []


def signed_in(console: Console, chromium: Browser) -> None:
    token = make_link(console.queue.engine, "Ann", "editor", None)
    chromium.load(f"{console.address}/console/enter?token={token}", 1440)
    chromium.press("button.main")


def test_the_editor_s_page_by_keyboard(console: Console, chromium: Browser) -> None:
    first, second = written(console.queue), written(console.queue)
    signed_in(console, chromium)
    chromium.load(f"{console.address}/console/review/{first}", 1440)
    assert chromium.evaluate("document.querySelector('#edit').hidden")
    chromium.key("e")
    assert not chromium.evaluate("document.querySelector('#edit').hidden")
    chromium.evaluate(WRITE)
    chromium.until("document.querySelector('#checked').textContent.trim().length > 0")
    chromium.load(f"{console.address}/console/review/{first}", 1440)
    assert chromium.evaluate("document.querySelector('#edit textarea').value") == "Kept words."
    chromium.evaluate("document.querySelector('button.finding').click()")
    assert chromium.evaluate("document.querySelectorAll('mark.on').length") >= 1
    chromium.load(f"{console.address}/console/review/{second}", 1440)
    chromium.key("a", leads=True)
    assert decided(console.queue, second) == [(1, "approve", "Ann", None)]
    assert chromium.evaluate("location.pathname").endswith(str(first))
    assert chromium.evaluate("document.querySelector('.banner a').pathname").endswith(str(second))


def test_a_key_that_is_held_decides_on_one_artifact(console: Console, chromium: Browser) -> None:
    jobs = [written(console.queue) for _ in range(3)]
    signed_in(console, chromium)
    chromium.load(f"{console.address}/console/review/{jobs[0]}", 1440)
    for key in ("a", "h"):
        chromium.key(key, held=True)  # it was pressed on the page before
        assert not chromium.evaluate("document.querySelectorAll('form[data-sent]').length")
    chromium.key("a", leads=True)
    chromium.key("a", held=True)
    assert not chromium.evaluate("document.querySelectorAll('form[data-sent]').length")
    assert [len(decided(console.queue, job)) for job in jobs] == [1, 0, 0]


SHOWN = "!document.querySelector('#unkept').hidden"
WRITTEN = "document.querySelector('#edit textarea').value"


def test_nothing_that_is_written_is_lost_with_the_server(queue: Queue, chromium: Browser) -> None:
    job, port = written(queue), free_port()
    page = f"http://127.0.0.1:{port}/console/review/{job}"
    with served_door(queue.settings, port=port) as address:
        token = make_link(queue.engine, "Ann", "editor", None)
        chromium.load(f"{address}/console/enter?token={token}", 1440)
        chromium.press("button.main")
        chromium.load(page, 360)
        chromium.key("e")
        chromium.write("#edit textarea", "The best words.")
        chromium.until("document.querySelector('#checked del')?.textContent == 'first'")
        assert chromium.evaluate("document.querySelector('#checked ins').textContent") == "best"
    chromium.write("#edit textarea", "Words that nobody receives.")
    chromium.until(SHOWN)
    with served_door(queue.settings, port=port):
        chromium.until(f"!({SHOWN})")
        [(texts,)] = queue.rows("SELECT texts FROM review_draft")
        assert texts == {"echo": "Words that nobody receives."}
    chromium.write("#edit textarea", "The last words.")
    chromium.until(SHOWN)
    with served_door(queue.settings, port=port):
        chromium.load(page, 360)  # before they were sent, or after
        assert chromium.evaluate(WRITTEN) == "The last words."
        chromium.until("document.querySelector('#checked del')?.textContent == 'first'")
        assert not chromium.evaluate(SHOWN)
        chromium.load(page, 360)
        assert chromium.evaluate(WRITTEN) == "The last words."


def test_a_note_and_an_edit_outlive_their_page_and_a_failed_decision(queue: Queue, chromium: Browser) -> None:
    job, port = written(queue), free_port()
    page = f"http://127.0.0.1:{port}/console/review/{job}"
    note = "document.querySelector('#reject textarea').value"
    with served_door(queue.settings, port=port) as address:
        signed_in(Console(queue, address), chromium)
        chromium.load(page, 1440)
        chromium.key("r")
        chromium.write("#reject textarea", "Dull, and late.")
        chromium.until("document.querySelector('#reject-kept').textContent == 'Kept.'")
        chromium.load(page, 1440)
        assert chromium.evaluate(note) == "Dull, and late."
        chromium.key("e")
        chromium.write("#edit textarea", "The best words.")
        chromium.until("document.querySelector('#checked del')?.textContent == 'first'")
        chromium.key("Escape")
        chromium.key("h", leads=True)
        chromium.load(page, 1440)
        assert chromium.evaluate(WRITTEN) == "The best words."
        chromium.key("a", leads=True)
        assert "without what you have written?" in chromium.evaluate("document.querySelector('h1').innerText")
        chromium.click("Back to the edit")
        chromium.key("r")
    chromium.write("#reject textarea", "Nobody receives this.")
    chromium.until(SHOWN)
    with served_door(queue.settings, port=port):
        chromium.load(page, 1440)
        assert chromium.evaluate(note) == "Nobody receives this."
        chromium.until("document.querySelector('#reject-kept').textContent == 'Kept.'")
        chromium.click("Reject", "#reject")
        chromium.click("Reject without it")
        assert [each[1:] for each in decided(queue, job)] == [
            ("hold", "Ann", None), ("reject", "Ann", "Nobody receives this."),
        ]  # fmt: skip


def test_drains_and_the_bill_by_each_dimension(console: Console) -> None:
    console.queue.rows(DRAIN)
    with console.signed_in() as client:
        for by in ("kind", "model", "tenant", "key", "hour"):
            page = client.get("/drains", params={"by": by, "window": "7 d"})
            assert "Jobs of each drain" in page.text, page.text
            assert client.get("/drains/bill.csv", params={"by": by}).text.startswith(f'"{by}","attempts"')
        written(console.queue)
        page = client.get("/drains").text
        for shown in ("to edit", "form yield", "clean yield", "approved per compute-hour"):
            assert f'class="number">{shown}' in page
        assert "Nobody has decided on an artifact yet" in page
        [row] = DictReader(client.get("/drains/bill.csv").text.splitlines())
        assert [row[name] for name in ("form_yield", "clean_yield", "decided", "approved_per_compute_hour")] == [
            "1.0", "0.0", "0", "",
        ]  # fmt: skip
        for wrong in ({"by": "moon"}, {"window": "1 y"}):
            assert client.get("/drains", params=wrong).status_code == 400


def test_a_server_that_stops_does_not_wait_for_open_pages(queue: Queue) -> None:
    with ExitStack() as pages:
        with served_door(queue.settings) as address:
            console = Console(queue, address)
            job = console.enqueued("ok", tenant="tenant")
            client = pages.enter_context(console.signed_in())
            for path in ("/now/events", f"/jobs/{job}/events", f"{address}/api/jobs/{job}/events"):
                page = pages.enter_context(client.stream("GET", path))
                assert page.status_code == 200, path
                next(page.iter_raw())
            began = time.monotonic()
        assert time.monotonic() - began < FINISH_SECONDS / 2


def test_what_is_vendored_is_what_its_page_says(tmp_path: Path) -> None:
    rows = re.findall(r"^\| (\S+) \|.*`([0-9a-f]{64})`", (VENDOR / "README.md").read_text(), re.MULTILINE)
    assert {name for name, _ in rows} == {path.name for path in VENDOR.glob("*.min.*")}
    for name, digest in rows:
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == digest, name


def test_the_page_of_the_moment_stays_live(console: Console, chromium: Browser) -> None:
    token = make_link(console.queue.engine, "Ada", "operator", None)
    chromium.load(f"{console.address}/console/enter?token={token}", 1440)
    chromium.press("button.main")
    chromium.until(f"{QUEUED} == '0'")
    console.enqueued("ok")
    chromium.until(f"{QUEUED} == '1'")
