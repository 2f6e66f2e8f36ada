"""New draws of the two workloads: other lengths from the same distributions, to avoid tuning for one draw."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from thothy_ai.bench.workload import Workload, sibling_jobs, template_jobs


@dataclass(frozen=True, slots=True)
class _Kind:
    """Bounds of uniformly drawn lengths, in tokens. `output` None: 0.8 to 1.2 times the body, as in translations."""

    share: float  # of the jobs
    template: int
    body: tuple[int, int]
    output: tuple[int, int] | None


_TEMPLATES = {
    "trend_summary": _Kind(0.33, 320, (600, 2500), (120, 250)),
    "hook": _Kind(0.33, 208, (60, 300), (30, 80)),
    "translation": _Kind(0.23, 160, (200, 900), None),
    "report": _Kind(0.11, 416, (1500, 4000), (400, 900)),
}
_SOURCE_TOKENS = (600, 2500)
_SIBLING_OUTPUTS = {"trend_summary": (120, 250), "hook": (30, 80), "translation": (150, 300), "report": (400, 900)}
_OF_A_SOURCE = ("trend_summary", "hook", "hook", "translation", "translation")
_REPORT_SHARE = 0.43  # of the sources have a report


def redraw(workload: Workload, seed: int) -> Workload:
    """A workload of the same family and number of jobs, drawn anew."""
    draw = random.Random(seed)
    name, count = f"{workload.name}, draw {seed}", len(workload.jobs)
    if workload.arrival is None:
        templates: list[list[Any]] = []
        for _ in range(count):
            kind_name = draw.choices(list(_TEMPLATES), [kind.share for kind in _TEMPLATES.values()])[0]
            kind = _TEMPLATES[kind_name]
            body = draw.randint(*kind.body)
            output = draw.randint(*kind.output) if kind.output else round(body * draw.uniform(0.8, 1.2))
            templates.append([kind_name, kind.template, body, output])
        return Workload(name, template_jobs(templates))
    rows = [row for row, _ in zip(_sibling_rows(draw), range(count), strict=False)]
    return Workload(name, sibling_jobs(rows), tuple(draw.sample(range(count), count)))


def _sibling_rows(draw: random.Random) -> Iterator[list[Any]]:
    source = 0
    while True:
        tokens = draw.randint(*_SOURCE_TOKENS)
        kinds = (*_OF_A_SOURCE, "report") if draw.random() < _REPORT_SHARE else _OF_A_SOURCE
        yield from ([source, tokens, kind, draw.randint(*_SIBLING_OUTPUTS[kind])] for kind in kinds)
        source += 1
