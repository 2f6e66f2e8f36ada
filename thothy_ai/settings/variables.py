"""The `THOTHY_*` variables that settings are read from: the environment, and a running stack's `stack.env`.

A variable that is not a setting is most likely a misspelt setting, which would otherwise go unnoticed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from dotenv import dotenv_values
from dotenv.parser import parse_stream

from thothy_ai.errors import ConfigError

PREFIX = "THOTHY_"
STACK_ENV = "stack.env"
# Not read by `Settings`, but by crash tests, and by Docker Compose from an `.env` file.
OTHERS = (
    "THOTHY_ALERT_SECRETS",
    "THOTHY_CRASH_POINT",
    "THOTHY_GPU",
    "THOTHY_KINDS_FOLDER",
    "THOTHY_MACHINE",
    "THOTHY_MODELS",
    "THOTHY_SECRETS",
    "THOTHY_TORCH_INDEX",
    "THOTHY_VERSION",
)
# Kubernetes sets these in every container of a namespace that has a Service whose name begins with "thothy".
_SERVICE_LINK = re.compile(r".*_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP)(_(PROTO|PORT|ADDR))?)")


@dataclass(frozen=True, slots=True)
class UnknownVariable:
    """A variable that is not a setting. `nearest` is the setting that was probably meant; None if none is close."""

    name: str
    nearest: str | None

    def __str__(self) -> str:
        meant = f"; did you mean {self.nearest}?" if self.nearest else ", and has no effect"
        return f"{self.name} is not a setting{meant}"


def unknown_variables(variables: Iterable[str], home: Path) -> list[UnknownVariable]:
    """The `THOTHY_*` variables of the environment and the home's `stack.env` that are not in `variables`, sorted."""
    known = [*variables, *OTHERS]
    file = home / STACK_ENV
    found = {*os.environ, *(dotenv_values(file) if file.is_file() else ())}
    stems = {candidate.removeprefix(PREFIX): candidate for candidate in known}
    unknown = []
    for name in sorted(found):
        if not name.upper().startswith(PREFIX) or name.upper() in known:
            continue
        if _SERVICE_LINK.fullmatch(name) or os.environ.get(name, "").startswith(("tcp://", "udp://")):
            continue
        near = get_close_matches(name.upper().removeprefix(PREFIX), stems, n=1, cutoff=0.7)
        unknown.append(UnknownVariable(name, stems[near[0]] if near else None))
    return unknown


def check_stack_env(file: Path) -> None:
    """Raise `ConfigError` for a file with lines other than `NAME=value`."""
    try:
        with file.open(encoding="utf-8") as opened:
            damaged = [
                line.original.line
                for line in parse_stream(opened)
                if line.error or (line.key is not None and line.value is None)
            ]
    except UnicodeDecodeError:
        damaged = [1]
    if damaged:
        raise ConfigError(f"{file}, line {damaged[0]} is not NAME=value: remove the file, and start the stack again")
