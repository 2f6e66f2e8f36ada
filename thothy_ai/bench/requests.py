"""The jobs of a drain: requests as a worker sends them to the engine, made by a caller that knows the kinds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from thothy_ai.engine.api import GenerationRequest

JOBS = 1_000


@dataclass(frozen=True, slots=True)
class Backlog:
    """Which jobs: `jobs` of the usual mix of kinds, or of one `kind`. The same `seed` gives the same jobs.

    `house_words`: the length of a system message that all of them begin with, in words; 0 for none.
    """

    jobs: int = JOBS
    kind: str | None = None
    seed: int = 0
    house_words: int = 0


# Raises `InvalidRequestError`, for an unknown kind.
MakeRequests = Callable[[Backlog], Sequence[GenerationRequest]]
