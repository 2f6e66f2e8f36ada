"""The result of a check."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How serious a finding is. A warning stops nothing; a skipped check has not been made."""

    OK = "ok"
    WARNING = "warning"
    WRONG = "wrong"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One finding of a check, and what to type or change to fix it."""

    check: str
    level: Level
    says: str
    fix: str | None = None

    def to_json(self) -> dict[str, str | None]:
        return {"check": self.check, "level": self.level, "says": self.says, "fix": self.fix}
