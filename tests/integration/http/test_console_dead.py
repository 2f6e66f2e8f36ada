"""Dead letters and models in the console, with the checks and the words of the command line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from uuid import UUID

import pytest

from tests.support.console import Console, csrf_of, sent
from thothy_ai.admin.jobs import show_job, states_of


def dead(console: Console, number: int, reason: str, tenant: str = "ours") -> list[UUID]:
    jobs = [console.enqueued(f"ok {reason} {each}", tenant) for each in range(number)]
    die = "UPDATE job SET state = 'dead', reason = :reason, finished_at = now(), attempt = 1 WHERE id = ANY(:ids)"
    console.queue.rows(die, reason=reason, ids=jobs)
    return jobs


def alive(console: Console, jobs: Sequence[UUID]) -> int:
    return sum(state == "queued" for state in states_of(console.queue.engine, jobs).values())


def test_all_that_match_are_queued_again_with_their_number_said_before(console: Console) -> None:
    ours, others = dead(console, 3, "empty"), dead(console, 2, "truncated")
    with console.signed_in() as client:
        page = client.get("/dead")
        for shown in ("all 5 that match", "empty", "truncated", "No job is in quarantine"):
            assert shown in page.text
        assert "all 3 that match" in client.get("/dead?reason=empty").text
        asked = sent(client, "/dead", "/dead/ask", action="redrive", which="all", query="reason=empty")
        assert "Queue 3 jobs again?" in asked.text
        counted = re.search(r'name="until" value="([^"]+)"', asked.text)
        assert counted
        late = dead(console, 1, "empty")  # dies after the number was said
        form = {"action": "redrive", "which": "all", "query": "reason=empty", "until": counted[1], "number": "3"}
        form |= {"csrf": csrf_of(asked), "why": "new driver"}
        for few in ("2", "x"):
            assert client.post("/dead/change", data=form | {"number": few}).status_code == 409, few
        for wrong in ({"action": "bury"}, {"until": ""}, {"until": "then"}, {"deadline": "then"}, {"why": "x" * 501}):
            assert client.post("/dead/change", data=form | wrong).status_code == 400, wrong
        assert alive(console, ours) == 0
        assert "3 jobs queued again." in client.post("/dead/change", data=form).text
        assert (alive(console, ours), alive(console, [*late, *others])) == (3, 0)
        [event] = [each for each in show_job(console.queue.engine, ours[0])["events"] if each["event"] == "redriven"]
        assert event["detail"] == "by Ada in the console: new driver"


def test_some_are_deleted_and_those_of_another_tenant_stay(console: Console) -> None:
    [ours], [theirs] = dead(console, 1, "empty"), dead(console, 1, "empty", "theirs")
    with console.signed_in(tenant="ours") as client:
        assert str(theirs) not in client.get("/dead?tenant=theirs").text
        fields = {"action": "purge", "which": "ticked", "id": [str(ours), str(theirs)]}
        asked = sent(client, "/dead", "/dead/ask", **fields)
        assert "Delete 1 job, history included?" in asked.text
        said = dict(re.findall(r'name="(until|number)" value="([^"]+)"', asked.text))
        assert "1 job deleted." in sent(client, "/dead", "/dead/change", **fields, **said).text
        assert "No dead jobs match." in sent(client, "/dead", "/dead/ask", action="purge", which="all").text
        assert sent(client, "/dead", "/dead/ask", action="purge").status_code == 400
        assert sent(client, "/dead", "/dead/ask", action="purge", id="x").status_code == 400
    assert list(states_of(console.queue.engine, [ours, theirs])) == [theirs]


@pytest.mark.parametrize("wrong", ["kind=ecoh", "reason=emty", "since=then", "since=2026-11-21&until=2026-11-20"])
def test_a_filter_with_a_slip_is_refused_by_name(console: Console, wrong: str) -> None:
    with console.signed_in() as client:
        page = client.get(f"/dead?{wrong}")
        assert page.status_code == 400
        assert ("until" if "&" in wrong else wrong.partition("=")[0]) + ": " in page.text
        assert sent(client, "/dead", "/dead/ask", action="purge", which="all", query=wrong).status_code == 400


def test_a_slip_in_a_filter_lists_no_names_of_other_tenants(console: Console) -> None:
    secret = "UPDATE job SET kind = :kind WHERE id = ANY(:ids)"
    for tenant in ("ours", "theirs"):
        console.queue.rows(secret, kind=f"kind_of_{tenant}", ids=dead(console, 1, f"reason_of_{tenant}", tenant))
    with console.signed_in("reader", "ours") as reader, console.signed_in() as operator:
        for name in ("kind", "reason"):
            assert reader.get(f"/dead?{name}={name}_of_ours").status_code == 200
            assert operator.get(f"/dead?{name}={name}_of_theirs").status_code == 200
            for slip in (f"{name}_of_theirs", "slip"):
                refused = reader.get(f"/dead?{name}={slip}")
                assert refused.status_code == 400
                assert f"{name}_of_ours" in refused.text
                assert f"{name}_of_theirs" not in re.sub(f'(&#39;|")({slip})\\1', "", refused.text)


def test_quarantine_names_who_was_on_an_engine_when_it_died(console: Console) -> None:
    job = console.enqueued("ok")
    console.queue.rows("UPDATE job SET engine_deaths = 2 WHERE id = :id", id=job)
    with console.signed_in() as client, console.signed_in(tenant="theirs") as other:
        assert str(job) in client.get("/dead").text
        assert str(job) not in other.get("/dead").text


def test_a_pause_of_what_there_is_not_is_refused(console: Console) -> None:
    with console.signed_in() as client:
        for scope, name in (("kind", "ecoh"), ("engine", "secnd")):
            refused = sent(client, "/engines", "/engines/pause", scope=scope, name=name)
            assert refused.status_code == 400
            assert f"{scope}: " in refused.text
        assert (
            "Paused the engine first." in sent(client, "/engines", "/engines/pause", scope="engine", name="first").text
        )
        again = sent(client, "/engines", "/engines/pause", scope="engine", name="first", note="a fan")
        assert "The engine first was paused already; the note is now: a fan." in again.text


def test_a_pause_of_what_nothing_is_known_of_says_so(console: Console) -> None:
    console.enqueued("ok")
    unknown = "No job or engine of this name is known"
    with console.signed_in() as client:
        for scope, name, known in (
            ("tenant", "ours", True),
            ("tenant", "uors", False),
            ("model", "m", True),
            ("model", "n", False),
        ):
            said = sent(client, "/engines", "/engines/pause", scope=scope, name=name).text
            assert f"Paused the {scope} {name}." in said
            assert (unknown not in said) is known, name


def test_models_show_who_serves_them_and_can_be_paused(console: Console) -> None:
    with console.signed_in() as client:
        page = client.get("/models").text
        for shown in ('<th scope="row">m', "first", "No aliases."):
            assert shown in page, shown
        paused = sent(client, "/models", "/engines/pause", scope="model", name="m", back="models")
        assert str(paused.url).endswith("/models")
        assert "Paused the model m." in paused.text
        assert "Resumed the model m." in sent(client, "/models", "/engines/resume", scope="model", name="m").text
        moved = sent(client, "/models", "/models/alias", alias="fast", model="gone")
        assert "fast now stands for gone. No engine serves it at the moment." in moved.text
        assert "no longer gone." in sent(client, "/models", "/models/alias", alias="fast", model="m").text
