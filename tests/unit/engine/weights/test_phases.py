"""Phases of a start are logged in order, with the seconds that each took."""

from __future__ import annotations

import itertools

import pytest

from thothy_ai.engine.weights.loader import Phases


def test_phases_are_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.chain([0.0, 1.25, 2.0, 2.5, 10.0, 11.0])
    monkeypatch.setattr("thothy_ai.engine.weights.loader.time.perf_counter", clock.__next__)
    phases = Phases()
    for name in ("weights", "warm-up", "weights"):
        with phases.timed(name):
            pass
    assert str(phases) == "weights 2.2 s, warm-up 0.5 s"
