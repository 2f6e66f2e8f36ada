"""Output tokens per second without drafts and with, on a GPU, of a shape with random weights: while all rows run, and
in the tail of a drain, when rows stay empty.

One engine writes the same outputs without drafts and with. They are repeated until each row has enough to write. A
repeated output must find no copy of itself among earlier outputs of its kind, whose texts drafts are taken from.
Therefore each repetition of all outputs is of other kinds, and so is each drain: only its own outputs of the same kind
that have ended, each there once, are sources of drafts beside an output's own text. In each drain, schemas and masks
are new, as they are for new sources.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import count, cycle

from benchmarks.drafts.recording import Recorded, Recordings
from benchmarks.drafts.replaying import Drained, Replaying, Written
from thothy_ai.bench.models import bench_model
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.process.build import build_core
from thothy_ai.engine.process.resident import keep_what_is_loaded

ROWS = 512  # of the engine
AT_ONCE = 1, 4, 16, 32, 64
QUOTING = "trend_summary", "report_section"  # kinds whose outputs quote their source
HEADER = (
    "outputs", "rows", "part", "tokens", "s without", "with", "per s without", "with", "times", "steps without", "with",
    "drafts a step", "right", "device, ms a step without", "with", "device idle, ms a step without", "with",
)  # fmt: skip
_TOKENS = 700  # of a row's outputs, at least
_LONGEST = 1_000  # tokens of an output; few are longer, and each would make a tail of its own


class Measuring:
    """An engine with a shape's weights; `replaying` writes into it."""

    def __init__(self, replaying: Replaying, records: Sequence[Recorded]) -> None:
        self._replaying, self._drains = replaying, count()
        replaying.renew(drafts=False)
        replaying.prepare(records)

    def measure(
        self, name: str, records: Sequence[Recorded], at_once: int, *, tail: bool = True
    ) -> list[tuple[str, ...]]:
        """Cells of `HEADER` while this many rows run, and of the `tail` after that; one row has none."""
        plain, drafted = (self._drained(records, at_once, drafts=drafts, tail=tail) for drafts in (False, True))
        parts = (("full", plain.full, drafted.full), ("tail", plain.tail, drafted.tail))
        return [(name, f"{at_once}", part, *_cells(*both)) for part, *both in parts[: 1 + (tail and at_once > 1)]]

    def _drained(self, records: Sequence[Recorded], at_once: int, *, drafts: bool, tail: bool) -> Drained:
        self._replaying.renew(drafts=drafts)
        wanted = repeated(records, at_once, next(self._drains))
        return self._replaying.drain(wanted, at_once, tail=tail)


def repeated(records: Sequence[Recorded], at_once: int, drain: int) -> list[Recorded]:
    """Outputs for this many rows: enough of them, with kinds and schemas of their own in each repetition and drain."""
    wanted, tokens = list[Recorded](), 0
    shorter = [each for each in records if len(each.tokens) <= _LONGEST]
    for number, each in enumerate(cycle(shorter)):
        if tokens >= _TOKENS * at_once and len(wanted) >= at_once:
            break
        kind = f"{each.kind}, {drain}, {number // len(shorter)}"
        schema = None if each.schema is None else each.schema + drain * " "  # the same one, but it is compiled anew
        wanted.append(replace(each, kind=kind, schema=schema))
        tokens += len(each.tokens)
    return wanted


def _cells(plain: Written, drafted: Written) -> tuple[str, ...]:
    both = plain, drafted
    speeds = [each.output_tokens / max(each.seconds, 1e-9) for each in both]
    device = [1e3 * each.busy_seconds / max(1, each.steps) for each in both]
    idle = [1e3 * (each.seconds - each.busy_seconds) / max(1, each.steps) for each in both]
    return (
        f"{drafted.output_tokens:,}",
        *(f"{each.seconds:.2f}" for each in both),
        *(f"{speed:,.0f}" for speed in speeds),
        f"{speeds[1] / max(speeds[0], 1e-9):.3f}",
        *(f"{each.steps:,}" for each in both),
        f"{drafted.drafted_tokens / max(1, drafted.steps):.1f}",
        f"{drafted.accepted_tokens / max(1, drafted.drafted_tokens):.2f}",
        *(f"{milliseconds:.2f}" for milliseconds in (*device, *idle)),
    )


def on_a_gpu(shape: str, weights: str, recordings: Recordings, records: Sequence[Recorded]) -> Measuring:
    """An engine of a shape that can write these records."""
    options = EngineOptions(url="", weights=weights, max_rows=ROWS, drafts=True)
    loaded = bench_model(shape, options)
    loaded = replace(loaded, config=replace(loaded.config, eos_token_ids=(recordings.end,)))
    grammars = recordings.grammars(loaded.config.vocab_size)
    made = Measuring(Replaying(partial(build_core, loaded, options), grammars, recordings.end), records)
    keep_what_is_loaded()  # as in the engine's process: a collection of it all takes the host 0.1 s
    return made
