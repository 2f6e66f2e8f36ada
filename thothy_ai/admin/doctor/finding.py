"""What a check hands back."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How a part is. A warning is worth knowing and stops nothing."""

    OK = "ok"
    WARNING = "warning"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found, and what to type or change about it."""

    check: str
    level: Level
    says: str
    mend: str | None = None
