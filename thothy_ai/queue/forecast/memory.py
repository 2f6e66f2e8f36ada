"""`History` as JSON, and back. What an older or newer version wrote in another form is forgotten, and learnt again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple
from typing import Any

from thothy_ai.queue.forecast.learning import Busy, History, Sums
from thothy_ai.queue.forecast.values import Key, LoadSums

VERSION = 1


def to_json(learnt: History) -> dict[str, Any]:
    """Plain values that `from_json` reads back."""
    return {
        "version": VERSION,
        "at": learnt.at,
        "long": [[*key, *astuple(sums)] for key, sums in learnt.long.items()],
        "recent": [[*key, *astuple(sums)] for key, sums in learnt.recent.items()],
        "busy": astuple(learnt.busy),
        "busy_recent": astuple(learnt.busy_recent),
        "load": astuple(learnt.load),
        "slots": learnt.slots,
        "full_since": learnt.full_since,
        "open_since": learnt.open_since,
        "engines": learnt.engines,
        "gpus": learnt.gpus,
        "on_gpu": learnt.on_gpu,
        "open_jobs": [[*key, jobs] for key, jobs in learnt.open_jobs.items()],
        "arrivals": [[*key, rate] for key, rate in learnt.arrivals.items()],
        "parents": dict(learnt.parents),
        "children": {kind: dict(each) for kind, each in learnt.children.items()},
    }


def from_json(values: Mapping[str, Any] | None) -> History:
    """What was learnt; nothing, if the values are of another version or damaged."""
    if not values or values.get("version") != VERSION:
        return History()
    try:
        return _read(values)
    except (KeyError, TypeError, ValueError):
        return History()


def _read(values: Mapping[str, Any]) -> History:
    return History(
        at=float(values["at"]),
        long=_sums(values["long"]),
        recent=_sums(values["recent"]),
        busy=Busy(*values["busy"]),
        busy_recent=Busy(*values["busy_recent"]),
        load=LoadSums(*values["load"]),
        slots=values["slots"],
        full_since=values["full_since"],
        open_since=values["open_since"],
        engines=int(values["engines"]),
        gpus=float(values.get("gpus", 0.0)),  # an older version wrote neither
        on_gpu=bool(values.get("on_gpu", False)),
        open_jobs={Key(kind, model): jobs for kind, model, jobs in values["open_jobs"]},
        arrivals={Key(kind, model): rate for kind, model, rate in values["arrivals"]},
        parents=values["parents"],
        children=values["children"],
    )


def _sums(rows: list[list[Any]]) -> dict[Key, Sums]:
    return {Key(kind, model): Sums(*sums) for kind, model, *sums in rows}
