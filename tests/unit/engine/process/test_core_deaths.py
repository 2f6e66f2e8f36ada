"""A core or an engine that is killed: what ends with it, and what is recorded of the requests."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.support.engine_process import (
    ENDLESS,
    SLOW_UNTIL_IT_FAILS,
    core_of,
    ended,
    errors_of,
    is_alive,
    options,
    ready,
    started,
    two_run_and_three_wait,
    until_dead,
    with_client,
)
from tests.support.patience import PATIENCE
from thothy_ai.engine.api import GenerationRequest, GenerationResult
from thothy_ai.engine.api.errors import ConnectionLostError, EngineLostError, UninvolvedError
from thothy_ai.engine.serving.client import EngineClient


def test_a_core_that_is_killed_ends_the_engine_and_those_it_had_admitted_are_named(
    model: Path, url: str, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(SLOW_UNTIL_IT_FAILS)
    with started(options(model, url, max_rows=2), tmp_path) as process:
        ready(process)
        child = core_of(process)

        async def body(client: EngineClient) -> None:
            running, waiting = await two_run_and_three_wait(client)
            os.kill(child, signal.SIGKILL)
            assert await errors_of(running) == [EngineLostError] * 2
            assert await errors_of(waiting) == [UninvolvedError] * 3

        with_client(url, body)
        code, errors = ended(process)
    assert code == 70
    [line] = [line for line in errors if "CRITICAL" in line and "killed by SIGKILL" in line]
    assert [number for number in range(5) if f"job-{number}" in line] == [0, 1]
    assert not Path(f"{url.removeprefix('unix://')}.admitted").exists()


def test_an_engine_whose_processes_are_all_killed_leaves_a_record_of_what_it_had_admitted(
    model: Path, url: str, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(SLOW_UNTIL_IT_FAILS)
    with started(options(model, url, max_rows=2), tmp_path) as process:
        ready(process)
        child = core_of(process)

        async def body(client: EngineClient) -> None:
            session_id = (await client.info()).session_id
            running, waiting = await two_run_and_three_wait(client)
            os.kill(child, signal.SIGSTOP)  # nothing ends any more
            process.kill()
            assert await errors_of([*running, *waiting]) == [ConnectionLostError] * 5
            until_dead(child)
            assert [client.may_have_begun(session_id, [each.id]) for each in running] == [True] * 2
            assert [client.may_have_begun(session_id, [each.id]) for each in waiting] == [False] * 3
            assert client.may_have_begun(session_id, ["job-4", "job-0"])
            assert client.may_have_begun("of another session", ["job-4"])

        with_client(url, body)


def test_an_engine_that_is_killed_takes_its_core_along(model: Path, url: str) -> None:
    with started(options(model, url)) as process:
        ready(process)
        child = core_of(process)
        os.kill(child, signal.SIGSTOP)  # even if it cannot notice
        process.kill()
        process.wait(PATIENCE)
        until_dead(child)


def test_signals_to_both_processes_are_handled_once(model: Path, url: str) -> None:
    """As Ctrl-C sends them, and systemd."""
    with started(options(model, url)) as process:
        ready(process)
        child = core_of(process)

        async def body(client: EngineClient) -> None:
            running = await client.submit(GenerationRequest("a", text="x", sampling=ENDLESS, stream=True))
            await anext(aiter(running))
            for number in (signal.SIGINT, signal.SIGTERM):
                os.kill(child, number)
            process.send_signal(signal.SIGINT)
            result = await running.result()
            assert isinstance(result, GenerationResult)
            assert result.usage.output_tokens == ENDLESS.max_tokens

        with_client(url, body)
        code, errors = ended(process)
    assert code == 0
    assert not any("Traceback" in line or "KeyboardInterrupt" in line for line in errors)
    assert not is_alive(child)
