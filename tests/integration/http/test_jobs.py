"""`/api` as a program in any language sees it: jobs, artifacts, batches, kinds, and the document about them."""

from __future__ import annotations

import base64
import functools
import json
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any
from uuid import uuid4

import httpx
import jsonschema_rs
import pytest

from tests.integration.http.test_batches import NamedTenants
from tests.support.door import served_door
from tests.support.engine_rows import register
from tests.support.patience import PATIENCE
from tests.support.queue_bench import Queue, RunnerBench, eventually, runner_bench, running
from thothy_ai.admin.job_watch import JobSnapshot, JobWatch
from thothy_ai.errors import DatabaseUnreachableError
from thothy_ai.http.following import MAX_OF_ONE
from thothy_ai.http.queue_routes import QueueRoutes
from thothy_ai.queue.webhooks.deliverer import Deliverer

Asking = Callable[..., httpx.Response]


@pytest.fixture
def api(queue: Queue) -> Iterator[httpx.Client]:
    register(queue, "first", "m")
    with (
        served_door(queue.settings, access=NamedTenants("ours")) as address,
        httpx.Client(base_url=f"{address}/api", timeout=PATIENCE) as client,
    ):
        yield client


@pytest.fixture
def bench(queue: Queue) -> Iterator[RunnerBench]:
    with runner_bench(queue) as bench:
        yield bench


def echo(text: str, **options: Any) -> dict[str, Any]:
    return {"kind": "echo", "request": {"text": text}} | options


def asking(**fields: Any) -> dict[str, Any]:
    request = {"model": "m", "messages": [{"role": "user", "content": "hello"}]} | fields
    return {"kind": "chat", "request": request}


def nested(levels: int) -> dict[str, Any]:
    return asking(messages=[{"a": functools.reduce(lambda inner, _: {"a": inner}, range(levels), {})}])


def cursor(attempt: str) -> str:
    return base64.urlsafe_b64encode(f"2026-01-01T00:00:00+00:00 {uuid4()} {attempt}".encode()).decode()


def enqueued(api: httpx.Client, text: str, **options: Any) -> str:
    answer = api.post("/jobs", json=echo(text, **options))
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id"])


def error_of(answer: httpx.Response) -> tuple[int, str | None, str | None]:
    error = answer.json()["error"]
    return answer.status_code, error["code"], error["param"]


def test_a_job_is_enqueued_waited_for_and_read(api: httpx.Client, bench: RunnerBench) -> None:
    job_id = enqueued(api, "ok then", priority=5, deadline="2099-01-01T00:00:00Z")
    first = api.get(f"/jobs/{job_id}/wait?timeout=0").json()
    assert (first["state"], first["priority"], first["deadline"]) == ("queued", 5, "2099-01-01T00:00:00Z")
    with ThreadPoolExecutor() as pool:
        waited = pool.submit(api.get, f"/jobs/{job_id}/wait", params={"timeout": 60})
        eventually(lambda: bench.hand_over() or waited.done())
    assert waited.result().json()["state"] == "succeeded"
    job = api.get(f"/jobs/{job_id}").json()
    assert job["request"] == {"text": "ok then", "more": 0}
    assert [(each["attempt"], each["outcome"]) for each in job["attempts"]] == [(1, "succeeded")]
    assert [each["body"] for each in job["artifacts"]] == [{"echo": "ok then"}]


def test_a_key_names_a_job(api: httpx.Client) -> None:
    key = {"idempotency-key": "the key"}
    first, again = (api.post("/jobs", json=echo("ok"), headers=key).json() for _ in range(2))
    assert first["id"] == again["id"]
    assert first["idempotency_key"] == "the key"
    other = api.post("/jobs", json=echo("other"), headers=key)
    assert error_of(other) == (409, "idempotency_conflict", "idempotency_key")
    theirs = api.post("/jobs", json=echo("other"), headers=key | {"x-tenant": "theirs"})
    assert theirs.json()["id"] != first["id"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "kind"),
        ([], None),
        (echo("ok") | {"kind": "sonnet"}, "kind"),
        (echo(""), "request.text"),
        (echo("ok") | {"request": []}, "request"),
        (echo("ok") | {"request": {"text": "ok", "colour": "red"}}, "request.colour"),
        (echo("ok", colour="red"), "colour"),
        (echo("ok", priority="5"), "priority"),
        (echo("ok", priority=101), "priority"),
        (echo("ok", deadline="2000-01-01T00:00:00Z"), "deadline"),
        (echo("ok", deadline="2099-01-01T00:00:00"), "deadline"),
        (echo("ok", deadline=4102444800), "deadline"),
        (echo("ok", max_attempts=0), "max_attempts"),
        (echo("ok", model="no model"), "model"),
        (echo("ok", webhook="ftp://x"), "webhook"),
        (echo("\ud800"), "request.text"),
        (echo("ok") | {"\ud800": 1}, None),
        (nested(100), None),
        (echo("ok", webhook="http://a/\0"), "webhook"),
        (asking(stop="\0"), "request.stop"),
        (asking(stop=["a", "\0"]), "request.stop.1"),
        (asking(metadata={"a\0": "b"}), "request.metadata"),
        (asking(logit_bias={"\0": 1}), "request.logit_bias"),
    ],
)
def test_a_job_that_is_not_valid_is_refused_by_field(api: httpx.Client, body: object, param: str | None) -> None:
    headers = {"content-type": "application/json"}
    status, code, found = error_of(api.post("/jobs", content=json.dumps(body), headers=headers))
    assert (status, found) == (400, param)
    assert code in {"invalid_json", "invalid_value", "missing_required_parameter", "unsupported_parameter"}


