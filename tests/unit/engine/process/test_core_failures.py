"""What fails in the core's process: a step, a grammar that kills it, a step that hangs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.engine_process import (
    SLOW_UNTIL_IT_FAILS,
    core_of,
    ended,
    errors_of,
    is_alive,
    options,
    ready,
    started,
    two_run_and_three_wait,
    with_client,
)
from tests.support.patience import PATIENCE
from thothy_ai.engine.api import GenerationRequest
from thothy_ai.engine.api.errors import EngineError, EngineLostError, UninvolvedError
from thothy_ai.engine.api.inflight_log import GRAMMARS
from thothy_ai.engine.serving.client import EngineClient

BREAKS_THE_CORE = """
import sys
if "thothy_ai.engine.process.core_process" in sys.orig_argv:
    import time
    from thothy_ai.engine.execution.runner import Runner
    def forward(self, step):
        {}
    Runner.forward = forward
"""
KILLING_GRAMMARS = """
import sys
if "thothy_ai.engine.process.core_process" in sys.orig_argv:
    import os, signal, time
    from thothy_ai.engine.process import resident
    begun = []
    class Compiler(resident.GrammarCompiler):
        def compile(self, schema):
            begun.append(schema)
            while len(begun) < THREADS or not os.path.exists(NOW):
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)
    resident.GrammarCompiler = Compiler
"""


def test_a_step_that_fails_there_is_reported_here(model: Path, url: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(BREAKS_THE_CORE.format("raise RuntimeError('CUDA error: illegal')"))
    with started(options(model, url), tmp_path) as process:
        ready(process)

        async def body(client: EngineClient) -> None:
            generation = await client.submit(GenerationRequest("job-7", text="x"))
            with pytest.raises(EngineLostError):
                await generation.result()

        with_client(url, body)
        code, errors = ended(process)
    assert code == 70
    critical = [line for line in errors if "CRITICAL" in line]
    assert any("job-7" in line and "CUDA error: illegal" in line for line in critical)


def test_a_step_that_fails_costs_only_its_members(model: Path, url: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(SLOW_UNTIL_IT_FAILS)
    with started(options(model, url, max_rows=2, overlap=True), tmp_path) as process:
        ready(process)

        async def body(client: EngineClient) -> None:
            running, waiting = await two_run_and_three_wait(client)
            (tmp_path / "now").touch()
            assert await errors_of(running) == [EngineLostError] * 2
            assert await errors_of(waiting) == [UninvolvedError] * 3

        with_client(url, body)
        assert ended(process)[0] == 70


def test_a_schema_that_kills_the_core_is_charged_with_those_that_compile_beside_it(
    model: Path, url: str, tmp_path: Path
) -> None:
    constants = f"THREADS, NOW = {len(GRAMMARS)}, {str(tmp_path / 'now')!r}\n"
    (tmp_path / "sitecustomize.py").write_text(constants + KILLING_GRAMMARS)
    with started(options(model, url), tmp_path) as process:
        ready(process)

        async def body(client: EngineClient) -> None:
            request = GenerationRequest("", text="x", schema='{"type": "string"}')
            names = [*(f"compiles-{number}" for number in range(len(GRAMMARS))), "waits"]
            generations = [await client.submit(replace(request, id=name)) for name in names]
            await client.stats()  # the engine has them all
            (tmp_path / "now").touch()
            assert await errors_of(generations) == [*(EngineLostError for _ in GRAMMARS), UninvolvedError]

        with_client(url, body)
        assert ended(process)[0] == 70


def test_a_step_that_hangs_there_is_noticed_here(model: Path, url: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(BREAKS_THE_CORE.format("time.sleep(3600)"))
    with started(options(model, url, stall_seconds=0.5), tmp_path) as process:
        ready(process)
        child = core_of(process)
        with_client(url, _lost)
        assert process.wait(PATIENCE) == 70
        assert not is_alive(child)
        assert process.stderr is not None
        assert "no step has ended for" in process.stderr.read()


async def _lost(client: EngineClient) -> None:
    with pytest.raises(EngineError):
        await (await client.submit(GenerationRequest("a", text="x"))).result()
