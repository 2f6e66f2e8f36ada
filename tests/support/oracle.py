"""What transformers makes of a model and its prompts, and whether the engine makes the same of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig, PreTrainedModel

from tests.support.engine_driver import EngineDriver
from tests.support.loading import load_model
from tests.support.sweep import combinations
from tests.support.tiny_models import reference_model, tiny_model
from thothy_ai.engine.api import EngineStats, FinishReason, SamplingParams
from thothy_ai.engine.api.core import CoreRequest, Event, OnEvents, TokenEvent
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.core.loop import EngineCore
from thothy_ai.engine.process.build import build_core
from thothy_ai.engine.weights.loader import LoadedModel

Tokens = tuple[int, ...]
ROOMY = EngineOptions(url="", block_size=4, kv_tokens=1024, token_budget=512, max_context=60, max_rows=8)
# The keywords of `options` below. With "graphs", steps are planned for graphs; a CPU has none.
MATRIX_AXES = ("preempted", "chunked", "overlap", "prefix_cache", "graphs")
NEW_TOKENS = 12  # of each prompt: three blocks, so that contexts outgrow what they were admitted with
TINY_POOL = 48  # tokens: what admission expects of two sequences fits, what they come to does not


@dataclass(frozen=True)
class Oracle:
    """A model, prompts over it, transformers' greedy continuations, and each prompt's KV budget if any has one."""

    loaded: LoadedModel
    prompts: tuple[Tokens, ...]
    expected: tuple[Tokens, ...]
    budgets: tuple[int | None, ...] = ()

    def check(
        self, options: EngineOptions, *, build: Callable[..., EngineCore] = build_core, urgent: int = 0
    ) -> EngineStats:
        """Run all prompts through an engine and compare token for token; returns its counters.

        The last `urgent` prompts come with a higher priority each, once the others have tokens.
        """
        new_tokens = len(self.expected[0])
        sampling = SamplingParams(max_tokens=new_tokens, ignore_eos=True)
        first = len(self.prompts) - urgent
        budgets = self.budgets or (None,) * len(self.prompts)
        requests = [
            CoreRequest(str(i), prompt, sampling, priority=max(0, 1 + i - first), kv_budget=budget)
            for i, (prompt, budget) in enumerate(zip(self.prompts, budgets, strict=True))
        ]
        late = _Late(requests[first:])
        with EngineDriver(lambda on_events: late.core(partial(build, self.loaded, options), on_events)) as driver:
            outcome = driver.run(requests[:first])
            while len(outcome.finished) < len(requests):
                driver.gather()
            stats = driver.core.stats()
        for request, expected in zip(requests, self.expected, strict=True):
            assert tuple(outcome.tokens[request.id]) == expected, f"prompt {request.id}"
            assert outcome.finished[request.id].reason is FinishReason.LENGTH
        assert abs(stats.core.attributed_seconds - stats.core.busy_seconds) <= 1e-6 * stats.core.busy_seconds
        return stats


class _Late:
    """Submits requests on the core's thread, one after each step with tokens: a run is the same each time."""

    def __init__(self, requests: list[CoreRequest]) -> None:
        self._left = list(requests)

    def core(self, build: Callable[[OnEvents], EngineCore], on_events: OnEvents) -> EngineCore:
        """A core that gets the requests as it runs."""

        def report(events: list[Event]) -> None:
            on_events(events)
            if self._left and any(isinstance(event, TokenEvent) for event in events):
                core.submit(self._left.pop(0))

        core = build(report)
        return core


def options(
    *, preempted: bool, chunked: bool, overlap: bool, prefix_cache: bool, graphs: bool = False
) -> EngineOptions:
    """One point of the matrix."""
    return replace(
        ROOMY,
        kv_tokens=TINY_POOL if preempted else ROOMY.kv_tokens,
        token_budget=7 if chunked else ROOMY.token_budget,
        overlap=overlap,
        prefix_cache=prefix_cache,
        graphs=graphs,
    )


def matrix(models: Iterable[str]) -> list[tuple[str | bool, ...]]:
    """Each model at points of the matrix where any two values of two axes meet; the models together cover more."""
    return [
        (model, *row)
        for index, model in enumerate(models)
        for row in combinations(*[(False, True)] * len(MATRIX_AXES), shift=7 * index)
    ]


def generate(folder: Path, prompts: tuple[Tokens, ...], new_tokens: int, device: torch.device) -> tuple[Tokens, ...]:
    """Greedy fp32 continuations by transformers, one prompt at a time, end-of-text ignored."""
    return continued(reference_model(folder).to(device), prompts, new_tokens)


def continued(model: PreTrainedModel, prompts: tuple[Tokens, ...], new_tokens: int) -> tuple[Tokens, ...]:
    """The same by a model of transformers."""
    model.generation_config.eos_token_id = None  # which transformers would fall back to
    settings = GenerationConfig(max_new_tokens=new_tokens, do_sample=False, eos_token_id=None, pad_token_id=0)
    outputs = []
    for prompt in prompts:
        ids = torch.tensor([prompt], device=model.device)
        with torch.inference_mode():
            output = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=settings)
        outputs.append(tuple(output[0, len(prompt) :].tolist()))
    return tuple(outputs)


def prompts_from(draw: Callable[[int], Tokens]) -> tuple[Tokens, ...]:
    """Odd lengths, and three prompts that share 21 tokens; the first two outgrow a tiny pool together."""
    shared = draw(21)
    return (draw(9), draw(16), draw(1), draw(5), shared + draw(3), shared + draw(9), shared, draw(33))


def random_prompts(vocab: int) -> tuple[Tokens, ...]:
    """Prompts of random tokens, the same at every call."""
    generator = torch.Generator().manual_seed(7)
    return prompts_from(lambda count: tuple(torch.randint(0, vocab, (count,), generator=generator).tolist()))


def tiny_oracle(
    family: str, folder: Path, device: torch.device, *, new_tokens: int = NEW_TOKENS, **overrides: Any
) -> Oracle:
    """The oracle of a small random model of this family; `overrides` are fields of its configuration."""
    model = tiny_model(family, folder, **overrides)
    loaded = load_model(model, device=device, dtype=torch.float32, cache_dir=None)
    prompts = random_prompts(loaded.config.vocab_size)
    return Oracle(loaded, prompts, generate(model, prompts, new_tokens, device))
