"""`thothy doctor` beside an engine that answers and computes nothing: its own, and those that others run."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from tests.support.engine_process import (
    SLOW_UNTIL_IT_FAILS,
    core_of,
    options,
    ready,
    started,
    two_run_and_three_wait,
    with_client,
)
from tests.support.engine_rows import register
from tests.support.queue_bench import Queue
from tests.support.tiny_models import tiny_model
from tests.support.tiny_tokenizer import make_tokenizer
from thothy_ai.admin import engines
from thothy_ai.admin.doctor import Level, examine
from thothy_ai.engine.serving.client import EngineClient
from thothy_ai.settings import Settings

RUNS = """
    INSERT INTO job (id, tenant, kind, source_key, request_digest, max_attempts, state, worker, started_at, lease_until,
        engine_session_id)
    VALUES (gen_random_uuid(), 't', 'echo', 's', 'd', 3, 'running', 'w', now(), now() + interval '1 hour', :session)
"""


def test_a_core_that_is_stopped_while_sequences_run(settings: Settings, tmp_path: Path) -> None:
    model = tiny_model("llama", tmp_path / "model", vocab_size=700)
    make_tokenizer().save_pretrained(model)
    url = f"unix://{tmp_path}/s"
    here = settings.model_copy(update={"engine_url": url})
    (tmp_path / "sitecustomize.py").write_text(SLOW_UNTIL_IT_FAILS)

    with started(options(model, url, max_rows=2), tmp_path) as process:
        ready(process)
        core = core_of(process)

        async def body(client: EngineClient) -> None:
            await two_run_and_three_wait(client)
            (fine,) = await asyncio.to_thread(examine, lambda: here, ["engine"])
            assert fine.level is Level.OK, fine
            os.kill(core, signal.SIGSTOP)
            began = time.monotonic()
            (wrong,) = await asyncio.to_thread(examine, lambda: here, ["engine"])
            assert time.monotonic() - began < 60
            assert wrong.level is Level.WRONG
            assert "has finished no step for 5 s: 2 running, 3 waiting" in wrong.says
            assert "restart the engine" in str(wrong.fix)
            process.kill()

        with_client(url, body)


def test_an_engine_of_another_machine_that_records_no_work(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "RECORDED_SECONDS", 2.0)
    register(queue, "idle")
    session = register(queue, "elsewhere")
    queue.rows(RUNS, session=session)

    def wrong() -> list[str]:
        found = examine(lambda: queue.settings, ["engines"])
        return [each.says for each in found if each.level is Level.WRONG and "computed nothing" in each.says]

    (says,) = wrong()
    assert says.startswith("engine elsewhere on ")
    assert "has 1 job that runs, and has computed nothing" in says
    done = threading.Event()

    def work() -> None:
        while not done.wait(0.2):
            queue.rows("UPDATE engine_session SET busy_seconds = busy_seconds + 0.1 WHERE engine_name = 'elsewhere'")

    working = threading.Thread(target=work)
    working.start()
    try:
        assert wrong() == []
    finally:
        done.set()
        working.join()
