"""Decisions over HTTP: what waits, its current version, and decisions with their refusals."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import httpx
import pytest
from starlette.types import Scope

from tests.support.decided import FINDING, written
from tests.support.door import served_door
from tests.support.engine_rows import register
from tests.support.patience import PATIENCE
from tests.support.queue_bench import Queue
from thothy_ai.db.states import ReviewState
from thothy_ai.http.access import Caller, Everybody, header


class Keyed(Everybody):
    """Requests whose scopes, tenant and key are in headers."""

    async def caller(self, scope: Scope) -> Caller:
        scopes = frozenset((header(scope, b"x-scopes") or "read review").split())
        return Caller(header(scope, b"x-tenant") or "default", header(scope, b"x-key"), scopes)


@pytest.fixture
def api(queue: Queue) -> Iterator[httpx.Client]:
    register(queue, "first", "m")
    with (
        served_door(queue.settings.model_copy(update={"judge_seconds": 1}), access=Keyed("default")) as address,
        httpx.Client(base_url=f"{address}/api", timeout=PATIENCE) as client,
    ):
        yield client


def decided(api: httpx.Client, job_id: UUID, headers: dict[str, str] | None = None, **body: Any) -> httpx.Response:
    return api.post(f"/jobs/{job_id}/decisions", json={"version": 1, "by": "Ann", **body}, headers=headers)


def test_what_waits_is_edited_and_approved(queue: Queue, api: httpx.Client) -> None:
    job_id, held = written(queue), written(queue, ReviewState.HELD)
    assert [each["job_id"] for each in api.get("/review").json()["data"]] == [str(job_id)]
    assert [each["job_id"] for each in api.get("/review?review=held").json()["data"]] == [str(held)]
    assert api.get("/review", headers={"x-tenant": "theirs"}).json() == {"data": []}
    found = api.get(f"/jobs/{job_id}/artifact").json()
    assert (found["version"], found["body"], found["source"]) == (1, {"echo": "The first words."}, "ok and all of it")
    assert found["findings"][0]["part"] == "echo"
    edited = decided(api, job_id, {"x-key": "thothy_1"}, action="edit", body={"echo": "Other words."}).json()
    assert (edited["version"], edited["edited_by"]) == (2, "Ann (thothy_1)")
    assert edited["changes"] == [{"part": "echo", "before": "The first words.", "after": "Other words."}]
    approved = decided(api, job_id, {"x-key": "thothy_1"}, version=2, by=None, action="approve").json()
    assert approved["review"] == "approved"
    assert [each["decided_by"] for each in approved["decisions"]] == ["Ann (thothy_1)", "thothy_1"]
    for form in ("jsonl", "csv", "md", "html"):
        exported = api.get("/artifacts/export", params={"approved": True, "format": form}).text
        assert "Other words." in exported, form
        assert "The first words." not in exported, form


def test_what_cannot_be_decided_is_refused(queue: Queue, api: httpx.Client) -> None:
    job_id, [waiting] = written(queue), queue.enqueue("ok")

    def refused(on: UUID = job_id, headers: dict[str, str] | None = None, **body: Any) -> tuple[int, str, str | None]:
        answer = decided(api, on, headers, **{"action": "approve", **body})
        error = answer.json()["error"]
        return answer.status_code, error["code"], error["param"]

    assert refused(headers={"x-scopes": "chat jobs read"}) == (403, "insufficient_permissions", None)
    assert refused(headers={"x-tenant": "theirs"}) == (404, "not_found", None)
    assert refused(waiting) == (409, "nothing_to_decide", None)
    assert refused(action="publish") == (400, "invalid_value", "action")
    assert refused(by=None) == refused(by="") == (400, "invalid_value", "by")
    assert refused(version=9) == (400, "invalid_value", "version")
    assert refused(version=2**40) == (400, "invalid_value", "version")
    assert refused(action="send_back", note="n" * 2**20) == (400, "invalid_value", "note")
    assert refused(action="edit") == (400, "invalid_value", "body")
    assert decided(api, job_id, action="hold").status_code == 200
    assert decided(api, job_id, action="reject", note="no news").status_code == 200
    assert refused() == (409, "decided", "version")
    assert "Ann chose to reject at " in decided(api, job_id, action="approve").json()["error"]["message"]
    assert api.get(f"/jobs/{UUID(int=1)}/artifact").status_code == 404


@pytest.mark.parametrize(
    ("echo", "review", "says"),
    [
        ("x" * 2**20, "needs_edit", "echo: must have at most 100 characters"),
        ("", "needs_edit", "echo: "),
        ("doubt it", "needs_review", "number_not_in_source"),
        ("stall it", "needs_review", "validator_error"),
    ],
)
def test_an_edit_is_kept_whatever_its_checks_say(
    queue: Queue, api: httpx.Client, echo: str, review: str, says: str
) -> None:
    """Checks run in a process of their own: one that hangs holds up nobody, and is ended."""
    job_id, other = written(queue), written(queue)
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(decided, api, job_id, action="edit", body={"echo": echo})
        assert api.get(f"/jobs/{other}/artifact").status_code == 200
        edited = answer.result().json()
    assert (edited["version"], edited["body"], edited["review"]) == (2, {"echo": echo}, review)
    assert str(edited["problem"] or edited["findings"][0]["reason"]).startswith(says)


def test_findings_outside_the_text_and_purged_jobs_break_nothing(queue: Queue, api: httpx.Client) -> None:
    outside = FINDING | {"start": -5, "end": 10**9, "source_start": 7, "source_end": 3}
    job_id = written(queue, findings=(outside, FINDING | {"part": "no.such.field"}))
    found = api.get(f"/jobs/{job_id}/artifact").json()["findings"]
    assert [(each["part"], each["start"], each["end"]) for each in found] == [
        ("echo", -5, 10**9),
        ("no.such.field", 4, 9),
    ]
    queue.rows("DELETE FROM job")
    assert decided(api, job_id, action="approve").status_code == 404
