"""The picture of `thothy bench serve --plot`: latencies and goodput by rate, drawn by matplotlib."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from thothy_ai.bench.service.sweep import Sweep

SUFFIXES: Final = (".svg", ".png", ".pdf")
STYLES: Final = {"p50": "-", "p90": "--", "p99": ":"}


def draw(sweep: Sweep, path: Path) -> None:
    """Write an SVG, PNG or PDF, by the path's suffix. Raises `OSError`."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # hides messages on caches and fonts
    from matplotlib.figure import Figure

    loads, target = sweep.to_json()["loads"], sweep.options.target
    rates = [load["rate"] for load in loads]
    figure = Figure((11, 4), layout="constrained")
    first, token, good = figure.subplots(1, 3)
    for axes, name, most in ((first, "first_token", target.first_token), (token, "per_token", target.per_token)):
        for label, style in STYLES.items():
            values = [float("nan") if load[name][label] is None else 1e3 * load[name][label] for load in loads]
            axes.plot(rates, values, style, color="C0", marker=".", label=label)
        axes.axhline(1e3 * most, color="C3", linewidth=0.8, label="target")
        axes.set_yscale("log")
        axes.set_title(f"{name.replace('_', ' ')}, ms")
        axes.legend()
    good.plot(rates, [load["goodput"] for load in loads], marker=".", label="goodput")
    good.plot(rates, rates, color="0.7", linewidth=0.8, label="sent")
    good.set_title("goodput, requests per second")
    good.legend()
    for axes in (first, token, good):
        axes.set_xlabel("requests per second")
        axes.spines[["top", "right"]].set_visible(False)
        if sweep.knee is not None and sweep.bounded:
            axes.axvline(sweep.knee, color="0.7", linewidth=0.8)
    figure.savefig(path)
