"""What a model of transformers makes of a text of which it may keep only some tokens: each query sees the kept ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from tests.support.fallback_models import fallback_model
from tests.support.loading import load_model
from tests.support.oracle import Oracle
from tests.support.tiny_models import reference_model, tiny_model
from thothy_ai.engine.api import EngineStats
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.models.fallback import CHECKED

SIZE, NEW = 4, 30
LENGTHS = (90, 33, 61, 8, 77)
BUDGETS = (32, 16, None, 64, 48)  # the fourth text never exceeds its budget
ROOMY = EngineOptions(url="", block_size=SIZE, kv_tokens=1024, token_budget=512, max_context=130, max_rows=8)


@dataclass(frozen=True)
class Kept:
    """A greedy continuation, and which tokens each query sees [T, T]."""

    tokens: tuple[int, ...]
    seen: NDArray[np.bool_]

    @property
    def dropped(self) -> list[int]:
        """The tokens that the last query does not see."""
        return np.flatnonzero(~self.seen[-1]).tolist()


def continued(
    model: PreTrainedModel,
    prompt: Sequence[int],
    budget: int | None,
    new_tokens: int,
    block_size: int,
    forced: Mapping[int, int] | None = None,
) -> Kept:
    """The greedy continuation with a budget of that many tokens, a multiple of four blocks; None: all are kept.

    `forced`: tokens of the continuation that are given, by their position in the text.
    """
    given = forced or {}
    text, length = list(prompt), len(prompt) + new_tokens
    held, seen = np.ones(length, np.bool_), np.zeros((length, length), np.bool_)
    for query in range(length - 1):
        if query == len(text):
            text.append(given.get(query) or int(_run(model, text, seen)[0].argmax()))
        if budget is not None and query and query % (budget // 4) == 0:
            while held[:query].sum() > budget:
                blocks = range(block_size, query - budget // 4, block_size)
                importance = _run(model, text[:query], seen)[1].reshape(-1, block_size).mean(1)
                lowest = min((start for start in blocks if held[start]), key=lambda s: importance[s // block_size])
                held[lowest : lowest + block_size] = False
        seen[query, : query + 1] = held[: query + 1]
    text.append(int(_run(model, text, seen)[0].argmax()))
    return Kept(tuple(text[len(prompt) :]), seen[: length - 1, : length - 1])


def _run(
    model: PreTrainedModel, text: Sequence[int], seen: NDArray[np.bool_]
) -> tuple[torch.Tensor, NDArray[np.float64]]:
    """Scores of the next token, and each token's |value| / |key|, summed over layers and averaged over heads."""
    count = len(text)
    mask = torch.zeros(1, 1, count, count)
    mask.masked_fill_(~torch.from_numpy(seen[:count, :count].copy()), torch.finfo(torch.float32).min)
    with torch.inference_mode():
        made = model(torch.tensor([text]), attention_mask=mask, use_cache=True)
    ratios = [
        (layer.values.double().norm(dim=-1) / layer.keys.double().norm(dim=-1).clamp_min(1e-6)).mean(1)[0]
        for layer in made.past_key_values.layers
    ]
    return made.logits[0, -1], torch.stack(ratios).sum(0).numpy()


def budget_oracle(family: str, folder: Path, device: torch.device) -> Oracle:
    """The oracle of a small random model, for prompts with several budgets."""
    made = fallback_model if family in CHECKED else tiny_model
    path = made(family, folder)
    loaded = load_model(path, device=device, dtype=torch.float32, cache_dir=None)
    generator = torch.Generator().manual_seed(11)
    prompts = tuple(tuple(torch.randint(3, 131, (length,), generator=generator).tolist()) for length in LENGTHS)
    model = reference_model(path)
    kept = [continued(model, *each, NEW, SIZE) for each in zip(prompts, BUDGETS, strict=True)]
    assert [len(each.dropped) for each in kept] == [80, 44, 0, 0, 48]
    assert kept[0].tokens != continued(model, prompts[0], None, NEW, SIZE).tokens
    return Oracle(loaded, prompts, tuple(each.tokens for each in kept), BUDGETS)


def check(oracle: Oracle, *, preempted: bool, chunked: bool, overlap: bool, graphs: bool) -> EngineStats:
    """Compare token for token at one point of the matrix; rows are preempted for a higher priority."""
    options = replace(
        ROOMY,
        token_budget=7 if chunked else ROOMY.token_budget,
        overlap=overlap,
        graphs=graphs,
        max_rows=2 if preempted else ROOMY.max_rows,
    )
    stats = oracle.check(options, urgent=3 if preempted else 0)
    assert (stats.scheduler.preemptions > 0) == preempted
    assert stats.blocks.used == 0
    return stats


def check_in_small_pool(oracle: Oracle, *, graphs: bool) -> EngineOptions:
    """Compare two texts of 120 and 63 tokens, which hold at most 40 and 20, in a pool of 60; returns its options."""
    prompts, expected, budgets = oracle.prompts[:2], oracle.expected[:2], oracle.budgets[:2]
    small = replace(ROOMY, kv_tokens=60, token_budget=7, graphs=graphs)
    replace(oracle, prompts=prompts, expected=expected, budgets=budgets).check(small)
    return small
