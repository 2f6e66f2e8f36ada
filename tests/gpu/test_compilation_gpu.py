"""Kernels compile before the first request: one that does so in the midst of service holds up every job."""

from __future__ import annotations

import importlib
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from triton import knobs

from benchmarks.checkpoints import SCHEMES
from tests.support.engine_driver import GrammarRequest
from tests.support.loading import load_model
from tests.support.quantized_models import quantized_model
from tests.support.tiny_models import FAMILIES, tiny_model
from thothy_ai.bench.drain import BenchCore
from thothy_ai.bench.models import bench_model
from thothy_ai.engine.api import LogitBias, SamplingParams
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.execution import graphs, mixed_graphs
from thothy_ai.engine.process.build import build_core

pytestmark = pytest.mark.gpu
VOCAB = 151_936
WAYS = (  # greedy ones often, so that some steps have nothing else
    *[SamplingParams(max_tokens=40, ignore_eos=True)] * 5,
    SamplingParams(max_tokens=25, temperature=0.7, ignore_eos=True),
    SamplingParams(max_tokens=25, temperature=0.8, top_p=0.9, top_k=40, min_p=0.02, ignore_eos=True),
    SamplingParams(max_tokens=25, temperature=0.8, repetition_penalty=1.2, ignore_eos=True),
    SamplingParams(max_tokens=25, repetition_penalty=1.2, ignore_eos=True),
    SamplingParams(max_tokens=25, frequency_penalty=0.2, ignore_eos=True, logprobs=3),
    SamplingParams(max_tokens=25, temperature=0.8, presence_penalty=0.2, repetition_penalty=1.1, ignore_eos=True),
    SamplingParams(max_tokens=25, temperature=0.8, top_p=0.9, stop_token_ids=(5, 6), min_tokens=9, logprobs=0),
    SamplingParams(max_tokens=25, temperature=0.8, top_k=9, logit_bias=(LogitBias(7, 3.0),), ignore_eos=True),
)


class AnyToken:
    """A grammar that allows everything, so that its rows have masks."""

    finished = False

    def fill_mask(self, row: Tensor) -> None:
        """All bits."""
        row.fill_(-1)

    def may_force_after(self, token: int) -> bool:
        return True

    def forced(self) -> list[int]:
        """None."""
        return []

    def advance(self, token: int) -> None:
        """Any is right."""


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of kernels that are compiled, or loaded from the cache, from now on."""
    names: list[str] = []
    monkeypatch.setattr(knobs.compilation, "listener", lambda *, src, **_: names.append(str(src.name)))
    return names


def requests(count: int) -> list[GrammarRequest]:
    """Prompts of any length up to 700; half of them begin alike."""
    draw = random.Random(count)
    shared = [draw.randrange(VOCAB) for _ in range(200)]
    made = []
    for index in range(count):
        own = [draw.randrange(VOCAB) for _ in range(draw.randrange(1, 500))]
        prompt = tuple(draw.choice([[], shared]) + own)
        grammar = AnyToken() if count % 2 and draw.random() < 0.3 else None
        made.append(GrammarRequest(f"{count} {index}", prompt, draw.choice(WAYS), grammar=grammar))
    return made


VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("qwen3-0.6b", {}),
    ("qwen3-0.6b", {"weights": "fp8", "max_rows": 8}),
    ("qwen3-0.6b", {"weights": "fp8", "kv_dtype": "fp8"}),
    ("qwen3-0.6b", {"graphs": False}),
    ("qwen3.5-4b", {}),
]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("weights", ["auto", "fp8"])
def test_nothing_is_compiled_while_a_graph_is_captured(
    family: str, weights: str, compiled: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_captures(tiny_model(family, tmp_path), weights, compiled, monkeypatch)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_nothing_is_compiled_while_a_graph_of_a_quantized_model_is_captured(
    scheme: str, compiled: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = quantized_model(SCHEMES[scheme], tmp_path, "qwen2", hidden_size=256, intermediate_size=256)
    check_captures(folder, "auto", compiled, monkeypatch)


def check_captures(folder: Path, weights: str, compiled: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The pass before a capture, of decode steps over one layer of each kind, has compiled and loaded all."""
    capture, during = graphs.capture_graph, dict[Any, list[list[str]]]()
    record = mixed_graphs._Recorder.record

    def watched(run: Any, pool: Any) -> Any:
        compiled.clear()
        captured = capture(run, pool)
        during.setdefault(run.func, []).append([*compiled])
        return captured

    def watched_pieces(*args: Any) -> Any:
        compiled.clear()
        captured = record(*args)
        during.setdefault("pieces", []).append([*compiled])
        return captured

    monkeypatch.setattr(graphs, "capture_graph", watched)
    monkeypatch.setattr(mixed_graphs._Recorder, "record", watched_pieces)
    device = torch.device("cuda", 0)
    options = EngineOptions(url="", device="cuda", kv_tokens=4096, max_rows=40, weights=weights)
    loaded = load_model(folder, device=device, dtype=torch.bfloat16, weights=weights)
    build_core(loaded, options, lambda _: None)
    assert len(during.get("pieces", ())) > 1
    assert len(during) > 1, "captures of decode steps, too"
    assert not any(map(any, during.values()))


@pytest.mark.parametrize(("shape", "overrides"), VARIANTS, ids=str)
def test_nothing_is_compiled_once_an_engine_is_ready(
    compiled: list[str], shape: str, overrides: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = EngineOptions(url="", device="cuda", kv_tokens=60_000, max_rows=160, token_budget=2048)
    options = replace(usual, **overrides)
    drain = BenchCore(bench_model(shape, options), options)
    submit = drain.core.submit
    monkeypatch.setattr(drain.core, "submit", lambda request: submit(request, getattr(request, "grammar", None)))
    compiled.clear()
    for count in (1, 2, 3, 17, 100, 161, 300):
        drain.run(requests(count))
    drain.close()
    assert not compiled


KERNELS = """
import triton
import triton.language as tl
"""
KERNEL = """

@triton.jit
def add_{name}({arguments}, amount):
{lines}
"""


def test_threads_launch_kernels_of_many_signatures_for_the_first_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two kernels of each signature, so that launchers are loaded twice, and each launched by two threads."""
    source = KERNELS
    for index, count in enumerate([*range(1, 13)] * 2):
        names = [f"x{place}" for place in range(count)]
        lines = "\n".join(f"    tl.store({name}, tl.load({name}) + amount + {index})" for name in names)
        source += KERNEL.format(name=index, arguments=", ".join(names), lines=lines)
    (tmp_path / "many_kernels.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(knobs.cache, "dir", str(tmp_path / "cache"))
    many = importlib.import_module("many_kernels")
    together = threading.Barrier(8)

    def launch(thread: int) -> None:
        torch.cuda.set_device(0)
        together.wait()
        for step in range(24):
            index = (step * 5 + thread // 2 * 7) % 24
            targets = [torch.zeros(1, dtype=torch.int32, device="cuda") for _ in range(index % 12 + 1)]
            getattr(many, f"add_{index}")[(1,)](*targets, 3)
            assert [int(target) for target in targets] == [3 + index] * len(targets)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(launch, range(8)))
