"""What the HTTP door costs on a GPU, and how interactive requests fare while a backlog drains.

    python -m benchmarks.door_gpu --tokenizer FOLDER [--shape llama-8b] [--jobs 400] [--seconds 12] [--slow]

An engine and `thothy serve` are processes of their own. First the jobs of `workloads/templates.json`, 256 at a time,
as streams through the engine's socket, through the door, and through the socket again. Then a backlog of prompts of
1,000 tokens and outputs of 200, as many at a time as a worker has: how many requests it ends per second, alone and
beside interactive requests of the same lengths at shares of that rate, and how long those wait for their first token.
With `--slow`, what the engine did is printed for each of them that waits longer than its target.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.command_line import CommandLine, positive
from benchmarks.results import Row, record, table
from benchmarks.slow_tokens import HEADS as SLOW_HEADS
from benchmarks.slow_tokens import Watch
from thothy_ai.bench.models import random_folder
from thothy_ai.bench.service.load import Load, LoadClient
from thothy_ai.bench.workload import WorkloadJob, read_workload
from thothy_ai.embedded.process import Process, Program, accepts, free_port, service_argv
from thothy_ai.embedded.readiness import ENGINE_READY_SECONDS, engine_listens
from thothy_ai.engine.api import GenerationRequest, SamplingParams
from thothy_ai.engine.serving.client import EngineClient, connect
from thothy_ai.foreign.http import HttpServer

CONCURRENT = 256
BACKLOG = 512  # in flight
PROMPT, OUTPUT = 1_000, 200
SHARES = (0.3, 0.5, 0.7)  # of the drain's rate
RAMP_SECONDS = 8.0  # until the backlog runs evenly
TOKENS = range(100, 100_000)  # of prompts: no special ones
WORKLOAD = Path(__file__).parent / "workloads" / "templates.json"
TARGET_SECONDS = 0.2  # until the first token, at p99


@dataclass(frozen=True)
class Stage:
    """Where the engine listens, and the door's API."""

    socket: str
    api: str


@contextmanager
def stage(shape: str, tokenizer: Path) -> Iterator[Stage]:
    """An engine of random weights and a door with all of its places."""
    with ExitStack() as undo:
        home = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="thothy-door-")))
        (home / "model").mkdir()
        model, url, port = random_folder(shape, tokenizer, home / "model"), f"unix://{home}/engine.sock", free_port()
        env = {"THOTHY_ENGINE_URL": url, "THOTHY_HTTP_PORT": str(port), "THOTHY_METRICS_PORT": "0"}
        for name, arguments, ready in (
            ("engine", ("--url", url, "--model", str(model)), lambda: engine_listens(url)),
            ("serve", (), lambda: accepts("127.0.0.1", port)),
        ):
            program = Program(
                name=name,
                argv=service_argv(name, *arguments),
                env=env,
                log=home / f"{name}.log",
                ready=ready,
                ready_seconds=ENGINE_READY_SECONDS,
            )
            process = Process(program)
            undo.callback(process.stop)
            process.start()
        yield Stage(url, f"http://127.0.0.1:{port}/v1")


async def _all(jobs: Sequence[WorkloadJob], do: Callable[[WorkloadJob], Awaitable[None]]) -> float:
    """Seconds for all jobs, some at a time."""
    gate, began = asyncio.Semaphore(CONCURRENT), time.perf_counter()

    async def one(job: WorkloadJob) -> None:
        async with gate:
            await do(job)

    await asyncio.gather(*(one(job) for job in jobs))
    return time.perf_counter() - began


def _prompt(job: WorkloadJob, salt: str) -> tuple[int, ...]:
    """Parts of one name have the same tokens, within a run."""
    return tuple(
        token for part in job.parts for token in random.Random(f"{salt} {part.name}").choices(TOKENS, k=part.tokens)
    )


async def _by_socket(client: EngineClient, jobs: Sequence[WorkloadJob], salt: str) -> float:
    requests = {
        id(job): GenerationRequest(
            f"{salt}-{number}",
            token_ids=_prompt(job, salt),
            sampling=SamplingParams(max_tokens=job.output_tokens, ignore_eos=True),
            stream=True,
        )
        for number, job in enumerate(jobs)
    }

    async def do(job: WorkloadJob) -> None:
        generation = await client.submit(requests[id(job)])
        async for _ in generation.batches():
            pass
        await generation.result()

    return await _all(jobs, do)


async def _by_door(server: HttpServer, model: str, jobs: Sequence[WorkloadJob], salt: str) -> float:
    common = {"model": model, "temperature": 0, "ignore_eos": True, "stream": True}
    bodies = {id(job): {**common, "prompt": list(_prompt(job, salt)), "max_tokens": job.output_tokens} for job in jobs}

    async def do(job: WorkloadJob) -> None:
        async with server.exchange("POST", "/completions", bodies[id(job)]) as answer:
            assert (await answer.whole()).endswith(b"data: [DONE]\n\n"), answer.status

    return await _all(jobs, do)