def test_jobs_are_listed_by_filters_in_pages(api: httpx.Client, bench: RunnerBench) -> None:
    ids = [enqueued(api, f"{word} {word}") for word in ("ok", "bad", "ok")]
    bench.settle()
    page = api.get("/jobs", params={"limit": 2}).json()
    assert ([each["id"] for each in page["data"]], page["has_more"]) == (ids[:0:-1], True)
    rest = api.get("/jobs", params={"limit": 2, "after": page["data"][-1]["id"]}).json()
    assert ([each["id"] for each in rest["data"]], rest["has_more"]) == (ids[:1], False)
    dead = api.get("/jobs", params=[("state", "dead"), ("state", "cancelled")]).json()["data"]
    assert [(each["id"], each["reason"]) for each in dead] == [(ids[1], "invalid_grammar")]
    assert api.get("/jobs", params={"kind": "hook"}).json() == {"data": [], "has_more": False}
    assert error_of(api.get("/jobs?state=odd"))[2] == "state.0"
    assert error_of(api.get("/jobs?limit=0"))[2] == "limit"
    assert error_of(api.get("/jobs?limit=1&limit=2"))[2] == "limit"
    assert error_of(api.get("/jobs?colour=red"))[1:] == ("unsupported_parameter", "colour")


def test_jobs_are_cancelled_and_tried_again(api: httpx.Client) -> None:
    job_id = enqueued(api, "ok")
    assert error_of(api.post(f"/jobs/{job_id}/retry")) == (409, "not_retryable", None)
    assert api.post(f"/jobs/{job_id}/cancel").json()["state"] == "cancelled"
    assert api.post(f"/jobs/{job_id}/cancel").json()["state"] == "cancelled"
    assert api.post(f"/jobs/{job_id}/retry").json()["state"] == "queued"


def test_artifacts_are_listed_in_pages_and_exported(api: httpx.Client, bench: RunnerBench) -> None:
    for number in range(3):
        enqueued(api, f"ok {number}")
    enqueued(api, "hopeless")
    bench.settle()
    found, after = [], None
    while True:
        page = api.get("/artifacts", params={"limit": 2} | ({"after": after} if after else {})).json()
        found += [each["body"]["echo"] for each in page["data"]]
        if (after := page["next"]) is None:
            break
    assert sorted(found) == ["hopeless", "ok 0", "ok 1", "ok 2"]
    exported = api.get("/artifacts/export")
    lines = [json.loads(each) for each in exported.text.splitlines()]
    assert sorted(each["body"]["echo"] for each in lines) == ["ok 0", "ok 1", "ok 2"]
    for form, media, beginning in (
        ("csv", "text/csv", '\ufeff"kind","locale"'),
        ("md", "text/markdown", '---\ntitle: "ok'),
        ("html", "text/html", "<!doctype html>"),
    ):
        exported = api.get("/artifacts/export", params={"format": form})
        assert exported.headers["content-type"] == f"{media}; charset=utf-8"
        assert exported.headers["content-disposition"] == f'attachment; filename="artifacts.{form}"'
        assert exported.text.startswith(beginning)
        assert [f"ok {number}" in exported.text for number in range(4)] == [True, True, True, False]
    assert json.loads(api.get("/artifacts/export?verdict=rejected").text)["body"] == {"echo": "hopeless"}
    assert error_of(api.get("/artifacts/export?format=pdf"))[2] == "format"
    assert error_of(api.get("/artifacts?after=x"))[2] == "after"


@pytest.mark.parametrize(
    ("path", "param"),
    [
        *[(f"{path}?{name}=%00", name) for path in ("jobs", "artifacts/export") for name in ("kind", "key", "source")],
        ("artifacts?after=" + cursor("9" * 20), "after"),
        ("artifacts?after=" + cursor("0"), "after"),
        ("artifacts?after=%00", "after"),
    ],
)
def test_a_query_that_the_record_cannot_ask_is_refused(api: httpx.Client, path: str, param: str) -> None:
    assert error_of(api.get(path)) == (400, "invalid_value", param)


