"""How many drafts a step gets: as many as give the most tokens per second. At a full batch that is none."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Gain = tuple[float, float]  # of a drafted token: the chance that it is right, and the draws that it then saves, 1 or 0


def affordable(rows: int, gains: Sequence[Gain], seconds: Callable[[int], float], otherwise: float) -> int:
    """How many of the likeliest drafts to send, of `gains` with falling chances.

    `seconds(n)` of a step with n drafts; `otherwise`: tokens per second without any. Each of `rows` draws a token
    anyway.
    """
    best, chosen, expected = otherwise, 0, float(rows)
    for number, (chance, saved) in enumerate(gains, 1):
        expected += chance * saved
        if (rate := expected / seconds(number)) > best:
            best, chosen = rate, number
    return chosen