@dataclass
class Backlog:
    """A worker's requests to an engine: whenever one ends, another begins. `ended` counts them."""

    client: EngineClient
    ended: int = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(self._keep_asking(lane)) for lane in range(BACKLOG)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def rate(self, seconds: float) -> float:
        """Requests that end per second."""
        before, began = self.ended, time.perf_counter()
        await asyncio.sleep(seconds)
        return (self.ended - before) / (time.perf_counter() - began)

    async def _keep_asking(self, lane: int) -> None:
        draw, number = random.Random(lane), 0
        # The first have different lengths, as if the backlog had run for long.
        sampling = SamplingParams(max_tokens=draw.randint(1, OUTPUT), ignore_eos=True)
        while True:
            request = GenerationRequest(
                f"backlog-{lane}-{number}", token_ids=tuple(draw.choices(TOKENS, k=PROMPT)), sampling=sampling
            )
            await (await self.client.submit(request)).result()
            sampling = replace(sampling, max_tokens=OUTPUT)
            self.ended, number = self.ended + 1, number + 1


class Figures:
    """The rows of the table. Each is printed as soon as it is known."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._began = time.perf_counter()

    def add(self, name: str, value: str, target: str = "") -> None:
        self.rows.append((name, value, target))
        print(f"after {time.perf_counter() - self._began:.0f} s:", name, value, target, sep=" | ", flush=True)


async def _templates(client: EngineClient, server: HttpServer, model: str, jobs: int, figures: Figures) -> None:
    some = read_workload(WORKLOAD).jobs[:jobs]
    await _by_socket(client, some[: jobs // 4], "warm-up")
    before = await _by_socket(client, some, "before")
    door = await _by_door(server, model, some, "door")
    after = await _by_socket(client, some, "after")
    seconds = f"{door:.2f} s; {before:.2f} and {after:.2f}"
    figures.add(
        f"{jobs:,} templates, 256 at a time: door over socket", f"{2 * door / (before + after):.3f} ({seconds})", "1.03"
    )


async def _curve(
    client: EngineClient, server: HttpServer, model: str, seconds: float, figures: Figures, *, slow: bool
) -> None:
    asking = LoadClient(server, model, PROMPT, OUTPUT, seed=0, patience=60.0)
    await asking.prepare()
    backlog, watch = Backlog(client), Watch(client)

    async def asked(rate: float) -> tuple[float, Load]:
        """When the load began, by `time.perf_counter`, and its results."""
        load = await asking.run(rate, seconds, 20)
        return time.perf_counter() - load.seconds, load

    async with backlog.running(), watch.running() if slow else nullcontext():
        await asyncio.sleep(RAMP_SECONDS)
        alone = await backlog.rate(seconds)
        figures.add("requests of the backlog per second, alone", f"{alone:.1f}")
        for share in SHARES:
            (began, load), beside = await asyncio.gather(asked(share * alone), backlog.rate(seconds))
            times = [1e3 * (load.percentile("first_token", part) or 0.0) for part in (0.5, 0.99)]
            failed = len(load.samples) - len(load.answered)
            figures.add(
                f"at {share:.0%} of that rate: first token, p50 and p99; the backlog beside it, per second",
                f"{times[0]:.0f} and {times[1]:.0f} ms ({len(load.samples)} requests, {failed} failed); {beside:.1f}",
                f"{1e3 * TARGET_SECONDS:.0f} ms at p99",
            )
            if found := watch.rows(began, load.samples, TARGET_SECONDS) if slow else []:
                print(table(SLOW_HEADS, found), flush=True)


async def _measure(of: Stage, jobs: int, seconds: float, *, slow: bool) -> tuple[list[Row], str]:
    client, server, figures = connect(of.socket), HttpServer(of.api), Figures()
    await client.start()
    try:
        info = await client.info()
        await _templates(client, server, info.model_name, jobs, figures)
        await _curve(client, server, info.model_name, seconds, figures, slow=slow)
    finally:
        await server.close()
        await client.close()
    return figures.rows, info.device


def main() -> None:
    """Run both measurements, print and record them."""
    parser = CommandLine("door_gpu", __doc__)
    parser.add_argument("--tokenizer", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--shape", default="llama-8b")
    parser.add_argument("--jobs", type=positive(int), default=400)
    parser.add_argument("--seconds", type=positive(float), default=12.0, help="of each rate")
    parser.add_argument("--slow", action="store_true", help="print what the engine did before each late first token")
    options = parser.parse_args()
    with parser.checked(), stage(options.shape, options.tokenizer) as of:
        rows, device = asyncio.run(_measure(of, options.jobs, options.seconds, slow=options.slow))
    subject = f"The HTTP door on a GPU: {options.shape}"
    arguments = f"--shape {options.shape} --jobs {options.jobs} --seconds {options.seconds:g}"
    command = f"python -m benchmarks.door_gpu --tokenizer FOLDER {arguments}"
    record(subject, "Service", command, rows, device=device)


if __name__ == "__main__":
    main()
