"""The engine's process as a supervisor sees it: its ready line, its exit codes, and its shutdown."""

from __future__ import annotations

import asyncio
import itertools
import signal
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.support.engine_process import ended, ready, running_code, started
from tests.support.patience import PATIENCE
from thothy_ai.embedded.process import free_port
from thothy_ai.engine.api import GenerationRequest
from thothy_ai.engine.api.errors import EngineNotAcceptingError, EngineStoppedError
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.serving.client import EngineClient, Generation, connect


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"unix://{tmp_path}/e.sock"


async def accepted_until_refused(client: EngineClient) -> list[Generation]:
    """Asks without waiting for those that were accepted, which an engine answers in its own time."""
    accepted = list[Generation]()
    for number in itertools.count():
        asked = await client.submit(GenerationRequest(f"b{number}", text="x"))
        try:
            await asyncio.wait_for(asked.result(), 0.05)
        except TimeoutError:
            accepted.append(asked)
        except EngineNotAcceptingError:
            break
    return accepted


def null(url: str, **options: Any) -> EngineOptions:
    return EngineOptions(url=url, null=True, **options)


def test_it_prints_a_ready_line_and_leaves_nothing_behind(url: str) -> None:
    with started(null(url)) as process:
        assert ready(process).startswith(f"thothy engine: ready at {url} model=null")
        process.send_signal(signal.SIGTERM)
        code, errors = ended(process)
    assert code == 0
    assert not any("Traceback" in line for line in errors)
    assert not Path(url.removeprefix("unix://")).exists()


def test_on_a_free_port_it_prints_which() -> None:
    code = "run_engine(EngineOptions(url='tcp://127.0.0.1:0', null=True, token='sesame'))"  # no repr shows a token
    with running_code(code) as process:
        url = ready(process).split()[4]
        assert not url.endswith(":0")

        async def body() -> None:
            client = connect(url, "sesame")
            await client.start()
            assert (await client.info()).model == "null"
            await client.close()

        asyncio.run(body())
        process.send_signal(signal.SIGINT)
        assert ended(process)[0] == 0


def test_sigterm_finishes_accepted_requests_and_refuses_new_ones(url: str) -> None:
    """The engine answers none before its standard input closes: one that has finished all of them exits."""
    code = f"""
from thothy_ai.engine.process import main
from thothy_ai.engine.null.backend import NullEngine
class Holding(NullEngine):
    def _run(self):
        sys.stdin.read()
        super()._run()
main.make_engine = lambda options: Holding(0.001)
run_engine(EngineOptions(url={url!r}))
"""
    with running_code(code, stdin=subprocess.PIPE) as process:
        ready(process)

        async def body() -> None:
            client = connect(url)
            await client.start()
            running = await client.submit(GenerationRequest("a", text="x"))
            await client.stats()
            process.send_signal(signal.SIGTERM)
            accepted = await accepted_until_refused(client)
            assert process.stdin is not None
            process.stdin.close()
            for each in (running, *accepted):
                assert (await each.result()).text
            await client.close()

        asyncio.run(body())
        assert process.wait(PATIENCE) == 0


@pytest.mark.parametrize("end", ["a second signal", "the deadline"])
def test_a_shutdown_ends(url: str, end: str) -> None:
    seconds = 3600.0 if end == "a second signal" else 0.1
    with started(null(url, null_latency=3600.0, shutdown_seconds=seconds)) as process:
        ready(process)

        async def body() -> None:
            client = connect(url)
            await client.start()
            lost = await client.submit(GenerationRequest("a", text="x"))
            await client.stats()
            process.send_signal(signal.SIGTERM)
            if end == "a second signal":
                await client.stop_accepting()  # answered after the first signal
                process.send_signal(signal.SIGTERM)
            with pytest.raises(EngineStoppedError):
                await lost.result()
            await client.close()

        asyncio.run(body())
        assert ended(process)[0] == 0


def test_metrics_are_served(url: str) -> None:
    port = free_port()
    with started(null(url, metrics_port=port)) as process:
        ready(process)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as response:
            assert b"thothy_engine_running 0.0" in response.read()
        process.send_signal(signal.SIGTERM)
        assert ended(process)[0] == 0


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        ("run_engine(EngineOptions(url='tcp://0.0.0.0:1', null=True))", "own machine only"),
        ("run_engine(EngineOptions(url='nonsense', null=True))", "unix:///path"),
        ("run_engine(EngineOptions(url='unix:///proc/no/engine.sock', null=True))", "/proc/no"),
        ("run_engine(EngineOptions(url='tcp://127.0.0.1:0', token='x'))", "no model"),
        ("run_engine(EngineOptions(url='tcp://127.0.0.1:0', null=True))", "THOTHY_ENGINE_TOKEN"),
    ],
)
def test_an_error_at_start_is_one_line_and_code_2(code: str, complaint: str) -> None:
    with running_code(code) as process:
        returned, errors = ended(process)
    assert returned == 2
    [line] = errors
    assert complaint in line


def test_a_failed_step_ends_the_process_and_names_its_members(url: str) -> None:
    """The engine is a stand-in that fails when its standard input closes; the process around it is the real one."""
    code = f"""
from thothy_ai.engine.process import main
from thothy_ai.engine.null.backend import NullEngine
class Failing(NullEngine):
    def wait_ended(self):
        sys.stdin.read()
        self.failure = RuntimeError("step failed with job-1, job-2: CUDA error")
main.make_engine = lambda options: Failing(3600.0)
run_engine(EngineOptions(url={url!r}))
"""
    with running_code(code, stdin=subprocess.PIPE) as process:
        ready(process)

        async def body() -> None:
            client = connect(url)
            await client.start()
            lost = await client.submit(GenerationRequest("a", text="x"))
            await client.stats()
            assert process.stdin is not None
            process.stdin.close()
            with pytest.raises(EngineStoppedError):
                await lost.result()
            await client.close()

        asyncio.run(body())
        assert process.wait(PATIENCE) == 70
        assert process.stderr is not None
        assert "job-1, job-2" in process.stderr.read()


def test_an_engine_that_makes_no_progress_ends_the_process(url: str) -> None:
    code = f"""
from thothy_ai.engine.process import main
from thothy_ai.engine.null.backend import NullEngine
class Hanging(NullEngine):
    def progress(self):
        return 7
    def wait_ended(self):
        sys.stdin.read()
main.make_engine = lambda options: Hanging(3600.0)
main._STOP_SECONDS = 0.1
run_engine(EngineOptions(url={url!r}, stall_seconds=0.2))
"""
    with running_code(code, stdin=subprocess.PIPE) as process:
        ready(process)

        async def body() -> None:
            client = connect(url)
            await client.start()
            lost = await client.submit(GenerationRequest("a", text="x"))
            with pytest.raises(EngineStoppedError):
                await lost.result()
            await client.close()

        asyncio.run(body())
        assert process.wait(PATIENCE) == 70
        assert process.stderr is not None
        assert "no step has ended for 0.2 s, with 1 requests in flight" in process.stderr.read()


def test_a_null_engine_that_only_waits_does_not_count_as_hung(url: str) -> None:
    with started(null(url, null_latency=1.0, stall_seconds=0.1)) as process:
        ready(process)

        async def body() -> None:
            client = connect(url)
            await client.start()
            assert (await (await client.submit(GenerationRequest("a", text="x"))).result()).text
            await client.close()

        asyncio.run(body())
        process.send_signal(signal.SIGTERM)
        assert ended(process)[0] == 0
