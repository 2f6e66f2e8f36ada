"""Yields, computed the same way wherever jobs are counted: the share of jobs with output that can be published.

*Form yield* counts artifacts that no gate rejects, *clean yield* artifacts in which nothing was found at all.
"""

from __future__ import annotations


class Yields:
    """Mixed into figures that count `with_output`, `with_artifact` and `clean` jobs. Yields are None without output."""

    __slots__ = ()

    with_output: int
    with_artifact: int
    clean: int

    @property
    def form_yield(self) -> float | None:
        """Jobs with an artifact that no gate rejects, divided by jobs that produced output."""
        return self.with_artifact / self.with_output if self.with_output else None

    @property
    def clean_yield(self) -> float | None:
        """Jobs with an artifact in which nothing was found, divided by jobs that produced output."""
        return self.clean / self.with_output if self.with_output else None
