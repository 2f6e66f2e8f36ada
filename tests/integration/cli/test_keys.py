"""`thothy keys`: a key of the HTTP API, from its creation to its end."""

from __future__ import annotations

import json
from hashlib import sha256

from sqlalchemy import Engine, text

from tests.support.command_line import Run, one_line
from thothy_ai.db.api_keys import KEY


def test_create_list_and_revoke(run: Run, engine: Engine) -> None:
    assert run("keys", "list").stdout == "No keys.\n"
    key = run("keys", "create", "--tenant", "acme", "--name", "news room").stdout.strip()
    found = KEY.fullmatch(key)
    assert found
    id_ = found[1]
    listed = run("keys", "list").stdout
    assert (id_ in listed, "news room" in listed, "chat jobs read" in listed, key in listed) == (
        True,
        True,
        True,
        False,
    )
    [plain] = json.loads(run("keys", "list", "--json").stdout)
    assert (plain["id"], plain["tenant"], plain["scopes"], plain["revoked_at"]) == (
        id_, "acme", ["chat", "jobs", "read"], None,
    )  # fmt: skip
    with engine.connect() as connection:
        row = connection.execute(text("SELECT * FROM api_key")).one()
    assert row.hash == sha256(key.encode()).digest()
    assert not any(key in str(value) for value in row)
    assert run("keys", "revoke", key, "--yes").stdout == f"Key {id_} revoked.\n"
    assert "revoked 2" in run("keys", "list").stdout
    assert run("keys", "revoke", id_, "--yes").stdout == f"Key {id_} revoked.\n"


def test_limits_scopes_and_the_end(run: Run) -> None:
    options = ("--requests-per-minute", "600", "--tokens-per-minute", "1000000", "--concurrent", "8")
    made = json.loads(
        run("keys", "create", "--tenant", "b", "--scope", "admin", "--scope", "chat", "--expires", "30d", *options,
            "--interactive-seconds-per-day", "3600.5", "--json").stdout
    )  # fmt: skip
    assert made["key"].startswith(f"{made['id']}_")
    listed = run("keys", "list", "--tenant", "b").stdout
    for shown in ("chat admin", "valid until", "600", "1,000,000", "3,600.5"):
        assert shown in listed
    assert run("keys", "list", "--tenant", "nobody").stdout == "No keys.\n"


def test_wrong_input_is_named(run: Run) -> None:
    assert "'write' is not one of chat" in one_line(
        run("keys", "create", "--tenant", "a", "--scope", "write", exit_code=2)
    )
    assert "--tenant: must be" in one_line(run("keys", "create", "--tenant", "../x", exit_code=2))
    assert "--name must be" in one_line(run("keys", "create", "--tenant", "a", "--name", "a\nb", exit_code=2))
    assert "duration" in one_line(run("keys", "create", "--tenant", "a", "--expires", "soon", exit_code=2))
    past = run("keys", "create", "--tenant", "a", "--expires", "2026-01-01", exit_code=2)
    assert "--expires: 2026-01-01 is in the past" in one_line(past)
    assert run("keys", "list").output.strip() == "No keys."
    for option in ("--requests-per-minute", "--tokens-per-minute", "--concurrent", "--interactive-seconds-per-day"):
        assert option in one_line(run("keys", "create", "--tenant", "a", option, "0", exit_code=2))
    assert "no such key" in one_line(run("keys", "revoke", "thothy_nothing", "--yes", exit_code=1))
