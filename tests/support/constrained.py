"""Requests under a grammar and with every sampling parameter: what the CPU makes of them, and whether a device does.

The grammar is a few lines, so that masks and forced tokens are tested where llguidance is not installed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from tests.support.engine_driver import EngineDriver, GrammarRequest
from tests.support.oracle import ROOMY, random_prompts
from tests.support.paged_run import PagedRun
from thothy_ai.engine.api import FinishReason, SamplingParams
from thothy_ai.engine.api.core import CoreRequest
from thothy_ai.engine.api.errors import GrammarError, NoFiniteScoreError
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.grammar.compiler import Grammar
from thothy_ai.engine.process.build import build_core
from thothy_ai.engine.weights.loader import LoadedModel

Slot = frozenset[int]
VOCAB = 131
MAX_TOKENS = 24
GREEDY = SamplingParams(max_tokens=MAX_TOKENS, ignore_eos=True)
ANY, FEW = frozenset(range(VOCAB)), frozenset({5, 31, 32, 63, 64, 130})


def only(*tokens: int) -> list[Slot]:
    """Slots that leave no choice."""
    return [frozenset({token}) for token in tokens]


SCRIPTS: tuple[list[Slot], ...] = (  # forced at the start, in the midst, at the end; all forced; nothing forced
    [*only(7, 130, 9), ANY, FEW, *only(31, 32), FEW, ANY, ANY, *only(64)],
    [FEW, *only(1, 2, 3, 4, 5, 6), FEW, FEW, FEW, *only(0), ANY],
    only(11, 12, 13, 14),
    [FEW] * 15,
)


class Slots:
    """Implements `Grammar`: one slot after the other, each with the tokens that it takes."""

    def __init__(self, slots: Sequence[Slot]) -> None:
        self._slots = list(slots)

    @property
    def finished(self) -> bool:
        return not self._slots

    def fill_mask(self, row: Tensor) -> None:
        bits = torch.zeros(len(row) * 32, dtype=torch.int64)
        bits[list(self._slots[0])] = 1
        row.copy_((bits.view(-1, 32) << torch.arange(32)).sum(-1).to(torch.int32))

    def limit(self, budget: int) -> None:
        """It ends by itself."""

    def may_force_after(self, token: int) -> bool:
        return True

    def forced(self) -> list[int]:
        run: list[int] = []
        for slot in self._slots:
            if len(slot) > 1:
                break
            run += slot
        return run

    def advance(self, token: int) -> None:
        if token not in self._slots.pop(0):
            raise GrammarError(f"token {token} has no place here")


def request(name: str, prompt: Iterable[int], sampling: SamplingParams, grammar: Grammar | None = None) -> CoreRequest:
    return GrammarRequest(name, tuple(prompt), sampling, grammar=grammar)


def run(loaded: LoadedModel, requests: Sequence[CoreRequest], options: EngineOptions) -> dict[str, list[int]]:
    """The output of each."""
    with EngineDriver(lambda on_events: build_core(loaded, options, on_events)) as driver:
        collected = driver.run(requests)
    assert not [event.error for event in collected.finished.values() if event.error]
    assert all(event.reason is not FinishReason.ABORTED for event in collected.finished.values())
    return {each.id: collected.tokens[each.id] for each in requests}


def greedy(loaded: LoadedModel, prompt: Sequence[int], slots: Sequence[Slot]) -> list[int]:
    """The best token of each slot, one step after the other, without an engine."""
    steps = PagedRun(loaded.model, 1, len(prompt) + len(slots))
    fed, output = list(prompt), []
    for slot in slots:
        scores = steps.step({0: fed})[0][-1]
        allowed = torch.tensor(sorted(slot))
        output.append(int(allowed[scores[allowed].argmax()]))
        fed = output[-1:]
    return output


def check_constrained(cpu: LoadedModel, loaded: LoadedModel, **changes: int) -> None:
    """Constrained requests beside free ones, on the engine of `loaded`, against single steps on the CPU."""
    scripts = [*SCRIPTS, *([ANY] * MAX_TOKENS for _ in range(4))]
    prompts = random_prompts(VOCAB)
    requests = [
        request(str(index), prompt, GREEDY, Slots(script) if script in SCRIPTS else None)
        for index, (prompt, script) in enumerate(zip(prompts, scripts, strict=True))
    ]
    outputs = run(loaded, requests, replace(ROOMY, **changes))
    for index, (prompt, script) in enumerate(zip(prompts, scripts, strict=True)):
        assert outputs[str(index)] == greedy(cpu, prompt, script), f"request {index}"


def check_broken_row(loaded: LoadedModel, **changes: bool) -> None:
    """A token whose embedding is NaN ends the request that chooses it; the others get what they got before.

    Rows and blocks of the broken request are reused by others, which must not read what it left. Changes the model.
    """
    options = replace(ROOMY, max_rows=3, **changes)
    prompts = random_prompts(VOCAB)
    requests = [request(str(index), prompt, GREEDY) for index, prompt in enumerate(prompts)]
    whole = run(loaded, requests, options)
    name, place = next(_lonely_tokens(requests, whole))
    with torch.inference_mode():
        loaded.model.decoder.embedding.table[whole[name][place]] = torch.nan
    with EngineDriver(lambda on_events: build_core(loaded, options, on_events)) as driver:
        collected = driver.run(requests)
    assert isinstance(collected.finished[name].error, NoFiniteScoreError)
    assert collected.tokens.pop(name) == whole.pop(name)[: place + 1]
    assert collected.tokens == whole


def check_broken_prefix(loaded: LoadedModel, **changes: bool) -> None:
    """A prompt whose last token is broken breaks no later one that shares its prefix; those are served from the cache.

    Changes the model.
    """
    options = replace(ROOMY, **changes)
    shared = random_prompts(VOCAB - 1)[-1]
    clean = [request(name, (*shared, own), GREEDY) for own, name in enumerate(("one", "two", "three"))]
    whole = run(loaded, clean, options)
    broken = next(token for token in range(VOCAB) if not _occurs(token, clean, whole))
    with torch.inference_mode():
        loaded.model.decoder.embedding.table[broken] = torch.nan
    with EngineDriver(lambda on_events: build_core(loaded, options, on_events)) as driver:
        ended = driver.run([request("broken", (*shared, broken), GREEDY)]).finished["broken"]
        for each in clean:
            driver.submit(each)
            while each.id not in driver.collected.finished:
                driver.gather()
    assert isinstance(ended.error, NoFiniteScoreError)
    assert driver.collected.tokens == whole
    cached = [driver.collected.finished[each.id].usage.cached_tokens for each in clean]
    assert cached == [0, *[len(shared) // options.block_size * options.block_size] * 2]


def _occurs(token: int, requests: Iterable[CoreRequest], outputs: Mapping[str, list[int]]) -> bool:
    return any(token in (*each.prompt, *outputs[each.id]) for each in requests)


def _lonely_tokens(requests: Sequence[CoreRequest], outputs: Mapping[str, list[int]]) -> Iterator[tuple[str, int]]:
    """(request, place in its output) of tokens that occur once in all, neither first nor last."""
    counts = Counter(token for each in requests for token in (*each.prompt, *outputs[each.id]))
    for name, output in outputs.items():
        yield from ((name, place) for place in range(2, MAX_TOKENS - 4) if counts[output[place]] == 1)


DRAWS = [
    SamplingParams(temperature=0.8, top_k=20, top_p=0.9, repetition_penalty=1.3, seed=1),
    SamplingParams(temperature=1.0, seed=2**62 + 1),
    SamplingParams(temperature=1.3, top_p=0.8, seed=5),
    SamplingParams(repetition_penalty=1.5),
    SamplingParams(temperature=0.7, min_p=0.05, seed=5),
    SamplingParams(temperature=1.5, top_k=7, repetition_penalty=0.8, seed=9),
    SamplingParams(),
    SamplingParams(temperature=2.0, top_k=50, top_p=0.95, min_p=0.01, seed=0),
]


def check_draws(cpu: LoadedModel, loaded: LoadedModel, **changes: bool) -> None:
    """Draws of all parameters together on the engine of `loaded`: those of the CPU's, one request at a time."""
    requests = [
        request(str(index), prompt, replace(sampling, max_tokens=MAX_TOKENS, ignore_eos=True))
        for index, (prompt, sampling) in enumerate(zip(random_prompts(VOCAB), DRAWS, strict=True))
    ]
    together = run(loaded, requests, replace(ROOMY, **changes))
    for each in requests:
        assert together[each.id] == run(cpu, [each], ROOMY)[each.id], f"on the CPU, alone: {each.sampling}"
    for each in requests[:3]:
        assert run(loaded, [each], replace(ROOMY, **changes))[each.id] == together[each.id], "beside others or alone"


def check_schema(cpu: LoadedModel, loaded: LoadedModel, grammar: Callable[[], Grammar], **changes: int) -> None:
    """A grammar of llguidance's beside a free request: the same greedy tokens as on the CPU."""

    def requests() -> list[CoreRequest]:
        prompts = random_prompts(VOCAB)
        limit = replace(GREEDY, max_tokens=40)
        return [request("json", prompts[1], limit, grammar()), request("free", prompts[0], GREEDY)]

    assert run(loaded, requests(), replace(ROOMY, **changes)) == run(cpu, requests(), ROOMY)
