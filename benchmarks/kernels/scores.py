"""What requests that change their scores, or want log-probabilities, cost per step; and what all others cost beside it.

Each row has 1,000 tokens, 500 of them its output, and 300 biases at most.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
import triton.testing

from thothy_ai.engine.api import LogitBias, SamplingParams
from thothy_ai.engine.api.step import RowBiases, Start, StartedRows
from thothy_ai.engine.execution.sampler import Sampler

ROWS = (1, 64, 512)
VOCAB = 128_256
KNOWN, PROMPT = 1000, 500
DRAW = SamplingParams(temperature=0.8, top_p=0.95)
PLAIN = SamplingParams()
CASES = {
    "greedy": PLAIN,
    "greedy, frequency penalty": replace(PLAIN, frequency_penalty=0.5),
    "draw, top-p 0.95": DRAW,
    "draw, top-p 0.95, frequency penalty": replace(DRAW, frequency_penalty=0.5),
    "draw, top-p 0.95, 300 biases": replace(DRAW, logit_bias=tuple(LogitBias(token, 1.0) for token in range(300))),
    "draw, top-p 0.95, 5 log-probabilities": replace(DRAW, logprobs=5),
}

Row = tuple[str, ...]
HEADER: Row = ("sampling", "rows that ask x vocabulary", "us of a step", "us of the host")


def measure() -> list[Row]:
    """All cases, of a whole step: what is launched, and what the host does for it."""
    return [timed(name, params, rows) for name, params in CASES.items() for rows in ROWS]


def timed(name: str, params: SamplingParams, rows: int) -> Row:
    """One case's microseconds."""
    step = _step([params] * rows)
    busy = triton.testing.do_bench(step, return_mode="median") * 1e3
    return name, f"{rows} x {VOCAB}", f"{busy:.0f}", f"{_host_microseconds(step):.0f}"


def _step(params: Sequence[SamplingParams]) -> Callable[[], object]:
    rows, device = len(params), torch.device("cuda")
    sampler, members = Sampler(rows, VOCAB, device), list(range(rows))
    starts = [Start(row, each, row, PROMPT) for row, each in enumerate(params)]
    sampler.start_rows(StartedRows.of(starts), RowBiases.of(starts))
    logits = torch.randn(rows, VOCAB, device=device, dtype=torch.bfloat16) * 3
    tokens = torch.randint(VOCAB, (rows, 4 * KNOWN), dtype=torch.int32, device=device)
    places, positions = torch.arange(rows, device=device), torch.full((rows,), KNOWN, device=device)

    def step() -> object:
        chosen = sampler.sample(logits, places, positions, tokens, None, members)
        return sampler.logprobs.begin(logits, chosen, members)

    return step


def _host_microseconds(step: Callable[[], object], calls: int = 50) -> float:
    step()
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(calls):
        step()
    spent = time.perf_counter() - begun
    torch.cuda.synchronize()
    return spent / calls * 1e6


if __name__ == "__main__":
    for row in (HEADER, *measure()):
        print(*row, sep="\t", flush=True)
