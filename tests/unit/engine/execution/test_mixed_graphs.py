"""Which steps that prefill are replayed from graphs, and of which size: by times, without a GPU."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.support.graphs_without_gpu import note_captured
from tests.support.oracle import options, tiny_oracle
from thothy_ai.engine.api.core import OnEvents
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.core.loop import EngineCore
from thothy_ai.engine.execution.mixed_graphs import Sizes, sizes_up_to
from thothy_ai.engine.execution.runner import Runner
from thothy_ai.engine.execution.weak_ref import weak_ref_tensor
from thothy_ai.engine.process.build import build_core
from thothy_ai.engine.weights.loader import LoadedModel


def test_sizes_end_with_the_budget() -> None:
    assert sizes_up_to(1280) == [128, 256, 384, 512, 768, 1024, 1280]
    assert sizes_up_to(8192)[-3:] == [4096, 6144, 8192]
    assert sizes_up_to(128) == [128]
    assert sizes_up_to(40) == [40]


@pytest.mark.parametrize("budget", [129, 1280, 2048, 8192])
def test_padding_takes_less_than_the_half_of_a_size(budget: int) -> None:
    sizes = sizes_up_to(budget)
    assert all(small * 2 >= large for small, large in itertools.pairwise(sizes))


DEVICE = {128: 2.0, 512: 5.0, 1024: 9.0, 1280: 12.0}  # seconds by tokens


@pytest.mark.parametrize(
    ("tokens", "size"),
    [
        (1, 128),
        (128, 128),
        (129, 512),
        (600, 1024),
        (1024, 1024),
        (1025, None),
        (1241, None),
        (1242, 1280),
        (1280, 1280),
    ],
)
def test_a_step_is_padded_where_launching_it_would_take_as_long(tokens: int, size: int | None) -> None:
    assert Sizes.worthwhile(DEVICE, host=9.0).size_for(tokens) == size


@pytest.mark.parametrize(("tokens", "size"), [(1, None), (1024, None), (1242, 1280), (1281, None)])
def test_where_the_device_takes_longer_only_full_steps_are_replayed(tokens: int, size: int | None) -> None:
    sizes = Sizes.worthwhile(DEVICE, host=1.0)
    assert sizes == ((), 1280)
    assert sizes.size_for(tokens) == size


def test_a_budget_that_the_device_computes_at_once_takes_any_step() -> None:
    sizes = Sizes.worthwhile({512: 5.0, 8192: 8.0}, host=9.0)
    assert [sizes.size_for(tokens) for tokens in (0, 1, 512, 513, 8192, 8193)] == [None, 512, 512, 8192, 8192, None]


@pytest.mark.parametrize("family", ["qwen3", "qwen3_5_text"])
def test_pieces_between_attention_and_recurrences_give_the_same_tokens(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps are padded, and siblings are restored between two graphs of others."""
    note_captured(monkeypatch)
    oracle = tiny_oracle(family, tmp_path, torch.device("cpu"), new_tokens=8)
    budget, runners = 20, list[Runner]()

    @torch.inference_mode()
    def captured(loaded: LoadedModel, options: EngineOptions, on_events: OnEvents) -> EngineCore:
        core = build_core(loaded, options, on_events)
        runner, model = core._runner, loaded.model
        ids = torch.zeros(3, budget, dtype=torch.int64)
        layers, ends = loaded.config.num_layers, model.ends_with_attention
        runner._mixed.capture(ids, layers, lambda some, call: model.body(some, runner._cache, call), ends=ends)
        runners.append(runner)
        return core

    made = options(preempted=False, chunked=True, overlap=True, prefix_cache=True)
    stats = oracle.check(replace(made, token_budget=budget), build=captured)
    assert runners[0].replays == stats.core.steps
    assert stats.core.cached_tokens


def test_without_graphs_nothing_is_replayed() -> None:
    assert Sizes((), 0).size_for(0) is Sizes((), 0).size_for(1) is None


def test_only_contiguous_tensors_are_weak_ref_tensor() -> None:
    with pytest.raises(ValueError, match=r"strides \(1, 4\) of \(4, 3\) are not contiguous"):
        weak_ref_tensor(torch.zeros(3, 4).T)
