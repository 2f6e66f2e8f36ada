"""`StackSettingsSource`: the settings in `stack.env`, which a running embedded stack writes into its home."""

from __future__ import annotations

import fcntl
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic_settings import BaseSettings, DotEnvSettingsSource

from thothy_ai.settings.variables import STACK_ENV

STACK_LOCK = "stack.lock"  # locked while a stack runs


class StackSettingsSource(DotEnvSettingsSource):
    """The settings in the `stack.env` of a home.

    Kinds are code that is imported. They are read only while a stack holds the home's lock, so that a copied or
    unpacked folder cannot have code imported.
    """

    def __init__(self, settings_cls: type[BaseSettings], home: Path) -> None:
        super().__init__(settings_cls, env_file=home / STACK_ENV)
        self._home = home

    def __call__(self) -> dict[str, Any]:
        """The values by setting name, passwords included."""
        values = super().__call__()
        if "kinds" in values and not stack_runs(self._home):
            del values["kinds"]
        return values


def stack_runs(home: Path) -> bool:
    """Whether a process holds the lock of a stack in this home."""
    with suppress(OSError), (home / STACK_LOCK).open("rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
