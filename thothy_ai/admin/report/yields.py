"""The yields, the same wherever jobs are counted: of those that produced output, how many left what can be published.

An artifact is of *form* if no gate is against it, and *clean* if nothing was found in it at all.
"""

from __future__ import annotations


class Yields:
    """Mixed into figures that count `with_output`, `with_artifact` and `clean` jobs; None without any output."""

    __slots__ = ()

    with_output: int
    with_artifact: int
    clean: int

    @property
    def form_yield(self) -> float | None:
        """Jobs with an artifact that no gate is against over jobs that produced output."""
        return self.with_artifact / self.with_output if self.with_output else None

    @property
    def clean_yield(self) -> float | None:
        """Jobs with an artifact in which nothing was found over jobs that produced output."""
        return self.clean / self.with_output if self.with_output else None
