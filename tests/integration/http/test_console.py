"""The web console: who may see and change what, and its pages in a real browser."""

from __future__ import annotations

import hashlib
import json
import re
import time
from contextlib import ExitStack
from csv import DictReader
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from tests.support.browser import Browser
from tests.support.console import Console, csrf_of, sent
from tests.support.console_world import DEAD, TRIED, fill
from tests.support.decided import written
from tests.support.door import served_door
from tests.support.engine_rows import register
from tests.support.patience import PATIENCE
from tests.support.queue_bench import Queue, eventually
from thothy_ai.admin.jobs import states_of
from thothy_ai.db.api_keys import UNLIMITED, create_key, id_of, revoke_key
from thothy_ai.db.console_links import make_link
from thothy_ai.http.console import jobs as job_pages
from thothy_ai.http.server import FINISH_SECONDS

MARKS = "\u061c\u200b\u200e\u200f\u202e\ufeff\x1b"  # that would change what stands beside them
HOSTILE = f"<script>alert(1)</script>{MARKS}[31m{{{{ 7 * 7 }}}}" + "x" * 2_000
PAGES = (
    "/now", "/review", "/jobs", "/dead", "/drains", "/engines", "/models", "/webhooks", "/keys", "/changes",
)  # fmt: skip
OF_ALL_TENANTS = {"/now", "/drains", "/engines", "/models"}
DRAIN = """INSERT INTO drain
    (started_at, ended_at, succeeded, dead, attempts, with_output, with_artifact, clean, wait_p50, run_p50)
    VALUES (now() - interval '2 hours', now() - interval '1 hour', 90, 10, 120, 100, 80, 60, 4.5, 61)"""
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
            turned = client.get(f"{page}?since=2026-11-21&until=2026-11-20")
            assert turned.status_code == 400
            assert 'role="alert">until: expected a time after since' in turned.text
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


def test_every_engine_has_its_figures_where_they_are_known(console: Console) -> None:
    register(console.queue, "far", "m")
    console.queue.rows(
        "UPDATE engine_session SET running_sequences = 7, waiting_sequences = 2, kv_used = 0.25,"
        " memory_used = 3::bigint << 30, memory_total = 80::bigint << 30 WHERE engine_name = 'far'"
    )
    with console.signed_in() as client:
        assert "10 more alerts</a> need the history" in client.get("/now").text
        assert "/console/runbooks/ThothyQueueGrowing" in client.get("/runbooks").text
        for page in ("/now", "/engines"):
            shown = client.get(page).text
            [far, first] = (shown.partition(f"<td>{name}</td>")[2].partition("</tr>")[0] for name in ("far", "first"))
            assert '7 <span class="more">2 wait</span></td><td class="number">25%' in far, page
            assert "3.0 of 80.0 GiB" in far
            assert '<td class="number">-</td><td class="number">-</td><td class="number">-</td>' in first
            assert "A dash: not known" in shown


def test_adapters_are_shown_with_their_engines_and_aliases_and_are_paused_as_models_are(console: Console) -> None:
    register(console.queue, "near", "m", adapters={"acme": "0123456789abcdef"})
    with console.signed_in() as client:
        assert "<div>acme (adapter)</div>" in client.get("/engines").text
        sent(client, "/models", "/models/alias", alias="house", model="acme")
        shown = client.get("/models").text.partition(">Adapters</h2>")[2].partition("</section>")[0]
        for cell in ("acme", "<td>m</td>", "<div>near</div>", "<div>house</div>", "<td>0123456789ab</td>"):
            assert cell in shown
        paused = sent(client, "/models", "/engines/pause", scope="model", name="acme", back="models").text
        assert "Paused the model acme. Jobs that are" in paused  # not that nothing has this name


def test_a_batch_of_the_api_is_shown_and_changed_alone(console: Console) -> None:
    mine, other, later = (console.enqueued(text) for text in ("ok 1", "ok 2", "ok 3"))
    batch = f"batch_{mine.hex}"
    for job in (mine, later):  # of two portions, and so of two times
        console.queue.rows("UPDATE job SET batch_id = :batch WHERE id = :id", batch=mine, id=job)
    with console.signed_in() as client:
        assert f'href="/console/jobs?batch={batch}"' in client.get(f"/jobs/{mine}").text
        listed = client.get("/jobs", params={"batch": batch}).text
        assert [f"row-{job.hex}" in listed for job in (mine, other, later)] == [True, False, True]
        done = sent(client, "/jobs", "/jobs/change", action="cancel", which="all", query=f"batch={batch}", number="2")
        assert "2 jobs were cancelled" in done.text
        assert client.get("/jobs", params={"batch": "batch_x"}).status_code == 400
    states = states_of(console.queue.engine, [mine, other, later])
    assert [states[job] for job in (mine, other, later)] == ["cancelled", "queued", "cancelled"]


def test_commands_are_copied_by_mouse_and_keyboard(console: Console, chromium: Browser) -> None:
    job, token = console.enqueued("ok"), make_link(console.queue.engine, "Ada", "operator", None)
    chromium.load(f"{console.address}/console/enter?token={token}", 360)
    chromium.press("button.main")
    chromium.load(f"{console.address}/console/jobs/{job}", 360)
    chromium.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    names = "[...document.querySelectorAll('[data-copy]')].map(each => each.textContent)"
    assert chromium.evaluate(names) == ["Copy the Shell commands", "Copy the Python commands"]
    said = "[...document.querySelectorAll('[data-copy] + [role=status]')].map(each => each.textContent)"
    chromium.click("Copy", leads=False)
    chromium.until(f"({said})[0] != ''")
    assert "thothy jobs show" in chromium.evaluate("getSelection().toString()")
    chromium.evaluate("document.querySelectorAll('[data-copy]')[1].focus()")
    chromium.key("Enter")
    chromium.until(f"({said})[1] != ''")
    assert "from thothy_ai import Producer" in chromium.evaluate("getSelection().toString()")
    assert chromium.evaluate(said) == ["Copied.", "Copied."]
    assert not chromium.errors
