"""Priorities and times of waiting jobs: their limits, and changes of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, auto
from typing import Final

from thothy_ai.errors import InvalidJobError
from thothy_ai.queue.moments import RANGE, nameable


class Keep(Enum):
    """Stands for a job's present value; None removes a time."""

    AS_IT_IS = auto()


KEEP: Final = Keep.AS_IT_IS


@dataclass(frozen=True, slots=True)
class Change:
    """A change of waiting jobs. Times carry a time zone; None removes one. Raises `InvalidJobError`."""

    priority: int | Keep = KEEP
    deadline: datetime | Keep | None = KEEP
    not_before: datetime | Keep | None = KEEP

    def __post_init__(self) -> None:
        if not self._given():
            raise InvalidJobError("change", "names no priority, deadline or not_before")
        if self.priority is not KEEP:
            require_whole("priority", self.priority, -100, 100)
        require_times(
            None if self.deadline is KEEP else self.deadline,
            None if self.not_before is KEEP else self.not_before,
            datetime.now(UTC),
        )

    def parameters(self) -> dict[str, str]:
        """Parameters of `queue/change`: the given values as JSON, and in words."""
        given = self._given()
        words = ", ".join(f"no {name}" if value is None else f"{name} {value}" for name, value in given.items())
        return {"change": json.dumps(given), "detail": words.replace("_", " ")}

    def _given(self) -> dict[str, int | str | None]:
        fields = {"priority": self.priority, "deadline": self.deadline, "not_before": self.not_before}
        return {
            name: value.astimezone(UTC).isoformat() if isinstance(value, datetime) else value
            for name, value in fields.items()
            if not isinstance(value, Keep)
        }


def require_times(deadline: object, not_before: object, now: datetime) -> None:
    """Raise `InvalidJobError` for impossible times, and for an impossible order of them."""
    _require_moment("deadline", deadline)
    _require_moment("not_before", not_before)
    if isinstance(deadline, datetime):
        if deadline <= now:
            raise InvalidJobError("deadline", f"{deadline.isoformat()} has passed")
        if isinstance(not_before, datetime) and not_before >= deadline:
            raise too_late()


def too_late() -> InvalidJobError:
    return InvalidJobError("not_before", "is not before the deadline")


def require_whole(field: str, value: object, low: int, high: int) -> None:
    """Raise `InvalidJobError` unless the value is a whole number in this range."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidJobError(field, f"{value!r} is not a whole number from {low} to {high}")


def _require_moment(field: str, value: object) -> None:
    if value is None:
        return
    if not isinstance(value, datetime):
        raise InvalidJobError(field, f"{value!r} is not a datetime")
    if value.utcoffset() is None:
        raise InvalidJobError(field, f"{value.isoformat()} has no time zone")
    if not nameable(value):
        raise InvalidJobError(field, f"{value.isoformat()} is not {RANGE}")
