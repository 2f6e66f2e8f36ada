"""An engine as its supervisor starts it: a process whose core is another one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE
from thothy_ai.engine.api import GenerationRequest, SamplingParams, SchedulerStats
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.serving.client import EngineClient, Generation, connect

IMPORTS = (
    "import sys; from pathlib import PosixPath;"
    " from thothy_ai.engine.process.main import run_engine; from thothy_ai.engine.api.options import EngineOptions; "
)
ENDLESS = SamplingParams(max_tokens=200, ignore_eos=True)
SLOW_UNTIL_IT_FAILS = """
import sys
if "thothy_ai.engine.process.core_process" in sys.orig_argv:
    import time
    from pathlib import Path
    from thothy_ai.engine.execution.runner import Runner
    original = Runner.forward
    def forward(self, step):
        if (Path(__file__).parent / "now").exists():
            raise RuntimeError("CUDA error: illegal")
        time.sleep(0.25)  # so that none of them ends before the test looks
        return original(self, step)
    Runner.forward = forward
"""


def options(model: Path, url: str, **more: object) -> EngineOptions:
    return EngineOptions(**({"url": url, "model": model, "device": "cpu", "kv_tokens": 2048, "threads": 1} | more))


def started(
    chosen: EngineOptions, patch: Path | None = None
) -> contextlib.AbstractContextManager[subprocess.Popen[str]]:
    """A supervisor's engine; `patch` is a folder whose sitecustomize.py its processes run first."""
    return running_code(f"run_engine({chosen!r})", patch=patch)


@contextlib.contextmanager
def running_code(code: str, *, stdin: int | None = None, patch: Path | None = None) -> Iterator[subprocess.Popen[str]]:
    """A process that runs this code, behind `IMPORTS`."""
    with subprocess.Popen(
        [sys.executable, "-c", IMPORTS + code],
        env=os.environ | ({"PYTHONPATH": f"{patch}:{os.environ.get('PYTHONPATH', '')}"} if patch else {}),
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def ready(process: subprocess.Popen[str]) -> str:
    """The line that says that the engine is ready."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line.startswith("thothy engine: ready"):
        pytest.fail("\n".join(ended(process)[1]))
    return line


def ended(process: subprocess.Popen[str]) -> tuple[int, list[str]]:
    """The exit code, and the lines of standard error."""
    _, errors = process.communicate(timeout=PATIENCE)
    return process.returncode, errors.splitlines()


def core_of(process: subprocess.Popen[str]) -> int:
    """The id of the core's process."""
    (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(child)


def is_alive(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] not in {"Z", "X"}


def until_dead(pid: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while is_alive(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def with_client(url: str, body: Callable[[EngineClient], Awaitable[None]]) -> None:
    async def run() -> None:
        client = connect(url)
        await client.start()
        async with asyncio.timeout(PATIENCE):
            await body(client)
        await client.close()

    asyncio.run(run())


async def errors_of(generations: Sequence[Generation]) -> list[type[BaseException]]:
    ends = await asyncio.gather(*(each.result() for each in generations), return_exceptions=True)
    return [type(end) for end in ends if isinstance(end, BaseException)]


async def two_run_and_three_wait(client: EngineClient) -> tuple[list[Generation], list[Generation]]:
    asked = [GenerationRequest(f"job-{number}", text="x", sampling=ENDLESS) for number in range(5)]
    generations = [await client.submit(request) for request in asked]
    while (await client.stats()).scheduler != SchedulerStats(2, 3):  # noqa: ASYNC110  the engine is another process
        await asyncio.sleep(0.01)
    return generations[:2], generations[2:]
