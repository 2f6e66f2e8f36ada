"""What the HTTP door costs: CPU time per event with many streams at once, and how much later a first token comes.

python -m benchmarks.door        prints a table, and records it

Engine, door and clients are processes of their own. The engine is a clock: at every tick, each of its streams gets one
token, all in one call, as after a step of a real one.
"""

from __future__ import annotations

import asyncio
import gc
import json
import multiprocessing
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path

from benchmarks.command_line import CommandLine, positive
from benchmarks.results import Row, record, table
from thothy_ai.engine.api import (
    Delta,
    EngineInfo,
    EngineStats,
    FinishReason,
    GenerationRequest,
    GenerationResult,
    Message,
    Usage,
)
from thothy_ai.engine.api.backend import Failure, Output, Sink
from thothy_ai.engine.serving.client import connect
from thothy_ai.engine.serving.server import EngineServer
from thothy_ai.http.access import Everybody
from thothy_ai.http.accounts import Accounts
from thothy_ai.http.app import make_app
from thothy_ai.http.directory import Single
from thothy_ai.http.engines import Fleet
from thothy_ai.http.ledger import Ledger
from thothy_ai.http.limits import Limiter
from thothy_ai.http.server import make_server
from thothy_ai.settings import Settings

TICK = 0.025  # seconds: 40 tokens per second and stream
TOKENS = 200
SINGLE = 300  # requests one after the other, for the time to the first token
HEADS = ("measurement", "result", "target")
COMMAND = "python -m benchmarks.door"


