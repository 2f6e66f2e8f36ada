"""`Peer`: another engine that has a model loaded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from thothy_ai.engine.api.core import CoreRequest


class Peer(Protocol):
    def run(self, requests: Sequence[CoreRequest]) -> list[int]:
        """Drain the requests; returns the number of output tokens of each."""
        ...
