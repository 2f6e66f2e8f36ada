"""Two GPUs that share every layer of a model choose the tokens of one, from graphs, and end together."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.multiprocessing as processes

from tests.support.engine_driver import EngineDriver
from tests.support.engine_process import core_of, ended, errors_of, options, ready, started, with_client
from tests.support.oracle import options as point
from tests.support.oracle import tiny_oracle
from tests.support.tiny_models import FAMILIES, RECURRENT, tiny_model
from tests.support.tiny_tokenizer import make_tokenizer
from tests.support.two_ranks import START, SharedModel, two_ranks
from thothy_ai.engine.api import GenerationRequest, SamplingParams
from thothy_ai.engine.api.core import CoreRequest
from thothy_ai.engine.api.errors import EngineLostError
from thothy_ai.engine.distributed.leader import Group
from thothy_ai.engine.distributed.process_group import ProcessGroup, open_store, reach_store
from thothy_ai.engine.serving.client import EngineClient
from thothy_ai.kernels.operations import operations_for

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
]
CAPTURE_FAILS = """
import sys
if "thothy_ai.engine.process.{process}" in sys.orig_argv:
    from thothy_ai.engine.execution.graphs import DecodeGraphs
    def fail(*_, **__):
        raise RuntimeError("no room for graphs")
    DecodeGraphs.capture = fail
"""
ON_GPUS = replace(START, device="cuda", threads=None, dtype="float32")
DIVIDED = [family for family in FAMILIES if family not in RECURRENT]


@pytest.fixture(scope="module")
def group() -> Iterator[Group]:
    with two_ranks(ON_GPUS) as started:
        yield started


@pytest.mark.parametrize("family", DIVIDED)
@pytest.mark.parametrize("graphs", [False, True])
def test_greedy_tokens_equal_transformers(family: str, group: Group, tmp_path: Path, *, graphs: bool) -> None:
    oracle = tiny_oracle(family, tmp_path, torch.device("cuda", 0))
    how = point(preempted=True, chunked=True, overlap=True, prefix_cache=True, graphs=graphs)
    stats = oracle.check(how, build=SharedModel(group, tmp_path / family, ON_GPUS).build)
    assert stats.scheduler.preemptions > 0
    assert (stats.core.replayed_steps > 0) == graphs


def test_both_ranks_replay_the_sizes_that_the_first_found_worthwhile(group: Group, tmp_path: Path) -> None:
    """A size that only one of them had would leave it waiting for the other: every number of rows is run."""
    oracle = tiny_oracle("llama", tmp_path, torch.device("cuda", 0))
    how = point(preempted=False, chunked=False, overlap=True, prefix_cache=False, graphs=True)
    how = replace(how, max_rows=64, kv_tokens=8192)
    shared, sampling = SharedModel(group, tmp_path / "llama", ON_GPUS), SamplingParams(max_tokens=12, ignore_eos=True)
    replayed: set[int] = set()
    with EngineDriver(lambda on_events: shared.build(oracle.loaded, how, on_events)) as driver:
        graphs = driver.core._launcher._runner._runner._decode.graphs
        replay = graphs.replay
        graphs.replay = lambda size: (replayed.add(size), replay(size))[1]
        driver.core.start()
        for count in range(1, how.max_rows + 1):
            places = {f"{number} of {count}": number % len(oracle.prompts) for number in range(count)}
            for name, place in places.items():
                driver.submit(CoreRequest(name, oracle.prompts[place], sampling))
            while len(driver.collected.finished) < count * (count + 1) // 2:
                driver.gather()
            for name, place in places.items():
                assert tuple(driver.collected.tokens[name]) == oracle.expected[place], name
        assert replayed == set(graphs._sizes)


@pytest.mark.parametrize("process", ["core_process", "rank_process"])
def test_a_capture_that_fails_on_one_rank_ends_the_start(process: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(CAPTURE_FAILS.format(process=process))
    folder = tiny_model("llama", tmp_path, vocab_size=700)
    make_tokenizer().save_pretrained(folder)
    chosen = options(folder, f"unix://{tmp_path}/e.sock", device="cuda", tensor_parallel=2, stall_seconds=60.0)
    with started(chosen, tmp_path) as engine:
        code, errors = ended(engine)
    assert code != 0
    assert [line for line in errors if "no room for graphs" in line]
    if process == "rank_process":
        assert errors[-1] == "thothy engine: rank 1: no room for graphs"


def test_a_rank_that_is_killed_ends_the_engine_in_seconds(tmp_path: Path) -> None:
    folder = tiny_model("llama", tmp_path, vocab_size=700, max_position_embeddings=8192)
    make_tokenizer().save_pretrained(folder)
    url = f"unix://{tmp_path}/e.sock"
    forever = SamplingParams(max_tokens=8000, ignore_eos=True)
    chosen = options(folder, url, device="cuda", tensor_parallel=2, kv_tokens=100_000, max_rows=8, max_context=8192)
    with started(chosen) as process:
        ready(process)
        core = core_of(process)
        [rank] = Path(f"/proc/{core}/task/{core}/children").read_text().split()

        async def body(client: EngineClient) -> None:
            info = await client.info()
            assert len(set(info.devices)) == 2
            running = [
                await client.submit(GenerationRequest(f"job-{number}", text="x", sampling=forever, stream=True))
                for number in range(3)
            ]
            await anext(aiter(running[0]))
            began = time.monotonic()
            os.kill(int(rank), signal.SIGKILL)
            assert await errors_of(running) == [EngineLostError] * 3
            assert time.monotonic() - began < 10

        with_client(url, body)
        code, errors = ended(process)
    assert code == 70
    assert any("rank 1's process was killed by SIGKILL" in line for line in errors)


def test_a_sum_ends_when_its_rank_leaves(tmp_path: Path) -> None:
    """The programs that wait for the other rank fill the device, so that no other kernel could start."""
    store, context = open_store(2), processes.get_context("spawn")
    ranks = [context.Process(target=rank, args=(store.port, tmp_path / "left")) for rank in (leave, stay)]
    for rank in ranks:
        rank.start()
    try:
        ranks[0].join(60)
        assert (tmp_path / "left").exists()
        assert ranks[0].exitcode == 0
    finally:
        for rank in ranks:
            rank.kill()
            rank.join()


def leave(port: int, left: Path) -> None:
    device = torch.device("cuda", 0)
    torch.cuda.set_device(device)
    group = ProcessGroup(0, 2, device, reach_store(port, 2))
    x, weight = torch.zeros(512, 16384, device=device, dtype=torch.bfloat16), torch.ones(16384, device=device)
    group.add_rms_norm(x, torch.zeros_like(x), weight.bfloat16(), 1e-5, operations_for(device))
    assert not torch.cuda.current_stream().query()
    group.leave()
    torch.cuda.current_stream().synchronize()
    left.touch()
    os._exit(0)


def stay(port: int, _left: Path) -> None:
    device = torch.device("cuda", 1)
    torch.cuda.set_device(device)
    _group = ProcessGroup(1, 2, device, reach_store(port, 2))
    signal.pause()  # until it is killed


def test_more_gpus_than_there_are(tmp_path: Path) -> None:
    count = torch.cuda.device_count() + 1
    with pytest.raises(Exception, match=f"needs {count} GPUs: torch sees {count - 1}"):
        Group(replace(ON_GPUS, tensor_parallel=count))
