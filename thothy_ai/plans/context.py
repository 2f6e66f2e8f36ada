"""What a plan may know of the engine that its calls go to."""

from __future__ import annotations

from thothy_ai.engine.api import EngineInfo
from thothy_ai.jobs import Context, Previous

UNMEASURED = 0.5  # the precision of a verifier, unless it is known


def context_of(info: EngineInfo | None, previous: Previous | None = None, precision: float = UNMEASURED) -> Context:
    """The context of an attempt at an engine; `precision` is that of the findings of verification."""
    if info is None:
        return Context(previous=previous, verification_precision=precision)
    return Context(info.max_context, info.parameters, previous, bool(info.verifier), precision)
