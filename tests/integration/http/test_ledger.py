"""What requests over HTTP used, from the door to the bill."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import httpx
import pytest
from sqlalchemy import Engine, text

from tests.support.answering_backend import AnsweringBackend
from tests.support.book_rows import session
from tests.support.door import served_door
from tests.support.keyed_requests import HELLO, ROUTE, ask, made
from tests.support.patience import PATIENCE
from tests.support.queue_bench import Queue, eventually
from tests.support.served_engine import served
from thothy_ai.admin.report.bill import Bill, Prices
from thothy_ai.admin.report.check import check_bill
from thothy_ai.admin.report.drain_report import drain_report
from thothy_ai.cli.views.bill import dimension_lines
from thothy_ai.db.api_keys import id_of
from thothy_ai.engine.api import Usage
from thothy_ai.engine.api.errors import InvalidRequestError
from thothy_ai.errors import DatabaseUnreachableError
from thothy_ai.http import ledger as module
from thothy_ai.http.keys import Keys
from thothy_ai.http.ledger import Ledger
from thothy_ai.queue.books import close_hours
from thothy_ai.settings import Settings

NOW = datetime.now(UTC)  # as the tests begin, which may be in the hour before they end
USED = Usage(40, 30, 20, 1.5)  # what the backend says of each generation


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WRITE_SECONDS", 0.05)


@pytest.fixture
def box(queue: Queue) -> UUID:
    """The session of the backend's engine: two GPUs, which have worked for an hour."""
    made = session(queue, NOW - timedelta(hours=1), None, gpus=2)
    changed = {"made": made, "id": AnsweringBackend(lambda request: []).info().session_id}
    queue.rows("UPDATE engine_session SET id = :id, busy_seconds = 100, direct_seconds = 1 WHERE id = :made", **changed)
    return UUID(changed["id"])


@pytest.fixture
def address(backend: AnsweringBackend, own: Settings, engine: Engine) -> Iterator[str]:
    with (
        served(backend, own.engine_url or ""),
        served_door(own, access=Keys(own, engine, None), ledger=Ledger(own, engine)) as address,
    ):
        yield address


def bill(engine: Engine, prices: Prices | None = None) -> Bill:
    return drain_report(engine, NOW - timedelta(hours=2), NOW + timedelta(hours=3), prices).bill


