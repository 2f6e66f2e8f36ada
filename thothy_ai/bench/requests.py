"""The jobs of a drain, as a worker's requests to the engine. They are made by the caller, which knows the kinds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from thothy_ai.engine.api import GenerationRequest

JOBS = 1_000


@dataclass(frozen=True, slots=True)
class Backlog:
    """The jobs to make: `jobs` of the usual mix of kinds, or of one `kind`. The same `seed` gives the same jobs.

    `house_words` is the length, in words, of a system message with which all jobs begin; 0 for none.
    """

    jobs: int = JOBS
    kind: str | None = None
    seed: int = 0
    house_words: int = 0


# Raises `InvalidRequestError` for an unknown kind.
MakeRequests = Callable[[Backlog], Sequence[GenerationRequest]]
