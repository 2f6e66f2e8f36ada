"""Threads that hang keep only their own kind of work waiting."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.patience import PATIENCE
from thothy_ai.http import asgi
from thothy_ai.http.directory import Registered
from thothy_ai.http.keys import Keys
from thothy_ai.http.ledger import Ledger
from thothy_ai.http.threads import KEEPERS
from thothy_ai.settings import Settings

LARGE = b'"' + b"x" * asgi.LARGE + b'"'


@pytest.mark.parametrize("kind", ["routes", "keepers"])
def test_bodies_are_parsed_and_keys_are_read(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, hangs = Settings(home=tmp_path), threading.Event()
    database: Any = object()
    done: list[str] = []
    monkeypatch.setattr(Keys, "look", lambda _: done.append("keys") or [])
    monkeypatch.setattr(Registered, "_look", lambda _: done.append("engines") or [])
    monkeypatch.setattr(Ledger, "_write", lambda *_: done.append("bill") or {})

    async def body() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        hung, most = (None, 1) if kind == "routes" else (KEEPERS, KEEPERS._max_workers)
        waiting = [loop.run_in_executor(hung, hangs.wait) for _ in range(most)]
        try:
            async with asyncio.timeout(PATIENCE):
                assert len(await asgi.parsed(LARGE, str)) == asgi.LARGE
                if kind == "routes":
                    for each in (Keys(settings, database, None), Ledger(settings, database)):
                        await each.start()
                        await each.close()
                    assert await Registered(settings, database).look() == []
                    assert {"keys", "engines", "bill"} <= set(done)
        finally:
            hangs.set()
            await asyncio.gather(*waiting)

    asyncio.run(body())