def test_each_request_is_billed_to_its_tenant_and_key(
    address: str, backend: AnsweringBackend, queue: Queue, engine: Engine, box: UUID
) -> None:
    keys = [made(engine), made(engine, "beta")]
    assert [ask(address, key).status_code for key in (*keys, keys[0])] == [200] * 3
    headers = {"authorization": f"Bearer {keys[1]}", "content-type": "application/json"}
    stream = httpx.post(f"{address}{ROUTE}", json={**HELLO, "stream": True}, headers=headers, timeout=PATIENCE)
    assert "[DONE]" in stream.text
    backend.answer = lambda request: InvalidRequestError("n=2 is out of range")
    assert ask(address, keys[0]).status_code == 400  # which used nothing
    backend.answer, backend.hang = lambda request: ["Hi"], True
    parts = urlsplit(address)
    with socket.create_connection((parts.hostname, parts.port)) as raw:  # which leaves
        body = json.dumps(HELLO).encode()
        lines = [f"POST {ROUTE} HTTP/1.1", "host: x", f"content-length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        raw.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        eventually(lambda: len(backend.open) == 1)
    eventually(lambda: bill(engine).total.usage.requests == 5)
    used = bill(engine, Prices(3600.0))
    assert {kind: line.usage.requests for kind, line in used.by("kind").items()} == {"interactive": 5}
    line = used.by("kind")["interactive"]
    assert (line.usage.busy_seconds, line.usage.useful_seconds, line.cost) == (5 * 3.0, 4 * 3.0, 15.0)
    assert (line.usage.prompt_tokens, line.usage.cached_tokens, line.usage.output_tokens) == (200, 150, 100)
    assert {tenant: line.usage.requests for tenant, line in used.by("tenant").items()} == {"acme": 2, "beta": 3}
    assert {key: of.usage.interactive_seconds for key, of in used.by("key").items()} == {
        id_of(keys[0]): 6.0, id_of(keys[1]): 9.0,
    }  # fmt: skip
    assert used.total.idle_seconds == pytest.approx(used.total.usage.resident_seconds - 15.0)
    shown = "\n".join(dimension_lines(used, "kind", 200))
    assert "requests" in shown
    assert id_of(keys[1]) in "\n".join(dimension_lines(used, "key", 200))
    [row] = queue.rows("SELECT * FROM engine_session WHERE id = :id", id=box)
    # It had counted one direct second of these: the others prove that it was busy for longer.
    assert (row.interactive_seconds, row.direct_seconds, row.busy_seconds) == (7.5, 7.5, 106.5)


def test_closed_hours_say_the_same_and_late_usage_restates_them(engine: Engine, settings: Settings, box: UUID) -> None:
    ledger = Ledger(settings, engine)
    ledger.add("acme", "thothy_1", str(box), USED, answered=True)
    asyncio.run(write(ledger))
    before = bill(engine).by("kind")["interactive"].usage
    assert close_hours(engine, open_hours=-1)
    assert bill(engine).by("kind")["interactive"].usage == before
    ledger.add("acme", "thothy_1", str(box), USED, answered=True)
    asyncio.run(write(ledger))
    asyncio.run(write(ledger))
    [row] = bill(engine).restated
    assert (row.kind, row.restated_by, row.usage.requests) == ("interactive", 3.0, 2)
    assert check_bill(engine, NOW - timedelta(hours=2), NOW + timedelta(hours=3)).findings == ()


async def write(ledger: Ledger) -> None:
    await ledger.start()
    await ledger.close()


def test_nothing_is_counted_twice_or_lost_while_postgres_is_away(
    engine: Engine, settings: Settings, box: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(settings, engine)
    written = Ledger._write

    def answer_lost(self: Ledger, *arguments: Any) -> dict[str, float]:
        written(self, *arguments)
        raise DatabaseUnreachableError("the connection broke")

    def away(self: Ledger, *_arguments: Any) -> dict[str, float]:
        raise DatabaseUnreachableError("Postgres is away")

    for failing in (answer_lost, away, answer_lost):
        ledger.add("acme", None, str(box), USED, answered=True)
        with monkeypatch.context() as patch:
            patch.setattr(Ledger, "_write", failing)
            asyncio.run(write(ledger))
    asyncio.run(write(ledger))
    asyncio.run(write(ledger))
    assert bill(engine).total.usage.requests == 3
    assert bill(engine).by("key")[""].usage.interactive_seconds == 9.0


def test_sums_that_wait_are_bounded(
    engine: Engine, settings: Settings, box: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_SUMS", 2)
    ledger = Ledger(settings, engine)
    for number in range(6):
        ledger.add("acme", f"thothy_{number % 2}", str(box), USED, answered=True)
        ledger.add("acme", f"thothy_{number % 2}", str(box), USED, answered=True)
    asyncio.run(write(ledger))
    assert bill(engine).total.usage.requests == 12
    assert len(ledger._sums) <= 4


def test_the_day_s_seconds_are_known_after_redis_forgot(engine: Engine, settings: Settings, box: UUID) -> None:
    ledger = Ledger(settings, engine)
    ledger.add("acme", "thothy_1", str(box), USED, answered=True)
    asyncio.run(write(ledger))
    fresh = Ledger(settings, engine)
    asyncio.run(write(fresh))
    assert fresh.spent_today("thothy_1") == 3.0
    assert fresh.spent_today("thothy_2") == 0.0


def test_minutes_go_with_old_history(queue: Queue, engine: Engine, settings: Settings, box: UUID) -> None:
    ledger = Ledger(settings, engine)
    ledger.add("acme", None, str(box), USED, answered=True)
    asyncio.run(write(ledger))
    later = NOW + timedelta(days=1)
    assert queue.ask("queue/drop_interactive", before=later, limit=10) == []  # its hour is open
    close_hours(engine, open_hours=-1)
    assert len(queue.ask("queue/drop_interactive", before=later, limit=10)) == 1
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM interactive_usage")) == 0
    assert bill(engine).total.usage.requests == 1
