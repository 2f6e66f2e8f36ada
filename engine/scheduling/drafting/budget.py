"""How many drafts a step gets: as many as give the most tokens per second. At a full batch that is none."""

from __future__ import annotations

from thothy_ai.engine.api.step import Float64


def affordable(rows: int, chances: Float64, seconds: Float64, otherwise: float) -> int:
    """How many of the likeliest drafts to send, of those with these falling `chances` [N].

    `seconds` [N]: of steps with 1 to N drafts; `otherwise`: tokens per second without any. Each of `rows` draws a token
    anyway.
    """
    rates = (rows + chances.cumsum()) / seconds
    return int(rates.argmax()) + 1 if len(rates) and rates.max() > otherwise else 0
