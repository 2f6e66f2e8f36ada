"""Runs requests through a core on its own thread and gathers what it reports."""

from __future__ import annotations

import queue
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tests.support.patience import PATIENCE
from thothy_ai.engine.api import TokenLogprob
from thothy_ai.engine.api.core import CoreRequest, Event, FinishedEvent, OnEvents, RefusedEvent, TokenEvent
from thothy_ai.engine.api.errors import EngineError
from thothy_ai.engine.core.loop import EngineCore
from thothy_ai.engine.grammar.compiler import Grammar


@dataclass(frozen=True, slots=True)
class GrammarRequest(CoreRequest):
    """A request with a ready grammar."""

    grammar: Grammar | None = None


def submit(core: EngineCore, request: CoreRequest) -> None:
    core.submit(request, getattr(request, "grammar", None))


@dataclass
class Collected:
    """What a core reported, by request."""

    tokens: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    logprobs: dict[str, list[TokenLogprob | None]] = field(default_factory=lambda: defaultdict(list))
    finished: dict[str, FinishedEvent] = field(default_factory=dict)


class EngineDriver:
    """`build` makes a core that reports to the callback it is given; the driver starts it and stops it."""

    def __init__(self, build: Callable[[OnEvents], EngineCore]) -> None:
        self._events: queue.SimpleQueue[list[Event]] = queue.SimpleQueue()
        self.core = build(self._take)
        self.collected = Collected()
        self._refusals: list[EngineError] = []

    def __enter__(self) -> EngineDriver:
        return self

    def __exit__(self, *_: object) -> None:
        self.core.stop()
        assert self.core.join(PATIENCE)

    def run(self, requests: Iterable[CoreRequest]) -> Collected:
        """Submit everything before the core starts, so that a run is the same each time; wait for all of it."""
        ids = [request.id for request in requests if self.submit(request) is None]
        self.core.start()
        while not self.collected.finished.keys() >= set(ids):
            self.gather()
        return self.collected

    def submit(self, request: CoreRequest) -> None:
        """Raises what the core refuses it with, which it reports at once, on this thread."""
        submit(self.core, request)
        if self._refusals:
            raise self._refusals.pop()

    def _take(self, events: list[Event]) -> None:
        self._refusals += [event.error for event in events if isinstance(event, RefusedEvent)]
        if events := [event for event in events if not isinstance(event, RefusedEvent)]:
            self._events.put(events)

    def gather(self) -> None:
        """Take the next step's events; no request may report anything after its end."""
        for event in self._events.get(timeout=PATIENCE):
            assert event.id not in self.collected.finished
            if isinstance(event, TokenEvent):
                self.collected.tokens[event.id] += event.tokens
                self.collected.logprobs[event.id] += event.logprobs or (None,) * len(event.tokens)
            else:
                self.collected.finished[event.id] = event