def test_a_batch_is_enqueued_as_a_whole_and_cancelled(api: httpx.Client, queue: Queue, bench: RunnerBench) -> None:
    wrong = api.post("/batches", json={"jobs": [echo("ok"), echo("")]})
    assert error_of(wrong) == (400, "invalid_value", "jobs.1.request.text")
    assert error_of(api.post("/batches", json={"jobs": []}))[2] == "jobs"
    twice = [echo("a", idempotency_key="k"), echo("b", idempotency_key="k")]
    assert error_of(api.post("/batches", json={"jobs": twice})) == (
        409,
        "idempotency_conflict",
        "jobs.1.idempotency_key",
    )
    assert queue.rows("SELECT FROM job") == []
    made = api.post("/batches", json={"jobs": [echo("ok"), echo("hang on")]}).json()
    listed = api.get("/jobs", params={"batch": made["id"]}).json()["data"]
    assert [each["id"] for each in listed] == made["jobs"][::-1]

    def has_states(states: dict[str, int]) -> bool:
        bench.hand_over()
        return bool(api.get(f"/batches/{made['id']}").json()["states"] == states)

    eventually(lambda: has_states({"succeeded": 1, "running": 1}))
    with running(Deliverer(queue.settings)):
        assert api.post(f"/batches/{made['id']}/cancel").status_code == 200
        eventually(lambda: has_states({"succeeded": 1, "cancelled": 1}))
        eventually(lambda: api.get("/batches").json()["data"][0]["ended_at"])
    assert queue.rows("SELECT FROM webhook_delivery") == []


def test_events_tell_the_states_of_a_job(api: httpx.Client, bench: RunnerBench) -> None:
    job_id = enqueued(api, "ok")
    with api.stream("GET", f"/jobs/{job_id}/events") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.iter_lines()
        said = [next(lines), next(lines)]
        bench.settle()
        said += list(lines)
    assert said[:2] == ["event: state", 'data: {"state":"queued","attempt":0}']
    assert said[-3:-1] == ["event: end", 'data: {"state":"succeeded","reason":null,"detail":null}']


def test_events_outlive_the_database_and_end_with_the_job(api: httpx.Client, queue: Queue) -> None:
    job_id = enqueued(api, "ok")
    look, failures = JobWatch.look, [DatabaseUnreachableError("Postgres is away")]

    def looked(watch: JobWatch) -> JobSnapshot:
        snapshot = look(watch)  # the first one is told
        if seen and failures:
            raise failures.pop()
        seen.append(watch)
        return snapshot

    seen: list[JobWatch] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JobWatch, "look", looked)
        with api.stream("GET", f"/jobs/{job_id}/events") as answer:
            lines = answer.iter_lines()
            assert next(lines) == "event: state"
            eventually(lambda: not failures)
            queue.rows("DELETE FROM job")
            said = list(lines)
    assert said[-3] == "event: error"
    assert json.loads(said[-2].removeprefix("data: "))["error"]["code"] == "not_found"


def test_nobody_can_hold_all_streams_of_events(api: httpx.Client) -> None:
    path = f"/jobs/{enqueued(api, 'ok')}/events"
    with ExitStack() as held:
        streams = [held.enter_context(api.stream("GET", path)).iter_lines() for _ in range(MAX_OF_ONE)]
        assert {next(lines) for lines in streams} == {"event: state"}
        assert error_of(api.get(path)) == (429, "too_many_requests", None)

    def is_free() -> bool:
        with api.stream("GET", path) as answer:
            return answer.status_code == 200

    eventually(is_free)


def test_an_export_that_cannot_begin_has_its_status(api: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object, **__: object) -> Iterator[Any]:
        raise DatabaseUnreachableError("Postgres is away")
        yield

    monkeypatch.setattr("thothy_ai.http.api.artifacts.stream_artifacts", away)
    assert error_of(api.get("/artifacts/export")) == (503, "database_unavailable", None)


def test_events_tell_what_a_job_writes(api: httpx.Client, bench: RunnerBench) -> None:
    bench.client.said = ["one ", "two "]
    job_id = enqueued(api, "hang on")
    bench.hand_over()
    heard = ""
    with api.stream("GET", f"/jobs/{job_id}/events") as answer:
        for line in answer.iter_lines():
            if line.startswith("data: {") and '"text"' in line:
                piece = json.loads(line.removeprefix("data: "))
                assert (piece["attempt"], piece["at"]) == (1, len(heard))
                heard += piece["text"]
            if heard == "one two ":
                break
    assert api.post(f"/jobs/{job_id}/cancel").status_code == 200


