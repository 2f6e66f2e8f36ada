"""Who may see and change what in the console, until when, and what of it is recorded."""

from __future__ import annotations

import html
import json
import re
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from tests.support.console import Console, csrf_of, routes, sent
from tests.support.console_world import fill
from tests.support.decided import written
from tests.support.patience import PATIENCE
from tests.support.queue_bench import eventually
from thothy_ai.db.api_keys import UNLIMITED, create_key, id_of, list_keys
from thothy_ai.http.console.site import stamp


def over(client: httpx.Client) -> bool:
    return "/sign-in" in str(client.get("/jobs").url)


def test_no_copy_of_a_cookie_outlives_the_sign_out(console: Console) -> None:
    with console.signed_in() as client, console.signed_in(name="Bo") as other:
        copy = httpx.Client(base_url=client.base_url, cookies=dict(client.cookies), follow_redirects=True)
        with copy:
            assert not over(copy)
            assert client.post("/sign-out").status_code == 403  # without the session's token
            assert not over(copy)
            sent(client, "/jobs", "/sign-out")
            eventually(lambda: over(copy))
            assert copy.post("/engines/pause", data={"csrf": "any"}).status_code == 401
        assert not over(other)


def test_operators_end_the_sessions_of_a_link_and_of_a_key(console: Console) -> None:
    key = create_key(console.queue.engine, "ours", ["read"], UNLIMITED, name="desk", expires_at=None)
    with (
        console.signed_in() as operator,
        console.signed_in(tenant="theirs") as theirs,
        console.signed_in("editor", "ours", name="Ann") as ann,
        httpx.Client(base_url=f"{console.address}/console", timeout=PATIENCE, follow_redirects=True) as desk,
    ):
        eventually(lambda: desk.post("/sign-in", data={"key": key}).status_code == 200)
        page = operator.get("/keys")
        session = re.search(
            r'name="session" value="([^"]+)"><button>End<span class="hidden"> the session of Ann', page.text
        )
        assert session
        assert "Ann" not in theirs.get("/keys").text
        sent(theirs, "/keys", "/keys/sign-out", session=session[1])
        assert sent(theirs, "/keys", "/keys/sign-out", key=id_of(key)).status_code == 200
        for wrong in ({}, {"session": "x"}, {"session": session[1], "key": "k"}):
            assert sent(operator, "/keys", "/keys/sign-out", **wrong).status_code == 400
        assert not over(ann)
        assert not over(desk)
        assert "1 session is over" in sent(operator, "/keys", "/keys/sign-out", session=session[1]).text
        assert "1 session is over" in sent(operator, "/keys", "/keys/sign-out", key=id_of(key)).text
        eventually(lambda: over(ann) and over(desk))
        assert "Ann" not in operator.get("/keys").text.split("Signed in")[1]
        eventually(lambda: desk.post("/sign-in", data={"key": key}).status_code == 200)  # the key is valid still


@pytest.mark.parametrize("character", ["x", "字", "\N{PARTY POPPER}"])
def test_a_notice_in_any_writing_reaches_its_page(console: Console, character: str) -> None:
    with console.signed_in() as client:
        done = sent(client, "/engines", "/engines/pause", scope="tenant", name=character * 450)
        assert f"Paused the tenant {character * 450}." in done.text
        set_cookies = [each.headers.get("set-cookie", "") for each in done.history]
        assert 0 < max(map(len, set_cookies)) < 4_096
        client.cookies.set("thothy_notice", "no base 64", path="/console")
        assert client.get("/jobs").status_code == 200


