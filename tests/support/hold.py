"""Keeps a core from going on, so that what a test does to a running request finds it running."""

from __future__ import annotations

import threading

from tests.support.patience import PATIENCE
from thothy_ai.engine.api.core import Event, OnEvents, TokenEvent


class Hold:
    """Once a core has reported tokens to what `over` returns, its thread waits for `release`."""

    def __init__(self) -> None:
        self._reached, self._released = threading.Event(), threading.Event()

    def over(self, on_events: OnEvents) -> OnEvents:
        def report(events: list[Event]) -> None:
            on_events(events)
            if any(isinstance(event, TokenEvent) for event in events):
                self._reached.set()
                assert self._released.wait(PATIENCE)

        return report

    def reached(self) -> None:
        """Wait until the core waits."""
        assert self._reached.wait(PATIENCE)

    def release(self) -> None:
        """Let the core go on, from now on for good."""
        self._released.set()