def test_what_is_another_tenant_s_does_not_exist(api: httpx.Client) -> None:
    job_id = enqueued(api, "ok")
    batch_id = api.post("/batches", json={"jobs": [echo("ok")]}).json()["id"]
    theirs = {"x-tenant": "theirs"}
    for path in (f"/jobs/{job_id}", f"/jobs/{job_id}/wait", f"/jobs/{job_id}/events", f"/batches/{batch_id}"):
        assert api.get(path, headers=theirs).status_code == 404
    for path in (f"/jobs/{job_id}/cancel", f"/jobs/{job_id}/retry", f"/batches/{batch_id}/cancel"):
        assert api.post(path, headers=theirs).status_code == 404
    for path in ("/jobs", "/batches", "/artifacts"):
        assert api.get(path, headers=theirs).json()["data"] == []
    assert api.get("/artifacts/export", headers=theirs).text == ""
    assert api.get(f"/jobs/{job_id}").json()["state"] == "queued"


def test_the_document_describes_every_route_and_every_kind(api: httpx.Client, queue: Queue) -> None:
    document = api.get("/openapi.json").json()
    described = {(path, method.upper()) for path, methods in document["paths"].items() for method in methods}
    routes = QueueRoutes(queue.settings)
    served = {
        (route.path, method)
        for route in routes.routes
        if route.path.startswith("/api/") and route.path != "/api/openapi.json"
        for method in route.methods - {"HEAD"}
    }
    assert described == served
    names = [operation["operationId"] for methods in document["paths"].values() for operation in methods.values()]
    assert len(set(names)) == len(names)
    components = document["components"]
    assert all(map(jsonschema_rs.meta.is_valid, components["schemas"].values()))
    new_job = jsonschema_rs.validator_for({"$ref": "#/components/schemas/NewJobAlone", "components": components})
    assert new_job.is_valid(echo("ok"))
    assert not new_job.is_valid({"kind": "echo", "request": {"words": "ok"}})
    chat = asking()["request"]
    assert new_job.is_valid({"kind": "chat", "request": chat})
    assert new_job.is_valid({"kind": "chat", "request": {"messages": chat["messages"]}})
    assert not new_job.is_valid({"kind": "chat", "request": {"messages": "hello"}})
    kinds = {each["name"]: each for each in api.get("/kinds").json()["data"]}
    assert {"chat", "completion", "echo", "hook"} <= set(kinds)
    assert api.get("/kinds/echo").json() == kinds["echo"]
    assert error_of(api.get("/kinds/sonnet"))[:2] == (404, "not_found")


SIGNS = [chr(code) for code in (0, 9, 34, 48, 65, 92, 0xE4, 0x2028, 0xD800, 0x1F600)]


def some_text(draw: random.Random) -> str:
    return "".join(draw.choices(SIGNS, k=draw.randrange(10)))


def some_value(draw: random.Random, depth: int = 0) -> Any:
    """Any JSON value, nested three times at most."""
    if depth < 3 and draw.random() < 0.4:
        inner = [some_value(draw, depth + 1) for _ in range(draw.randrange(4))]
        return inner if draw.random() < 0.5 else {some_text(draw): each for each in inner}
    leaves = None, True, draw.randint(-(2**70), 2**70), draw.uniform(-1e9, 1e9), some_text(draw), "echo"
    return draw.choice(leaves)


QUERIES = ("state", "after", "limit", "since", "key", "timeout")
FIELDS = ("kind", "request", "priority", "deadline", "not_before", "max_attempts", "max_compute_seconds", "model")


@pytest.mark.parametrize("seed", range(6))
def test_no_body_and_no_query_makes_the_server_fail(api: httpx.Client, seed: int) -> None:
    # Hypothesis does not do: the server runs in this process, and its use of `random` looks like the strategies'.
    draw = random.Random(seed)
    for _ in range(10):
        fields = {name: some_value(draw) for name in draw.sample(FIELDS, draw.randrange(len(FIELDS)))}
        body = fields if draw.random() < 0.8 else some_value(draw)
        query = {name: some_text(draw) for name in draw.sample(QUERIES, draw.randrange(3))}
        place = draw.choice((enqueued(api, "ok"), str(uuid4()), "0", "%00", ".."))
        for path, sent in (("/jobs", body), ("/batches", {"jobs": [body]})):
            answer = api.post(path, content=json.dumps(sent), headers={"content-type": "application/json"})
            assert answer.status_code in {200, 400}, answer.text
        query = {name: text.encode(errors="replace").decode() for name, text in query.items()}
        for path in ("/jobs", "/artifacts", "/batches", f"/jobs/{place}", f"/batches/{place}"):
            assert api.get(path, params=query).status_code in {200, 400, 404}
        if "timeout" not in query:
            assert api.get(f"/jobs/{place}/wait", params=query | {"timeout": "0"}).status_code in {200, 400, 404}
