"""Checks of each part of the service: what is wrong, and how to fix it. A check changes nothing that stays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from thothy_ai.admin.doctor.diagnosis import Diagnosis, Level
from thothy_ai.errors import ConfigError

if TYPE_CHECKING:
    from thothy_ai.settings import Settings

__all__ = ["CHECKS", "Diagnosis", "Level", "examine"]

CHECKS = (
    "settings", "postgres", "schema", "redis", "celery", "model", "engine", "dispatcher", "reaper", "worker", "engines",
    "queue", "webhooks",
)  # fmt: skip


def examine(load: Callable[[], Settings], only: Sequence[str] = ()) -> list[Diagnosis]:
    """Findings of the checks named in `only`, or of all, in the order in which they should be fixed.

    A check is skipped if one that it needs has failed before it: its finding would have the same cause.
    """
    from thothy_ai.admin.doctor import checks  # noqa: PLC0415 - brings SQLAlchemy and Redis along; naming checks does not

    try:
        settings = load()
    except ConfigError as error:
        return [Diagnosis("settings", Level.WRONG, str(error), "correct it in the environment, or unset it there")]
    found: list[Diagnosis] = []
    for name in (name for name in CHECKS if not only or name in only):
        wrong = {finding.check for finding in found if finding.level is Level.WRONG}
        reason = checks.reason_to_skip(name, settings, wrong)
        found += [Diagnosis(name, Level.SKIPPED, reason)] if reason else checks.run(name, settings)
    return found
