"""Who may see and change what in the console, until when, and what of it is recorded."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from tests.support.console import Console, sent
from tests.support.door import PATIENCE
from tests.support.queue_bench import eventually
from thothy_ai.db.api_keys import UNLIMITED, create_key, id_of, list_keys


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
