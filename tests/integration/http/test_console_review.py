"""The editor's page of the console: its list, decisions, what is kept while it is written, and the keyboard."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from tests.support.browser import Browser
from tests.support.console import Console, csrf_of
from tests.support.decided import FINDING, written
from tests.support.door import served_door
from tests.support.queue_bench import Queue
from thothy_ai.admin.export.pieces import piece_of
from thothy_ai.db.console_links import make_link
from thothy_ai.db.states import ReviewState
from thothy_ai.embedded.process import free_port
from thothy_ai.http.console import review
from thothy_ai.jobs.checks.gates import measure

WRITE = """(text => { text.value = 'Kept words.'; text.dispatchEvent(new Event('input', {bubbles: true})); })
    (document.querySelector('#edit textarea'))"""
POINTS = {"echo": "A\u200cB \U0001f469\u200d\U0001f680  two\nlines\u00ad."}
SHOWN = "!document.querySelector('#unkept').hidden"
WRITTEN = "document.querySelector('#edit textarea').value"


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


def test_the_list_and_the_page_speak_of_the_text(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[object] = []
    monkeypatch.setattr(review, "piece_of", lambda artifact: read.append(artifact) or piece_of(artifact))
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
        read.clear()
        assert "Ann" not in ann.get("/review").text.split("</thead>")[1]
    assert not read  # a text that was listed before is not read again


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
