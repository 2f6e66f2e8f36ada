"""Requests that wait for their grammars, which no other request does; refusals as events."""

from __future__ import annotations

import queue
import threading
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from torch import Tensor

from tests.support.arithmetic_model import arithmetic_core
from tests.support.patience import PATIENCE
from thothy_ai.engine.api import FinishReason, SamplingParams
from thothy_ai.engine.api.core import CoreRequest, Event, FinishedEvent, RefusedEvent, TokenEvent
from thothy_ai.engine.api.errors import (
    BudgetTooSmallError,
    EngineError,
    EngineStoppedError,
    GrammarError,
    PromptTooLongError,
)
from thothy_ai.engine.api.limits import EngineConfig
from thothy_ai.engine.core.loop import EngineCore

CONFIG = EngineConfig(block_size=2, num_blocks=600, max_rows=4, token_budget=16, max_context=1000)


class Anything:
    """A grammar that allows every token; its shortest text has `least`."""

    finished = False

    def __init__(self, least: int = 0) -> None:
        self.least = least

    def fill_mask(self, row: Tensor) -> None:
        row.fill_(-1)

    def limit(self, budget: int) -> None:
        """It ends by itself."""
        if budget < self.least:
            raise BudgetTooSmallError(f"{self.least} tokens are needed; the limit is {budget}")

    def may_force_after(self, token: int) -> bool:
        return True

    def forced(self) -> list[int]:
        return []

    def advance(self, token: int) -> None:
        """Any is allowed."""


@dataclass
class Compiler:
    """Waits for `go` with the schema `slow`; raises what a schema names."""

    go: threading.Event = field(default_factory=threading.Event)
    began: threading.Event = field(default_factory=threading.Event)

    def compile(self, schema: str) -> Anything:
        self.began.set()
        if schema == "slow":
            assert self.go.wait(PATIENCE)
        if schema == "bad":
            raise GrammarError("no such type")
        if schema == "odd":
            raise ZeroDivisionError("in a parser")
        return Anything(least=int(schema) if schema.isdecimal() else 0)


@dataclass
class Stage:
    core: EngineCore
    compiler: Compiler
    events: queue.SimpleQueue[list[Event]]
    heard: defaultdict[str, deque[Event]] = field(default_factory=lambda: defaultdict(deque))  # by request

    def end_of(self, request_id: str) -> tuple[FinishedEvent | RefusedEvent, int]:
        """How a request ended, and how many tokens it gained until then. Others may end before or after it."""
        tokens = 0
        while True:
            while self.heard[request_id]:
                event = self.heard[request_id].popleft()
                if not isinstance(event, TokenEvent):
                    return event, tokens
                tokens += len(event.tokens)
            for event in self.events.get(timeout=PATIENCE):
                self.heard[event.id].append(event)


@pytest.fixture
def stage() -> Iterator[Stage]:
    events: queue.SimpleQueue[list[Event]] = queue.SimpleQueue()
    compiler = Compiler()
    core = arithmetic_core(CONFIG, events.put, grammars=compiler)
    core.start()
    yield Stage(core, compiler, events)
    compiler.go.set()
    core.stop()
    assert core.join(PATIENCE)


def request(id_: str, schema: str | None = None, count: int = 5) -> CoreRequest:
    return CoreRequest(id_, (3, 1, 4), SamplingParams(max_tokens=count), schema=schema)


def test_a_schema_that_compiles_for_long_delays_no_other_request(stage: Stage) -> None:
    stage.core.submit(request("slow", "slow"))
    assert stage.compiler.began.wait(PATIENCE)
    stage.core.submit(request("plain"))
    end, tokens = stage.end_of("plain")
    assert isinstance(end, FinishedEvent)
    assert (end.reason, tokens) == (FinishReason.LENGTH, 5)
    stage.compiler.go.set()
    assert stage.end_of("slow")[1] == 5


def test_a_schema_that_compiles_for_long_delays_no_other_schema(stage: Stage) -> None:
    stage.core.submit(request("slow", "slow"))
    assert stage.compiler.began.wait(PATIENCE)
    stage.core.submit(request("fast", "good"))
    assert stage.end_of("fast")[1] == 5
    stage.compiler.go.set()
    assert stage.end_of("slow")[1] == 5


@pytest.mark.parametrize(("schema", "words"), [("bad", "no such type"), ("odd", "ZeroDivisionError")])
def test_a_schema_that_does_not_compile_ends_its_own_request_and_is_counted(
    stage: Stage, schema: str, words: str
) -> None:
    stage.core.submit(request("a", schema))
    stage.core.submit(request("b", "good"))
    end, _ = stage.end_of("a")
    assert isinstance(end, RefusedEvent)
    assert isinstance(end.error, GrammarError)
    assert words in str(end.error)
    assert stage.end_of("b")[1] == 5
    assert stage.core.stats().requests_refused == 1
    stage.core.submit(request("a", "good"))
    assert stage.end_of("a")[1] == 5, "the id is free again"


def test_a_budget_that_holds_no_text_of_the_schema_is_refused(stage: Stage) -> None:
    stage.core.submit(request("small", "6", count=5))
    end, _ = stage.end_of("small")
    assert isinstance(end, RefusedEvent)
    assert isinstance(end.error, BudgetTooSmallError)
    stage.core.submit(request("enough", "5", count=5))
    assert stage.end_of("enough")[1] == 5


def test_a_prompt_that_leaves_no_room_for_the_schema_is_too_long(stage: Stage) -> None:
    room = stage.core.info().max_context - 900
    for id_, least in (("a", room + 1), ("b", room)):
        stage.core.submit(CoreRequest(id_, (1,) * 900, SamplingParams(max_tokens=5000), schema=str(least)))
    end, _ = stage.end_of("a")
    assert isinstance(end, RefusedEvent)
    assert isinstance(end.error, PromptTooLongError)
    assert stage.end_of("b")[1] == room


def test_what_the_core_refuses_becomes_an_event_and_is_counted_once(stage: Stage) -> None:
    for schema in (None, "good"):
        stage.core.submit(CoreRequest("long", (1,) * 2000, SamplingParams(), schema=schema))
        end, _ = stage.end_of("long")
        assert isinstance(end, RefusedEvent)
        assert isinstance(end.error, PromptTooLongError)
    stage.core.submit(request("last"))
    stage.end_of("last")
    assert stage.core.stats().requests_refused == 2


def test_a_request_that_is_aborted_while_its_schema_compiles_never_runs(stage: Stage) -> None:
    stage.core.submit(request("a", "slow", count=900))
    assert stage.compiler.began.wait(PATIENCE)
    stage.core.abort("a", FinishReason.STOP)
    stage.compiler.go.set()
    end, tokens = stage.end_of("a")
    assert isinstance(end, FinishedEvent)
    assert end.reason is FinishReason.STOP
    assert tokens < 900


def test_stop_comes_after_what_was_submitted_before(stage: Stage) -> None:
    stage.core.submit(request("a", "slow", count=900))
    stage.core.stop()
    stage.compiler.go.set()
    end, _ = stage.end_of("a")
    assert isinstance(end.error, EngineStoppedError)
    assert isinstance(end.error, EngineError)
    assert stage.core.join(PATIENCE)
