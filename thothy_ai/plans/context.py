"""What a plan may know of the engine that its calls go to."""

from __future__ import annotations

from datetime import datetime
from typing import Final, NamedTuple

from thothy_ai.engine.api import EngineInfo
from thothy_ai.jobs import Context, Previous
from thothy_ai.jobs.checks.gates import UNMEASURED, estimated

MIN_DOUBTS: Final = 10  # fewer say nothing about a verifier


class Doubts(NamedTuple):
    """Of the doubts of a verifier on labelled claims, how many were right, and how many were wrong."""

    found: int = 0
    false_alarms: int = 0
    measured_at: datetime | None = None

    @property
    def total(self) -> int:
        """How many doubts there were."""
        return self.found + self.false_alarms

    @property
    def weight(self) -> float:
        """What its findings weigh: its precision, or that of a check that was never measured."""
        return estimated(self.found, self.false_alarms) if self.total >= MIN_DOUBTS else UNMEASURED


class VerifierModel(NamedTuple):
    """A model that verifies claims. Others under its name have other weights, and their own precision."""

    name: str
    weights: str  # a digest; empty of another's server, whose weights nobody can see


NO_DOUBTS: Final = Doubts()


def verifier_of(info: EngineInfo) -> VerifierModel:
    """The model that verifies claims at an engine: the entailment model beside it, or its own."""
    return (
        VerifierModel(info.verifier, info.verifier_weights)
        if info.verifier
        else VerifierModel(info.model, info.weights)
    )


def context_of(info: EngineInfo | None, previous: Previous | None = None, doubts: Doubts = NO_DOUBTS) -> Context:
    """The context of an attempt at an engine. `doubts` are those of its verifier, when it was measured."""
    if info is None:
        return Context(previous=previous)
    return Context(info.max_context, info.parameters, previous, bool(info.verifier), doubts.weight)
