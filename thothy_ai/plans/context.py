"""What a plan may know of the engine that its calls go to."""

from __future__ import annotations

from typing import Final, NamedTuple

from thothy_ai.engine.api import EngineInfo
from thothy_ai.jobs import Context, Previous
from thothy_ai.jobs.checks.gates import UNMEASURED, estimated

MIN_DOUBTS: Final = 10  # fewer say nothing about a verifier


class Doubts(NamedTuple):
    """Of the doubts of a verifier on labelled claims, how many were right, and how many were wrong."""

    found: int = 0
    false_alarms: int = 0

    @property
    def weight(self) -> float:
        """What its findings weigh: its precision, or that of a check that was never measured."""
        return estimated(*self) if sum(self) >= MIN_DOUBTS else UNMEASURED


NO_DOUBTS: Final = Doubts()


def verifier_of(info: EngineInfo) -> str:
    """The name of the model that verifies claims at an engine: the entailment model beside it, or its own."""
    return info.verifier or info.model


def context_of(info: EngineInfo | None, previous: Previous | None = None, doubts: Doubts = NO_DOUBTS) -> Context:
    """The context of an attempt at an engine. `doubts` are those of its verifier, when it was measured."""
    if info is None:
        return Context(previous=previous)
    return Context(info.max_context, info.parameters, previous, bool(info.verifier), doubts.weight)
