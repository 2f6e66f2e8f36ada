"""What a plan can learn about the engine that its calls go to."""

from __future__ import annotations

from datetime import datetime
from typing import Final, NamedTuple

from thothy_ai.engine.api import EngineInfo
from thothy_ai.jobs import Context, Previous
from thothy_ai.jobs.checks.gates import UNMEASURED, estimated

MIN_DOUBTS: Final = 10  # with fewer, a verifier counts as unmeasured


class Doubts(NamedTuple):
    """How many of a verifier's doubts about labelled claims were right, and how many were wrong."""

    found: int = 0
    false_alarms: int = 0
    measured_at: datetime | None = None

    @property
    def total(self) -> int:
        """The number of doubts, right and wrong."""
        return self.found + self.false_alarms

    @property
    def weight(self) -> float:
        """The weight of its findings: its precision, or the default of checks that were never measured."""
        return estimated(self.found, self.false_alarms) if self.total >= MIN_DOUBTS else UNMEASURED


class VerifierModel(NamedTuple):
    """A model that verifies claims. Models of the same name with other weights have a precision of their own."""

    name: str
    weights: str  # a digest; empty for a server over HTTP, whose weights are not visible


NO_DOUBTS: Final = Doubts()


def verifier_of(info: EngineInfo) -> VerifierModel:
    """The model that verifies claims at an engine: its entailment model if it has one, or else the resident model."""
    return (
        VerifierModel(info.verifier, info.verifier_weights)
        if info.verifier
        else VerifierModel(info.model, info.weights)
    )


def context_of(info: EngineInfo | None, previous: Previous | None = None, doubts: Doubts = NO_DOUBTS) -> Context:
    """The context of an attempt at an engine. `doubts` were counted when its verifier was measured."""
    if info is None:
        return Context(previous=previous)
    return Context(info.max_context, info.parameters, previous, bool(info.verifier), doubts.weight)
