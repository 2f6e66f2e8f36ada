"""Runs requests with drafts, all that are found, from an engine that remembers outputs: right and wrong ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from random import Random

import numpy as np

from tests.support.constrained import DRAWS, GREEDY, MAX_TOKENS, VOCAB, request
from tests.support.engine_driver import Collected, EngineDriver
from tests.support.oracle import ROOMY, random_prompts
from thothy_ai.engine.api import CoreStats, LogitBias, SamplingParams
from thothy_ai.engine.api.core import CoreRequest
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.api.step import Float64, Int64
from thothy_ai.engine.process.build import build_core
from thothy_ai.engine.scheduling.drafting.drafter import AutomaticDrafter
from thothy_ai.engine.scheduling.sequence import Sequence as Running
from thothy_ai.engine.weights.loader import LoadedModel

WITH = replace(ROOMY, drafts=True)
CHANGED = (  # scores that depend on what was written, and on how much
    SamplingParams(frequency_penalty=0.7, presence_penalty=0.3),
    SamplingParams(temperature=0.9, frequency_penalty=1.2, seed=4),
    SamplingParams(logit_bias=(LogitBias(5, 3.0), LogitBias(6, -3.0)), temperature=0.5, seed=3),
    SamplingParams(min_tokens=9, stop_token_ids=tuple(range(0, VOCAB, 9))),
    SamplingParams(stop_token_ids=tuple(range(0, VOCAB, 9))),
)


class EagerDrafter(AutomaticDrafter):
    """Sends every draft that it finds."""

    def is_worthwhile(self, rows: int, places: int) -> bool:
        return bool(rows and places > 0)

    def _plain_rate(self, rows: int, tokens: int) -> float:
        return 1e-9

    def _seconds(self, tokens: Int64) -> Float64:
        return np.ones(len(tokens))


class FickleDrafter(EagerDrafter):
    """Turns drafts on and off at random."""

    def __init__(self, measured: Mapping[int, float], rows: int) -> None:
        super().__init__(measured, rows)
        self._random = Random(3)

    def is_worthwhile(self, rows: int, places: int) -> bool:
        return super().is_worthwhile(rows, places) and self._random.random() < 0.5


def drafted(
    loaded: LoadedModel,
    requests: Sequence[CoreRequest],
    remembered: Iterable[Sequence[int]],
    options: EngineOptions,
    drafter: type[EagerDrafter] = EagerDrafter,
) -> tuple[Collected, CoreStats]:
    """What requests get from an engine that remembers these outputs."""
    with EngineDriver(lambda on_events: build_core(loaded, options, on_events)) as driver:
        core = driver.core
        core._drafter = drafter({}, core._config.max_rows)
        core._requests._on_end = core._drafter.leave
        for output in remembered:
            ended = Running(CoreRequest("", (), GREEDY), 0)
            ended.tokens += output
            core._drafter.leave(ended)
        collected = driver.run(requests)
    return collected, core.stats().core


def plain(loaded: LoadedModel, requests: Sequence[CoreRequest], options: EngineOptions = ROOMY) -> Collected:
    """What requests get without drafts."""
    with EngineDriver(lambda on_events: build_core(loaded, options, on_events)) as driver:
        return driver.run(requests)


def spoiled(outputs: Iterable[Sequence[int]]) -> list[list[int]]:
    """Outputs of which each sixth token is another one."""
    return [
        [(token ^ 1) % VOCAB if place % 6 == 5 else token for place, token in enumerate(output)] for output in outputs
    ]


def check_drafts(
    cpu: LoadedModel,
    loaded: LoadedModel,
    repeats: int = 1,
    drafter: type[EagerDrafter] = EagerDrafter,
    **changes: int,
) -> CoreStats:
    """Greedy and sampled, with penalties, biases and ends: what the engine of `loaded` writes with drafts is what the
    CPU's writes without. Prompts are repeated so often.
    """
    options = replace(ROOMY, max_context=60 * repeats, kv_tokens=1024 * repeats)
    requests = [
        request(f"{number}", repeats * random_prompts(VOCAB)[number % 8], replace(each, max_tokens=MAX_TOKENS))
        for number, each in enumerate([GREEDY, *DRAWS, *CHANGED])
    ]
    expected = plain(cpu, requests, options).tokens
    outputs = [expected.get(each.id, []) for each in requests]
    changed = replace(options, drafts=True, **changes)
    found, counts = drafted(loaded, requests, [*outputs, *spoiled(outputs)], changed, drafter)
    assert [found.tokens.get(each.id, []) for each in requests] == outputs
    assert 0 < counts.accepted_tokens <= counts.drafted_tokens
    assert counts.decode_tokens - counts.drafted_tokens < sum(map(len, outputs))  # steps were saved
    return counts
