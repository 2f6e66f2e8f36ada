"""Greedy and fp32, recurrent models give transformers' own tokens when siblings begin with kept states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
import torch

from tests.support.constrained import check_constrained
from tests.support.graphs_without_gpu import rerun_captured
from tests.support.loading import load_model
from tests.support.oracle import ROOMY, Oracle, generate
from tests.support.tiny_models import RECURRENT, tiny_model

CPU = torch.device("cpu")
SHARED = 96  # tokens; the house prompt has 32 of them


def prompts() -> tuple[tuple[int, ...], ...]:
    """Two sources behind one house prompt, with three siblings each by turns, and one prompt three times."""
    draw = torch.Generator().manual_seed(3)

    def some(count: int) -> tuple[int, ...]:
        return tuple(torch.randint(3, 131, (count,), generator=draw).tolist())

    house, sources, twice = some(32), [some(SHARED - 32) for _ in range(2)], some(9)
    mixed = [house + source + some(3 + turn) for turn in range(3) for source in sources]
    return (*mixed, house + sources[0] + twice, *[house + sources[1] + twice] * 2)


@pytest.fixture(scope="module")
def oracles(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Oracle]:
    def make(family: str) -> Oracle:
        folder = tiny_model(family, tmp_path_factory.mktemp(family))
        loaded = load_model(folder, device=CPU, dtype=torch.float32)
        return Oracle(loaded, prompts(), generate(folder, prompts(), 8, CPU))

    return cache(make)


@pytest.mark.parametrize("family", RECURRENT)
@pytest.mark.parametrize(
    ("changes", "cached"),
    [
        ({}, 7 * SHARED + 32),  # all but the first of each source, of which the second begins behind the house prompt
        ({"token_budget": 7}, 7 * SHARED + 32),
        ({"token_budget": 95}, None),  # a single token before the end of the source
        ({"kept_states": 1}, None),
        ({"kept_states": 0}, 0),
        ({"kv_tokens": 256}, None),
        ({"max_rows": 2}, None),  # a prompt that keeps three states has more members than there are rows
    ],
    ids=str,
)
def test_siblings(family: str, changes: dict[str, int], cached: int | None, oracles: Callable[[str], Oracle]) -> None:
    stats = oracles(family).check(replace(ROOMY, max_context=140, overlap=True, **changes))  # type: ignore[arg-type]
    if cached is None:
        assert 0 < stats.core.cached_tokens <= 8 * SHARED + 32
    else:
        assert stats.core.cached_tokens == cached


@pytest.mark.parametrize("overlap", [False, True])
def test_forced_tokens_in_graphs(
    oracles: Callable[[str], Oracle], monkeypatch: pytest.MonkeyPatch, *, overlap: bool
) -> None:
    """A step has several members of a row then, one behind the other."""
    runners = rerun_captured(monkeypatch, (1, 4, 8))
    loaded = oracles("qwen3_next").loaded
    check_constrained(loaded, loaded, overlap=overlap, graphs=True)
    assert sum(runner._decode.graphs.replays for runner in runners) > 10