def test_a_key_is_made_with_every_limit(console: Console) -> None:
    limits = {
        "requests_per_minute": 600, "tokens_per_minute": 10**6, "concurrent_requests": 8,
        "interactive_seconds_per_day": 3600.5,
    }  # fmt: skip
    usual = {"tenant": "ours", "scope": ["chat", "admin"]}
    with console.signed_in() as client:
        sent(client, "/keys", "/keys/create", **usual, days=30, **limits)
        wrong = (
            *({name: value} for name in limits for value in ("0", "-1", "x", "1e99", "nan", "1" * 20)),
            {"days": "3651"}, {"scope": ["chat", "moon"]}, {"tenant": " "}, {"name": "x" * 101},
        )  # fmt: skip
        for each in wrong:
            refused = sent(client, "/keys", "/keys/create", **{**usual, **each})
            assert refused.status_code == 400, each
            assert next(iter(each)) in refused.text, each
        eventually(lambda: "3,600.5 GPU-seconds/day" in client.get("/keys").text)
    with console.queue.engine.connect() as connection:
        [key] = list_keys(connection)
    assert {name: getattr(key.limits, name) for name in limits} == limits
    assert key.expires_at is not None
    assert abs(key.expires_at - datetime.now(UTC) - timedelta(days=30)) < timedelta(hours=1)
    assert key.scopes == {"chat", "admin"}


OPEN_TO_ALL = {"/console", "/console/sign-in", "/console/enter"}  # a session begins there
OF_ALL_TENANTS = ("/console/now", "/console/drains", "/console/engines", "/console/models")  # beginnings of paths
NEEDED = {
    "/console/keys": "operator",
    "/console/sign-out": "reader",
    "/console/review/{id:uuid}/draft": "editor",
    "/console/review/{id:uuid}/decide": "editor",
}  # otherwise a page needs a reader, and a form an operator
ROLES = ("reader", "editor", "operator")


def answered(client: httpx.Client, method: str, address: str, csrf: str) -> int:
    """The status of a page or a form, without what a stream goes on to say."""
    data = {"csrf": csrf} if method == "POST" else None
    with client.stream(method, address.removeprefix("/console"), data=data, follow_redirects=False) as answer:
        return answer.status_code


@pytest.mark.parametrize("role", ROLES)
def test_every_route_is_for_its_roles_and_tenants(console: Console, role: str) -> None:
    world = fill(console.queue, "Words of a tenant.")  # the default one
    job = {"/console/review": world.piece, "/console/jobs": world.dead}
    named = {"began": stamp(world.drained_from), "table": "bill", "name": "ThothyDeadLetters"}

    def address(path: str) -> str:
        about = next((each for start, each in job.items() if path.startswith(start)), None)
        filled = path.replace("{id:uuid}", str(about))
        return re.sub(r"\{(\w+)[^}]*\}", lambda found: named.get(found[1], "x"), filled)

    with (
        console.signed_in(role) as everywhere,
        console.signed_in(role, "default") as ours,
        console.signed_in(role, "theirs") as theirs,
        httpx.Client(base_url=f"{console.address}/console", timeout=PATIENCE) as nobody,
    ):
        viewers = [(client, tenant, csrf_of(client.get("/jobs"))) for client, tenant in (
            (everywhere, None), (ours, "default"), (theirs, "theirs"),
        )]  # fmt: skip
        for method, path in [(each, path) for each in ("GET", "POST") for path in sorted(routes(each) - OPEN_TO_ALL)]:
            needed = NEEDED.get(path, "reader" if method == "GET" else "operator")
            signed_out = 401 if method == "POST" and path != "/console/sign-out" else 303
            assert answered(nobody, method, address(path), "") == signed_out, path
            for client, tenant, csrf in viewers:
                if path == "/console/sign-out":
                    csrf = "of another session"  # noqa: PLW2901  so that nobody is signed out
                found = answered(client, method, address(path), csrf)
                if (
                    path == "/console/sign-out"
                    or ROLES.index(role) < ROLES.index(needed)
                    or (tenant is not None and path.startswith(OF_ALL_TENANTS))
                ):
                    assert found == 403, (method, path, tenant)
                elif tenant == "theirs" and "{id:uuid}" in path:
                    assert found == 404, (method, path, tenant)
                else:
                    assert found in ({200} if method == "GET" else {200, 303, 400, 404}), (method, path, tenant, found)


