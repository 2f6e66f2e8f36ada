"""What an engine tells its registrar: one JSON list per line. Times are those of CLOCK_MONOTONIC, common to both."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from thothy_ai.db.states import EndReason
from thothy_ai.engine.api import CoreStats

COUNTERS = ("busy_seconds", "prefill_seconds", "decode_seconds", "prompt_tokens", "cached_tokens", "output_tokens")


@dataclass(frozen=True, slots=True)
class Registration:
    """The first line: what is known before the model is loaded. `devices` are the GPUs that it is going to use."""

    session_id: str
    engine_name: str
    machine: str
    model_name: str
    device: str
    devices: tuple[str, ...]
    capacity: int
    started: float


@dataclass(frozen=True, slots=True)
class Ready:
    """The engine answers at this address."""

    address: str
    at: float


@dataclass(frozen=True, slots=True)
class Stopping:
    """The engine accepts nothing new."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The engine is exiting; `counters` are its last ones, if it ever served."""

    reason: str
    counters: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, code: int, core: CoreStats | None = None) -> Ended:
        """With this exit status."""
        counters = {} if core is None else {name: getattr(core, name) for name in COUNTERS}
        return cls(EndReason.FAILED if code else EndReason.STOPPED, counters)


Message = Registration | Ready | Stopping | Ended
_KINDS: Mapping[str, type[Message]] = {kind.__name__: kind for kind in (Registration, Ready, Stopping, Ended)}


def line_of(message: Message) -> bytes:
    """A message as a line."""
    return json.dumps([type(message).__name__, asdict(message)]).encode() + b"\n"


def read_line(line: bytes) -> Message:
    """The message of a line. Both sides are of one version: nothing is checked."""
    kind, fields = json.loads(line)
    return _KINDS[kind](**_tuples(fields))


def _tuples(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
