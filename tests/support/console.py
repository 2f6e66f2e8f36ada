"""A served console, people who are signed in to it, and the forms that they send."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple
from uuid import UUID

import httpx
from starlette.routing import Route

from tests.support.patience import PATIENCE
from tests.support.queue_bench import Queue
from thothy_ai.db.console_links import make_link
from thothy_ai.http.console.console import Console as ConsoleApp
from thothy_ai.producer.drafts import parse_request
from thothy_ai.settings import Settings


class Console(NamedTuple):
    """A console, the queue behind it, and its address."""

    queue: Queue
    address: str

    @contextmanager
    def signed_in(
        self, role: str = "operator", tenant: str | None = None, name: str = "Ada", *, personal: bool = True
    ) -> Iterator[httpx.Client]:
        token = make_link(self.queue.engine, name, role, tenant, personal=personal)
        with httpx.Client(base_url=f"{self.address}/console", timeout=PATIENCE, follow_redirects=True) as client:
            assert client.post("/enter", data={"token": token}).status_code == 200
            yield client

    def enqueued(self, text: str, tenant: str = "ours") -> UUID:
        producer = self.queue.producer.of_tenant(tenant)
        return producer.enqueue(parse_request("echo", {"text": text})).id


def routes(method: str) -> set[str]:
    """The paths of the console's pages, or of its forms."""
    app = ConsoleApp(Settings(database_url="postgresql://nobody@nowhere/none"))
    known = (each for each in app._app.routes if isinstance(each, Route))
    return {each.path for each in known if method in (each.methods or ())}


def csrf_of(page: httpx.Response) -> str:
    found = re.search(r'name="csrf" value="([^"]+)"', page.text)
    assert found, page.text
    return found[1]


def sent(client: httpx.Client, page: str, to: str, **fields: object) -> httpx.Response:
    return client.post(to, data={"csrf": csrf_of(client.get(page)), **fields})