NO_CHANGES = {  # of what others see
    "/console/sign-in", "/console/enter", "/console/jobs/ask", "/console/dead/ask", "/console/keys/ask",
    "/console/review/{id:uuid}/draft",
}  # fmt: skip


def test_every_form_that_changes_something_is_recorded_with_before_and_after(console: Console) -> None:
    world, queue = fill(console.queue, "Words of a record."), console.queue
    [delivery] = queue.rows("SELECT id FROM webhook_delivery")
    key = create_key(queue.engine, "default", ["read"], UNLIMITED, name="desk", expires_at=None)
    until = stamp(datetime.now(UTC) + timedelta(days=1))
    acts: list[tuple[str, dict[str, object], str, str]] = [
        ("/jobs/change", {"action": "cancel", "id": str(world.waiting), "number": "1"}, "cancel jobs", "queued"),
        ("/dead/change", {"action": "redrive", "id": str(world.dead), "number": "1", "until": until},
         "queue dead jobs again", "repetition"),
        ("/review/{id:uuid}/decide", {"action": "approve", "version": "1"}, "approve", "needs_review"),
        ("/engines/pause", {"scope": "kind", "name": "echo", "note": "why"}, "pause", "why"),
        ("/engines/resume", {"scope": "kind", "name": "echo"}, "resume", "why"),
        ("/models/alias", {"alias": "fast", "model": "m"}, "set alias", '"m"'),
        ("/models/unalias", {"alias": "fast"}, "remove alias", '"m"'),
        ("/webhooks/retry", {"id": str(delivery[0])}, "try webhooks again", str(delivery[0])),
        ("/keys/create", {"tenant": "default", "scope": "read", "tokens_per_minute": "7"}, "create key", "7"),
        ("/keys/revoke", {"id": id_of(key)}, "revoke key", "desk"),
        ("/keys/sign-out", {"key": id_of(key)}, "end sessions", "signed_in"),
        ("/sign-out", {}, "sign out", "signed_in"),
    ]  # fmt: skip
    assert {f"/console{path}" for path, *_ in acts} | NO_CHANGES == routes("POST"), "name what it records above"
    recorded = "SELECT name, action, target, before, after, at FROM audit_log ORDER BY id DESC"
    queue.rows("DELETE FROM audit_log")
    before = 0
    with console.signed_in() as client:
        eventually(lambda: id_of(key) in client.get("/keys").text)
        for path, fields, action, shown in acts:
            answer = sent(client, "/jobs", path.replace("{id:uuid}", str(world.piece)), **fields)
            assert answer.status_code == 200, (path, answer.text)
            log = queue.rows(recorded)
            assert len(log) == (before := before + 1), path
            assert tuple(log[0][:2]) == ("Ada", action)
            assert log[0].target
            assert action == "create key" or log[0].before, path
            assert log[0].after, path
            assert shown in json.dumps([log[0].before, log[0].after]), path
            assert datetime.now(UTC) - log[0].at < timedelta(minutes=5)
    with console.signed_in() as client:
        exported = [json.loads(line) for line in client.get("/changes.jsonl").text.splitlines()]
        page = client.get("/changes").text
    assert [each["action"] for each in exported[: len(acts)]] == [action for _, _, action, _ in reversed(acts)]
    assert all(html.escape(action) in page for _, _, action, _ in acts)


def test_what_was_refused_is_recorded_as_refused(console: Console) -> None:
    job = written(console.queue)
    with console.signed_in() as client:
        assert sent(client, "/models", "/models/alias", alias="m", model="m").status_code == 400
        for action, status in (("approve", 200), ("hold", 409)):
            assert sent(client, "/jobs", f"/review/{job}/decide", action=action, version="1").status_code == status
        log = [json.loads(line)["after"] for line in client.get("/changes.jsonl").text.splitlines()]
    assert ["refused" in each for each in log] == [True, False, True]
    assert "own name" in log[2]["refused"]
