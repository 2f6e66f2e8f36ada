"""Sends urgent jobs into a full drain, to measure how long they wait and what they cost the other jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from thothy_ai.bench.drain import Drained, Later
from thothy_ai.engine.api.core import CoreRequest

_FULL = 0.8  # the share of a drain's time in which urgent jobs are submitted, while others still wait


def urgent_requests(requests: Sequence[CoreRequest], seconds: float, every: float) -> Later:
    """Requests of higher priority, one every `every` seconds, to be submitted during a drain that takes `seconds`.

    Only the shorter half of the requests is used, because a long one near the end would outlast the drain.
    """
    shorter = sorted(requests, key=lambda request: request.sampling.max_tokens)[: (len(requests) + 1) // 2]
    count = min(len(shorter), int(_FULL * seconds / every))
    chosen = shorter[:: max(1, len(shorter) // max(1, count))][:count]
    return Later([replace(request, id=f"{request.id}-urgent", priority=1) for request in chosen], every)


def urgent_figures(without: Drained, drained: Drained) -> list[tuple[str, str]]:
    """Figures that compare the same drain with and without the urgent jobs."""
    waited = [job.waited for job in drained.urgent]
    if not waited:
        return [("urgent jobs", "none: the drain is too short")]
    own = sum(job.compute_seconds for job in drained.urgent)
    preemptions = drained.after.scheduler.preemptions - drained.before.scheduler.preemptions
    return [
        ("urgent jobs", f"{len(waited)}"),
        ("seconds to their first token, mean and maximum", f"{fmean(waited):.2f}, {max(waited):.2f}"),
        ("seconds with them, and more than without", f"{drained.seconds:.2f}, {drained.seconds - without.seconds:.2f}"),
        ("seconds that they computed themselves", f"{own:.2f}"),
        ("preemptions with them", f"{preemptions}"),
    ]
