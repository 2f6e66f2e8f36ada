"""The picture of `thothy eval --plot`: bars side by side, drawn by matplotlib."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from thothy_ai.evaluation.results import EvaluationResult

Value = Callable[["EvaluationResult"], float | None]
SHARES: Final[Mapping[str, Value]] = {
    "form yield": lambda result: result.form_yield,
    "clean yield": lambda result: result.clean_yield,
    "coverage": lambda result: result.coverage,
    "support": lambda result: result.support,
    "verified": lambda result: result.verified,
    "chrF / 100": lambda result: None if result.chrf is None else result.chrf / 100,
}
SECONDS: Final[Mapping[str, Value]] = {
    "compute-seconds per\naccepted artifact": lambda result: result.seconds_per_accepted
}


def draw(results: Sequence[EvaluationResult], path: Path) -> None:
    """Write a PNG, SVG or PDF, by the path's suffix: shares on the left, compute-seconds on the right.

    Raises `OSError`, and `ValueError` for another suffix.
    """
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # hides messages on caches and fonts
    from matplotlib.figure import Figure

    figure = Figure((9, 4), layout="constrained")
    shares, seconds = figure.subplots(1, 2, width_ratios=(3, 1))
    _bars(shares, results, SHARES)
    shares.set_ylim(0, 1.08)
    _bars(seconds, results, SECONDS)
    figure.suptitle(f"{results[0].kind}, {len(results[0].cases)} cases")
    figure.legend(*shares.get_legend_handles_labels(), loc="outside lower center", ncols=len(results))
    figure.savefig(path)


def _bars(axes: Axes, results: Sequence[EvaluationResult], values: Mapping[str, Value]) -> None:
    """A group of bars per figure that any result has."""
    known = {name: value for name, value in values.items() if any(value(result) is not None for result in results)}
    width = 0.8 / len(results)
    for number, result in enumerate(results):
        places = [index + number * width for index in range(len(known))]
        heights = [value(result) for value in known.values()]
        bars = axes.bar(
            places, [math.nan if height is None else height for height in heights], width, label=result.name
        )
        axes.bar_label(bars, ["" if height is None else f"{height:.2g}" for height in heights], padding=2)
    axes.set_xticks([index + width * (len(results) - 1) / 2 for index in range(len(known))], list(known))
    axes.spines[["top", "right"]].set_visible(False)
