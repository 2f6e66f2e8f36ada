"""How many drafts a step gets: the number that gives the most tokens per second, which is 0 for a full batch."""

from __future__ import annotations

from thothy_ai.engine.api.step import Float64


def affordable(rows: int, chances: Float64, seconds: Float64, otherwise: float) -> int:
    """How many of the likeliest drafts to compute, given their descending `chances` [N].

    `seconds` [N]: durations of steps with 1 to N drafts; `otherwise`: tokens per second without drafts. Each of the
    `rows` draws one token in any case.
    """
    rates = (rows + chances.cumsum()) / seconds
    return int(rates.argmax()) + 1 if len(rates) and rates.max() > otherwise else 0
