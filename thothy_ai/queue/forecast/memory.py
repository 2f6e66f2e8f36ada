"""`History` as JSON, and back. What another version wrote in another form is forgotten, and learnt again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, fields
from typing import Any

from thothy_ai.queue.forecast.learning import Busy, History, Sums
from thothy_ai.queue.forecast.values import Key, LoadSums

VERSION = 1
SUMS, BY_KEY = ("long", "recent"), ("open_jobs", "arrivals")
TUPLES = {"busy": Busy, "busy_recent": Busy, "load": LoadSums}
FIELDS = tuple(field.name for field in fields(History) if field.name != "arrived")  # which is of one observation only


def to_json(history: History) -> dict[str, Any]:
    """Plain values that `from_json` reads back."""
    values = {name: getattr(history, name) for name in FIELDS}
    values |= {name: [[*key, *astuple(sums)] for key, sums in values[name].items()] for name in SUMS}
    values |= {name: [[*key, value] for key, value in values[name].items()] for name in BY_KEY}
    values |= {name: astuple(values[name]) for name in TUPLES}
    return values | {"version": VERSION}


def from_json(values: Mapping[str, Any] | None) -> History:
    """An empty history if the values are of another version or damaged."""
    if not values or values.get("version") != VERSION:
        return History()
    try:
        read = {name: values[name] for name in FIELDS}
        read |= {name: {Key(kind, model): Sums(*sums) for kind, model, *sums in read[name]} for name in SUMS}
        read |= {name: {Key(kind, model): value for kind, model, value in read[name]} for name in BY_KEY}
        read |= {name: kind(*read[name]) for name, kind in TUPLES.items()}
        return History(**read)
    except (KeyError, TypeError, ValueError):
        return History()
