"""`thothy console`: the address that it prints."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine

from tests.support.command_line import Run
from thothy_ai.db.console_links import use_link


def test_a_link_signs_in_as_its_options_say(run: Run, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THOTHY_HTTP_PORT", "8765")
    printed = run("console", "--role", "editor", "--tenant", "acme", "--name", "Ada").stdout.strip()
    address, _, token = printed.partition("?token=")
    assert address == "http://127.0.0.1:8765/console/enter"
    assert use_link(engine, token) == ("Ada", "editor", "acme", True)
    elsewhere = run("console", "--address", "https://queue.example.com/").stdout
    assert elsewhere.startswith("https://queue.example.com/console/enter?token=")


def test_a_door_that_is_not_served_has_no_address(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THOTHY_HTTP_PORT", "0")
    assert "THOTHY_HTTP_PORT is 0" in run("console", exit_code=1).stderr
    assert run("console", "--address", "http://queue").stdout.startswith("http://queue/console/")
