"""Tokens per second with drafts and without, on a GPU, of a shape with random weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from benchmarks.drafts.recording import Recorded, Recordings
from benchmarks.drafts.replaying import Drained, Replaying
from thothy_ai.bench.models import bench_model
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.process.build import build_core

ROWS = 512  # of the engine
AT_ONCE = 1, 4, 16, 32, 64, 256, ROWS
_OUTPUTS = 3  # of each row, at least
_MIN_OUTPUTS = 64


def measure(shape: str, weights: str, recordings: Recordings, records: Sequence[Recorded]) -> list[tuple[str, ...]]:
    """A row for each number of sequences at once: tokens, tokens per second without drafts and with, the ratio, the
    tokens drafted, and what share of them was right.
    """
    options = EngineOptions(url="", weights=weights, max_rows=ROWS)
    loaded = bench_model(shape, options)
    loaded = replace(loaded, config=replace(loaded.config, eos_token_ids=(recordings.end,)))
    grammars = recordings.grammars(loaded.config.vocab_size)
    rows = []

    def drained(at_once: int, *, drafts: bool) -> Drained:
        engine = Replaying(partial(build_core, loaded, replace(options, drafts=drafts)), grammars, recordings.end)
        engine.prepare(records)
        # Few rows get no more outputs, so that they do not take long.
        wanted = max(_OUTPUTS * at_once, min(len(records), _MIN_OUTPUTS))
        found = engine.drain([records[number % len(records)] for number in range(wanted)], at_once)
        engine.close()
        print(f"{at_once} at once, {'with' if drafts else 'without'} drafts: {found.seconds:.2f} s", flush=True)
        return found

    drained(len(records), drafts=False)  # grammars remember what they have computed
    for at_once in AT_ONCE:
        plain, drafted = (drained(at_once, drafts=drafts) for drafts in (False, True))
        cells = (
            f"{at_once}", f"{plain.output_tokens:,}",
            f"{plain.output_tokens / plain.seconds:,.0f}", f"{drafted.output_tokens / drafted.seconds:,.0f}",
            f"{plain.seconds / drafted.seconds:.3f}",
            f"{drafted.drafted_tokens:,}", f"{drafted.accepted_tokens / max(1, drafted.drafted_tokens):.2f}",
        )  # fmt: skip
        rows.append(cells)
    return rows
