"""Loads what the validators of the built-in kinds load when they first judge an English text: a second's worth of
patterns, dictionaries and models of languages. What other languages need is loaded with their first text.
"""

from __future__ import annotations

from thothy_ai.jobs.kinds.trend_summary import KIND
from thothy_ai.jobs.kinds.trend_summary.values import TrendSummary, TrendSummaryArtifact

_SOURCE = """Repair cafés in Europe

There are now 3,840 repair cafés in Europe, twice as many as in 2019, and 61 city governments pay part of their rent.
In Utrecht, volunteers repaired 5,200 lamps, trousers and coffee machines last year, about two thirds of what they were
given; in May, the share rose from 41 to 63%. “A screw is a promise. Glue is a goodbye,” says Femke Postma, a retired
electrician. The city put the value at €1.86 million and does not want a second evening before autumn."""
_TEXT = (
    "Volunteers in Utrecht mended nearly two in three objects last year, as Femke Postma tells her visitors: “A screw "
    "is a promise.” The number of such evenings has doubled since 2019, to 3,840, while the costs of 61 cities did not "
    "fall by 12% but grew, because more people would rather keep a machine than buy another one somewhere else."
)
_POINT = {"point": _TEXT, "quote": "volunteers repaired 5,200 lamps, trousers and coffee machines last year"}
_SUMMARY = {
    "title": "Repair cafés double",
    "standfirst": _TEXT,
    "key_points": [_POINT, _POINT, _POINT],
    "why_it_matters": _TEXT,
    "tags": ["repair", "cities"],
    "confidence": "high",
}


def warm_up() -> None:
    """Run the checks of a trend summary, which load what all kinds need, and ignore the verdict."""
    request = TrendSummary(source=_SOURCE, audience="readers")
    for _ in KIND.plan.checks(request, TrendSummaryArtifact.model_validate(_SUMMARY)):  # type: ignore[attr-defined]
        pass