class Clock:
    """Implements `Backend`: one token of each stream per tick; without a tick, the first token at once and no other."""

    def __init__(self, tick: float) -> None:
        self._tick = tick
        self._lock = threading.Lock()
        self._open: dict[str, tuple[Sink, int, int]] = {}  # with the tokens that are left, and all
        if tick:
            threading.Thread(target=self._run, daemon=True).start()

    def submit(self, request: GenerationRequest, sink: Sink) -> None:
        if not self._tick:
            sink([Delta(request.id, " word", (1,)), _result(request.id, 1)])
            return
        with self._lock:
            tokens = request.sampling.max_tokens
            self._open[request.id] = (sink, tokens, tokens)

    def abort(self, request_id: str) -> None:
        with self._lock:
            self._open.pop(request_id, None)

    def stream(self, request_id: str) -> None:
        raise NotImplementedError

    def stats(self) -> EngineStats:
        return EngineStats()

    def info(self) -> EngineInfo:
        return EngineInfo("s", "clock", "none", "none", 16, 0, 8192, 0.0, capacity=4096, model_name="clock")

    def vocabulary(self) -> tuple[bytes, ...]:
        return ()

    def stop_accepting(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        raise NotImplementedError

    def _run(self) -> None:
        at = time.monotonic()
        while True:
            at += self._tick
            time.sleep(max(0.0, at - time.monotonic()))
            outputs: dict[Sink, list[Output]] = {}
            with self._lock:
                for request_id, (sink, left, tokens) in list(self._open.items()):
                    outputs.setdefault(sink, []).append(Delta(request_id, " word", (1,)))
                    self._open[request_id] = (sink, left - 1, tokens)
                    if left == 1:
                        outputs[sink].append(_result(request_id, tokens))
                        del self._open[request_id]
            for sink, some in outputs.items():
                sink(some)


def _result(request_id: str, tokens: int) -> GenerationResult | Failure:
    return GenerationResult(request_id, "", (), FinishReason.STOP, Usage(1, 0, tokens, 0.0))


def _engine(url: str, tick: float, ready: Event) -> None:
    async def body() -> None:
        server = EngineServer(Clock(tick), url)
        await server.start()
        ready.set()
        await asyncio.Event().wait()

    asyncio.run(body())


def _door(url: str, port: int, ready: Event) -> None:
    settings = Settings(engine_url=url, http_port=port)
    accounts = Accounts(Limiter(settings), Ledger(settings, None))
    server = make_server(make_app(Fleet(Single(settings), 1.0), Everybody("t"), accounts), settings)

    def watch() -> None:
        while not server.started:
            time.sleep(0.01)
        ready.set()

    threading.Thread(target=watch, daemon=True).start()
    gc.collect()
    gc.freeze()  # as `thothy serve` does
    server.run()


@contextmanager
def _running(tick: float) -> Iterator[tuple[str, int, int]]:
    """The engine's URL, the door's port and its process."""
    from thothy_ai.embedded.process import free_port  # noqa: PLC0415  slow to import

    start = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        url, port = f"unix://{Path(folder)}/engine.sock", free_port()
        processes = []
        for target, arguments in ((_engine, (url, tick)), (_door, (url, port))):
            ready = start.Event()
            process = start.Process(target=target, args=(*arguments, ready), daemon=True)
            process.start()
            processes.append(process)
            ready.wait(60)
        try:
            yield url, port, processes[1].pid or 0
        finally:
            for process in processes:
                process.terminate()
                process.join()


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def _body(tokens: int) -> bytes:
    body = json.dumps(
        {"model": "clock", "messages": [{"role": "user", "content": "x"}], "stream": True, "max_tokens": tokens}
    ).encode()
    kind = "content-type: application/json"
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n{kind}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def _streams(port: int, count: int, tokens: int) -> int:
    """Read so many streams at once to their ends; returns their events."""

    async def one() -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(_body(tokens))
        data = bytearray()
        while not data.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"):
            chunk = await reader.read(1 << 16)
            assert chunk, bytes(data[-200:])
            data += chunk
        writer.close()
        return data.count(b'"delta":{"content":" word')

    return sum(await asyncio.gather(*(one() for _ in range(count))))


def _read_streams(port: int, count: int, tokens: int, events: multiprocessing.Queue[int]) -> None:
    events.put(asyncio.run(_streams(port, count, tokens)))


def _many(count: int) -> Iterator[Row]:
    with _running(TICK) as (_, port, door):
        start = multiprocessing.get_context("spawn")
        events: multiprocessing.Queue[int] = start.Queue()
        before, began = _cpu_seconds(door), time.monotonic()
        reader = start.Process(target=_read_streams, args=(port, count, TOKENS, events))
        reader.start()
        seen = events.get()
        took, cpu = time.monotonic() - began, _cpu_seconds(door) - before
        reader.join()
    tokens = count * TOKENS
    yield f"CPU of the door per event, {count:,} streams of {TOKENS} tokens", f"{1e6 * cpu / seen:.1f} µs", "25 µs"
    yield "CPU of the door per token", f"{1e6 * cpu / tokens:.1f} µs", ""
    yield "tokens per event", f"{tokens / seen:.2f}", ""
    yield "the streams took", f"{took:.1f} s of {TOKENS * TICK:.1f} s", ""


async def _first_by_socket(url: str) -> list[float]:
    client = connect(url)
    await client.start()
    taken = []
    for number in range(SINGLE):
        began = time.perf_counter()
        request = GenerationRequest(str(number), messages=(Message("user", "x"),), stream=True)
        generation = await client.submit(request)
        async for _ in generation.batches():
            taken.append(time.perf_counter() - began)
            break
        await generation.result()
    await client.close()
    return taken


async def _first_by_door(port: int) -> list[float]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    taken, request = [], _body(1)
    for _ in range(SINGLE):
        began, data = time.perf_counter(), bytearray()
        writer.write(request)
        while b'"content":" word' not in data:
            data += await reader.read(1 << 16)
        taken.append(time.perf_counter() - began)
        while not data.endswith(b"0\r\n\r\n"):
            data += await reader.read(1 << 16)
    writer.close()
    return taken


def _first() -> Iterator[Row]:
    with _running(0.0) as (url, port, _):
        direct, door = asyncio.run(_first_by_socket(url)), asyncio.run(_first_by_door(port))
    for name, place, target in (("p50", 50, "3 ms"), ("p99", 99, "10 ms")):
        first, second = (statistics.quantiles(times, n=100)[place - 1] for times in (direct, door))
        yield (
            f"first token through the door, {name}",
            f"{1e3 * (second - first):+.2f} ms ({1e3 * first:.2f} ms)",
            target,
        )


def main() -> None:
    """Run both measurements, print and record them."""
    parser = CommandLine("door", __doc__)
    parser.add_argument("--streams", type=positive(int), default=1_000, help="at once")
    options = parser.parse_args()
    rows = [*_many(options.streams), *_first()]
    record("The HTTP door, CPU", "Service", COMMAND, rows)
    print(table(HEADS, rows))


if __name__ == "__main__":
    main()
