"""What a job cost: the device time of its attempts.

Device time is the share of an engine's busy seconds that was billed to an attempt, times the engine's devices. The time
in which an engine is resident and idle is in the drain report, and in no job's cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from thothy_ai.db.states import Outcome

HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Cost:
    """Device-seconds of a job's attempts: of all, and of the one that succeeded."""

    seconds: float = 0.0
    useful: float = 0.0
    on_gpu: bool = False

    @property
    def unit(self) -> str:
        """What a second of a device is called."""
        return "GPU-second" if self.on_gpu else "compute-second"

    def price(self, per_hour: float) -> float:
        """The price of all attempts, at the price of one hour of one device."""
        return self.seconds / HOUR * per_hour

    def to_json(self) -> dict[str, Any]:
        """Plain values under stable keys."""
        return {"compute_seconds": self.seconds, "useful_seconds": self.useful}


def cost_of(attempts: Sequence[Mapping[str, Any]]) -> Cost:
    """The cost of these attempts; they have `outcome`, `device_seconds` and `gpus` (None: not known)."""
    useful = sum(each["device_seconds"] for each in attempts if each["outcome"] == Outcome.SUCCEEDED)
    total = sum(each["device_seconds"] for each in attempts)
    billed = [each["gpus"] for each in attempts if each["device_seconds"]]
    return Cost(total, useful, bool(billed) and all(billed))
