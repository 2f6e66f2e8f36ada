"""The picture of `thothy eval --plot`: bars side by side, drawn by matplotlib."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from thothy_ai.cli.eval_results import Result

SHARES: Final = ("yield", "coverage", "support", "chrF / 100")


def draw(results: Sequence[Result], path: Path) -> None:
    """Write a PNG, SVG or PDF, by the path's suffix: shares on the left, compute-seconds on the right.

    Raises `OSError`, and `ValueError` for another suffix.
    """
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # of caches and fonts
    from matplotlib.figure import Figure

    figure = Figure((9, 4), layout="constrained")
    shares, seconds = figure.subplots(1, 2, width_ratios=(3, 1))
    _bars(shares, results, SHARES, [_shares(result) for result in results])
    shares.set_ylim(0, 1)
    _bars(seconds, results, ("compute-seconds per\naccepted artifact",), [(_seconds(result),) for result in results])
    figure.suptitle(f"{results[0].kind}, {len(results[0].cases)} cases")
    figure.legend(*shares.get_legend_handles_labels(), loc="outside lower center", ncols=len(results))
    figure.savefig(path)


def _shares(result: Result) -> tuple[float, ...]:
    chrf = result.chrf / 100 if result.chrf is not None else None
    return tuple(value or 0.0 for value in (result.artifact_yield, result.coverage, result.support, chrf))


def _seconds(result: Result) -> float:
    return result.seconds_per_accepted or 0.0


def _bars(axes: Axes, results: Sequence[Result], names: Sequence[str], values: Sequence[Sequence[float]]) -> None:
    width = 0.8 / len(results)
    for number, (result, heights) in enumerate(zip(results, values, strict=True)):
        places = [index + number * width for index in range(len(names))]
        bars = axes.bar(places, heights, width, label=result.name)
        axes.bar_label(bars, fmt="%.2g", padding=2)
    axes.set_xticks([index + width * (len(results) - 1) / 2 for index in range(len(names))], names)
    axes.spines[["top", "right"]].set_visible(False)
