"""The latest forecast as metrics of the dispatcher."""

from __future__ import annotations

import math
from collections.abc import Iterator

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily

from thothy_ai.queue.forecast.outlook import Basis, Forecast


def forecast_families(made: Forecast) -> Iterator[Metric]:
    """The metric families of a forecast: infinity where no engine is ready, NaN where nothing is known yet."""
    unknown = math.inf if made.basis is Basis.NO_ENGINE else math.nan
    yield _quantiles(
        "thothy_forecast_empty_seconds",
        "Seconds until the jobs that are due now are done, with their retries and follow-ups: median and 0.9 quantile.",
        unknown if made.p50 is None else made.p50,
        unknown if made.p90 is None else made.p90,
    )
    yield _quantiles(
        "thothy_forecast_late_jobs", "Waiting jobs expected to miss their deadline.", made.late, made.late_p90
    )
    if made.publish_left is not None and made.publish_left_p90 is not None:
        yield _quantiles(
            "thothy_forecast_publish_jobs",
            "Waiting jobs expected to be open at the publishing time (THOTHY_PUBLISH_BY).",
            made.publish_left,
            made.publish_left_p90,
        )
    left: dict[str, float] = {}
    for each in made.kinds:
        left[each.kind] = left.get(each.kind, 0.0) + (each.gpu_seconds if each.gpu_seconds is not None else math.nan)
    work = GaugeMetricFamily(
        "thothy_forecast_gpu_seconds",
        "Seconds of devices, GPUs or CPUs, that the open jobs will still take, by kind.",
        labels=["kind"],
    )
    for kind, seconds in left.items():
        work.add_metric([kind], seconds)
    yield work


def _quantiles(name: str, text: str, median: float, decile: float) -> Metric:
    family = GaugeMetricFamily(name, text, labels=["quantile"])
    family.add_metric(["0.5"], median)
    family.add_metric(["0.9"], decile)
    return family
