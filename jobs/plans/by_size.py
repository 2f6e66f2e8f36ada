"""`BySize`: the plan of a kind that asks small models differently from large ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from thothy_ai.jobs.api.plan import Context, Plan
from thothy_ai.jobs.api.verdict import Rejection

R_contra = TypeVar("R_contra", contravariant=True)
A_contra = TypeVar("A_contra", contravariant=True)


class CheckedPlan(Protocol[R_contra, A_contra]):
    """A plan that also judges whole artifacts."""

    def __call__(self, request: R_contra, context: Context) -> Plan:
        """Write the artifact, and judge it."""

    def checks(self, request: R_contra, artifact: A_contra) -> Iterable[Rejection | None]:
        """Faults of a whole artifact."""


@dataclass(frozen=True)
class BySize(Generic[R_contra, A_contra]):
    """Chooses a plan by the size of the model, once per job. Both plans judge alike."""

    large: CheckedPlan[R_contra, A_contra]
    small: CheckedPlan[R_contra, A_contra]  # for models that `Context.plain` is true of

    def __call__(self, request: R_contra, context: Context) -> Plan:
        """The calls and the verdict of the plan for the model's size."""
        return (self.small if context.plain else self.large)(request, context)

    def checks(self, request: R_contra, artifact: A_contra) -> Iterable[Rejection | None]:
        """Faults of a whole artifact."""
        return self.large.checks(request, artifact)
