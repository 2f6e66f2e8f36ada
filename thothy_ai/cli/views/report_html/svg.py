"""Drawings by matplotlib as SVG in an HTML page: text stays text, in the typeface of the page."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from io import StringIO
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DPI: Final = 72  # one SVG unit is one CSS pixel
CHARACTER_PIXELS: Final = 7.8  # of a wide typeface
STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 12,
    "axes.edgecolor": "#9a9a9a",
    "axes.labelcolor": "#555555",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.axisbelow": True,
    "axes.formatter.use_mathtext": False,
    "axes.unicode_minus": False,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.8,
    "text.parse_math": False,
    "xtick.color": "#555555",
    "ytick.color": "#555555",
    "ytick.major.size": 0,
    "xtick.major.size": 3,
}
Draw = Callable[["Axes", int], None]


def drawn(label: str, width: int, height: int, draw: Draw) -> str:
    """The drawing as SVG; sizes are in pixels."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # hides messages on caches and fonts
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    salt = f"{label} {width}"  # ids must differ between the drawings of a page
    with rc_context({**STYLE, "svg.hashsalt": salt}):
        figure = Figure((width / DPI, height / DPI), dpi=DPI)
        axes = figure.add_subplot()
        draw(axes, width)
        longest = max((len(text.get_text()) for text in axes.get_yticklabels()), default=0)
        left = max(longest * CHARACTER_PIXELS + 8, 44) if longest else 14
        figure.subplots_adjust(left / width, 30 / height, 1 - 18 / width, 1 - 8 / height)
        out = StringIO()
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    return inline(out.getvalue())


def inline(svg: str) -> str:
    """Make SVG embeddable in HTML: no prologue, metadata, namespaces, or styles that apply to the whole page."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style[^>]*>.*?</style>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r' xmlns(:\w+)?="[^"]*"| version="1.1"', "", svg)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    return re.sub(r'<g id="[^"]*"', "<g", svg).replace("<svg", '<svg aria-hidden="true"', 1).strip()
