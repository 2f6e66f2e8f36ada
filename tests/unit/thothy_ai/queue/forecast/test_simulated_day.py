"""Half a simulated day: p90 holds in 85 % of forecasts, and the median error is under 15 %.

`python -m benchmarks.forecast` simulates many days, of seeds that no constant was chosen on.
"""

from __future__ import annotations

from statistics import median

from benchmarks.forecast.days import simulate


def test_forecasts_of_half_a_day() -> None:
    samples = [each for each in simulate(seed=0, days=0.7, every=600.0, load=0.4) if each.truth > 0]
    assert len(samples) > 20
    assert any(each.waited for each in samples)
    assert median(abs(each.p50 - each.truth) / each.truth for each in samples if each.waited) < 0.15
    assert sum(each.truth <= each.p90 for each in samples) / len(samples) >= 0.85
