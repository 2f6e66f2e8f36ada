"""Adapters over the socket: loaded, listed and unloaded while requests name them; on the null engine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.peft_folders import small_adapter
from tests.support.scripted_backend import ask, run_in_loop
from thothy_ai.engine.api import AdapterStats
from thothy_ai.engine.api.errors import (
    AdapterLoadError,
    InvalidRequestError,
    UnknownAdapterError,
    UnsupportedAdapterError,
)
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.null.backend import NullEngine
from thothy_ai.engine.serving.client import connect
from thothy_ai.engine.serving.server import EngineServer


def test_load_list_use_and_unload(url: str, tmp_path: Path) -> None:
    first, second = (small_adapter(tmp_path / name, seed) for name, seed in (("first", 1), ("second", 2)))

    async def body() -> None:
        server = EngineServer(NullEngine(options=EngineOptions(url, adapters=(f"start={first}",))), url, None)
        await server.start()
        client = connect(server.url)
        await client.start()
        assert [each.name for each in await client.adapters()] == ["start"]
        acme = await client.load_adapter("acme", str(second))
        assert (acme.name, acme.rank, acme.folder) == ("acme", 4, str(second))
        assert await client.adapters() == (acme, replace(await client.load_adapter("start", str(first)), name="start"))
        assert (await client.stats()).adapters == AdapterStats(changes=2, loaded=2)  # the same weights change nothing
        await (await client.submit(replace(ask("a"), adapter="acme"))).result()
        await client.load_adapter("acme", str(first))
        assert (await client.stats()).adapters.changes == 3
        await client.unload_adapter("acme")
        for name in ("acme", "other"):
            refused = await client.submit(replace(ask(name), adapter=name))
            with pytest.raises(UnknownAdapterError, match=name) as raised:
                await refused.result()
            assert raised.value.field == "adapter"
        with pytest.raises(UnknownAdapterError, match="acme"):
            await client.unload_adapter("acme")
        await (await client.submit(ask("b"))).result()  # the connection is as good as before
        await client.close()
        await server.close()

    run_in_loop(body())


def test_refusals_are_typed(url: str, tmp_path: Path) -> None:
    dora = small_adapter(tmp_path / "dora", use_dora=True)

    async def body() -> None:
        server = EngineServer(NullEngine(), url, None)
        await server.start()
        client = connect(server.url)
        await client.start()
        with pytest.raises(UnsupportedAdapterError, match="use_dora"):
            await client.load_adapter("acme", str(dora))
        with pytest.raises(AdapterLoadError, match="No such file"):
            await client.load_adapter("acme", str(tmp_path / "none"))
        with pytest.raises(InvalidRequestError, match="cannot be an adapter's name"):
            await client.load_adapter("../acme", str(dora))
        assert await client.adapters() == ()
        await client.close()
        await server.close()

    run_in_loop(body())


def test_an_engine_does_not_start_with_an_adapter_that_cannot_be_loaded(tmp_path: Path) -> None:
    with pytest.raises(AdapterLoadError):
        NullEngine(options=EngineOptions("", adapters=(f"a={tmp_path}/none",)))
