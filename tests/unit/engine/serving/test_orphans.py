"""What requests cost whose client left: kept, told once, and bounded."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from thothy_ai.engine.api import GenerationRequest, Orphan, Orphans
from thothy_ai.engine.client import LocalEngineClient, connect
from thothy_ai.engine.errors import ProtocolError
from thothy_ai.engine.null.backend import NullEngine
from thothy_ai.engine.serving.orphans import MAX_BATCH, OrphanCosts
from thothy_ai.engine.serving.server import EngineServer
from thothy_ai.engine.serving.wire import orphans_fields, read_orphans

PATIENCE = 30


def test_costs_are_kept_up_to_a_number_and_told_once() -> None:
    costs = OrphanCosts(kept=3)
    for number in range(5):
        costs.add(f"{number}", 0.5)
    costs.add("free", 0.0)
    costs.add("2", 0.25)
    assert (len(costs), costs.dropped) == (3, 2)
    assert costs.take("s") == Orphans("s", (Orphan("3", 0.5), Orphan("4", 0.5), Orphan("2", 0.75)))
    assert (len(costs), costs.take("s")) == (0, Orphans("s"))


def test_an_answer_has_a_limit() -> None:
    costs = OrphanCosts()
    for number in range(MAX_BATCH + 1):
        costs.add(f"{number}", 0.5)
    assert len(costs.take("s").costs) == MAX_BATCH
    assert costs.take("s").costs == (Orphan(f"{MAX_BATCH}", 0.5),)


@pytest.mark.parametrize("fields", [{}, {"session_id": "s", "costs": [1]}, {"session_id": "s", "costs": [("a", "b")]}])
def test_what_is_no_answer_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ProtocolError):
        read_orphans(fields)
    orphans = Orphans("s", (Orphan("a", 0.5),))
    assert read_orphans(orphans_fields(orphans)) == orphans


def test_the_next_client_is_told_what_the_last_one_left(tmp_path: Path) -> None:
    """Of what it had in flight, and of results that it may not have kept."""

    async def scene() -> None:
        backend, url = NullEngine(0.1), f"unix://{tmp_path}/e.sock"
        server = EngineServer(backend, url)
        await server.start()
        staying, leaving = connect(url), connect(url)
        await staying.start()
        await leaving.start()
        await (await leaving.submit(GenerationRequest("had", text="x"))).result()
        await (await staying.submit(GenerationRequest("mine", text="x"))).result()
        await leaving.submit(GenerationRequest("left", text="x"))
        assert (await leaving.stats()).abandoned.kept == 0
        await leaving.close()
        async with asyncio.timeout(PATIENCE):
            while (await staying.stats()).abandoned.kept < 2:  # noqa: ASYNC110 - the engine tells nobody
                await asyncio.sleep(0.01)
        told = await staying.orphans()
        assert told.session_id == backend.info().session_id
        assert [orphan.id for orphan in told.costs] == ["had", "left"]
        busy = sum(orphan.compute_seconds for orphan in told.costs) + 0.1
        assert backend.stats().core.busy_seconds == pytest.approx(busy)
        assert (await staying.stats()).abandoned.kept == 0
        assert await staying.orphans() == Orphans(told.session_id)
        assert await LocalEngineClient(backend).orphans() == Orphans(told.session_id)
        await staying.close()
        await server.close()
        backend.stop()

    asyncio.run(scene())
