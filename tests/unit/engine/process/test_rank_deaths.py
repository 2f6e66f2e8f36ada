"""An engine of two ranks serves as one does, and ends when a rank dies, whatever its core waits for.

The error that clients get tells a lost rank from an engine that stands still, which ends by itself after a minute.
"""

from __future__ import annotations

import os
import signal
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
    until_dead,
    with_client,
)
from thothy_ai.engine.api import GenerationRequest, GenerationResult, SamplingParams
from thothy_ai.engine.api.errors import EngineLostError, UninvolvedError
from thothy_ai.engine.serving.client import EngineClient

SCHEMA = '{"type": "object", "properties": {"a": {"type": "integer", "maximum": 99}}, "required": ["a"]}'
# A device that waits for another one does not say that it is gone.
STUCK_OR_SLOW = """
import sys
if "thothy_ai.engine.process.core_process" in sys.orig_argv:
    import time
    from pathlib import Path
    from thothy_ai.engine.execution.runner import Runner
    original = Runner.forward
    def forward(self, step):
        if (Path(__file__).parent / "stuck").exists():
            time.sleep(600)
        time.sleep(0.25)
        return original(self, step)
    Runner.forward = forward
"""

FAILS = """
import sys
if "thothy_ai.engine.process.rank_process" in sys.orig_argv:
    from thothy_ai.engine.execution.runner import Runner
    def fail(*_):
        raise RuntimeError("no room for graphs")
    Runner.__init__ = fail
"""

# The first rank waits until the other has loaded: that one may be slow, and hangs afterwards.
HANGS = """
import sys, time
from pathlib import Path
loaded = Path(__file__).parent / "loaded"
if "thothy_ai.engine.process.rank_process" in sys.orig_argv:
    from thothy_ai.engine.process import build
    def hang(*_):
        loaded.touch()
        time.sleep(600)
    build.build_runner = hang
elif "thothy_ai.engine.process.core_process" in sys.orig_argv:
    from thothy_ai.engine.distributed.leader import Group
    original = Group.wait_loaded
    def wait_loaded(self):
        while not loaded.exists():
            time.sleep(0.01)
        original(self)
    Group.wait_loaded = wait_loaded
"""

OUT_OF_MEMORY = """
import sys
if "thothy_ai.engine.process.rank_process" in sys.orig_argv:
    import torch
    from thothy_ai.engine.execution.runner import Runner
    def fail(*_):
        raise torch.OutOfMemoryError("no memory on this rank")
    Runner.forward = fail
"""

# What the core's process leaves behind when it says that the core has ended: it may be killed from then on.
LAST_WORDS = """
import sys
if "thothy_ai.engine.process.core_process" in sys.orig_argv:
    import os
    from thothy_ai.engine.wire.core_messages import CoreEnded
    original = CoreEnded.of
    def say(failure):
        children = open(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read().split()
        os.write(2, f"children at the end: {len(children)}\\n".encode())
        return original(failure)
    CoreEnded.of = say
"""


def ranks_of(core: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{core}/task/{core}/children").read_text().split()]


@pytest.mark.parametrize("stuck", [False, True])
def test_a_rank_that_is_killed_ends_the_engine_and_the_members_of_the_step_are_named(
    model: Path, url: str, tmp_path: Path, *, stuck: bool
) -> None:
    (tmp_path / "sitecustomize.py").write_text(STUCK_OR_SLOW)
    with started(options(model, url, max_rows=2, tensor_parallel=2), tmp_path) as process:
        ready(process)
        core = core_of(process)
        [rank] = ranks_of(core)

        async def body(client: EngineClient) -> None:
            answer = await client.submit(
                GenerationRequest("schema", text="x", sampling=SamplingParams(max_tokens=40), schema=SCHEMA)
            )
            result = await answer.result()
            assert isinstance(result, GenerationResult)
            assert result.text.startswith("{")
            running, waiting = await two_run_and_three_wait(client)
            if stuck:
                (tmp_path / "stuck").touch()
            os.kill(rank, signal.SIGKILL)
            assert await errors_of(running) == [EngineLostError] * 2
            assert await errors_of(waiting) == [UninvolvedError] * 3

        with_client(url, body)
        code, errors = ended(process)
    assert code == 70
    [line] = [line for line in errors if "CRITICAL" in line and "the engine failed" in line]
    assert "rank 1's process was killed by SIGKILL" in line
    assert [number for number in range(5) if f"job-{number}" in line] == [0, 1]


def test_a_core_that_is_killed_takes_its_ranks_along(model: Path, url: str) -> None:
    with started(options(model, url, tensor_parallel=2)) as process:
        ready(process)
        core = core_of(process)
        [rank] = ranks_of(core)
        os.kill(rank, signal.SIGSTOP)  # even if it cannot notice
        os.kill(core, signal.SIGKILL)
        until_dead(rank)


def test_a_rank_that_fails_while_it_starts_ends_the_start_with_its_error(model: Path, url: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(FAILS)
    with started(options(model, url, tensor_parallel=2), tmp_path) as process:
        code, errors = ended(process)
    assert code == 2
    assert errors[-1] == "thothy engine: rank 1: no room for graphs"


def test_a_rank_that_hangs_while_others_wait_for_it_ends_the_start(model: Path, url: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(HANGS)
    with started(options(model, url, tensor_parallel=2, stall_seconds=5.0), tmp_path) as process:
        code, errors = ended(process)
    assert code == 2
    assert errors[-1] == "thothy engine: the ranks have not become ready within 5 s: one of them hangs"


@pytest.mark.parametrize(
    ("fails", "says"), [(OUT_OF_MEMORY, "rank 1: no memory on this rank"), (SLOW_UNTIL_IT_FAILS, "CUDA error: illegal")]
)
def test_an_error_of_either_rank_in_a_step_ends_the_engine_with_it(
    fails: str, says: str, model: Path, url: str, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(fails)
    with started(options(model, url, tensor_parallel=2), tmp_path) as process:
        ready(process)
        [rank] = ranks_of(core_of(process))

        async def body(client: EngineClient) -> None:
            (tmp_path / "now").touch()
            running = [await client.submit(GenerationRequest("job-0", text="x", sampling=SamplingParams(max_tokens=9)))]
            assert await errors_of(running) == [EngineLostError]

        with_client(url, body)
        code, errors = ended(process)
        assert not is_alive(rank)
    assert code == 70
    assert [line for line in errors if "CRITICAL" in line and "the engine failed" in line and says in line]


def test_ranks_have_ended_before_the_engine_has(model: Path, url: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(LAST_WORDS)
    with started(options(model, url, tensor_parallel=2), tmp_path) as process:
        ready(process)
        process.terminate()
        code, errors = ended(process)
    assert code == 0
    assert "children at the end: 0" in errors


def test_a_model_that_does_not_divide_is_refused_in_one_line(model: Path, url: str) -> None:
    with started(options(model, url, tensor_parallel=5)) as process:
        code, errors = ended(process)
    assert code == 2
    assert [line for line in errors if "5 devices cannot share this model: it has 6 heads and 2 KV heads" in line]
