"""`Jobs`: what a call enqueued."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar
from uuid import UUID

J = TypeVar("J")


class Jobs(list[J]):
    """Handles in the order of the entries. `batch_id` is that of their batch, if a webhook is told about new jobs."""

    def __init__(self, jobs: Iterable[J] = (), batch_id: UUID | None = None) -> None:
        super().__init__(jobs)
        self.batch_id = batch_id
