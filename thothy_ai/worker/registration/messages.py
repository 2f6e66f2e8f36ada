"""Messages of an engine to its registrar. Times are those of CLOCK_MONOTONIC, common to both."""

from __future__ import annotations

from dataclasses import dataclass, field

from thothy_ai.db.states import EndReason
from thothy_ai.engine.api import CoreStats
from thothy_ai.engine.wire.codec import Codec

COUNTERS = (
    "busy_seconds", "prefill_seconds", "decode_seconds", "direct_seconds",
    "prompt_tokens", "cached_tokens", "output_tokens",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Registration:
    """The first message: what is known before the model is loaded. `devices` are the GPUs that the engine will use,
    `adapters` the names of those it loads at start.
    """

    session_id: str
    engine_name: str
    machine: str
    model_name: str
    device: str
    devices: tuple[str, ...]
    capacity: int
    started: float
    adapters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ready:
    """The engine answers at this address."""

    address: str
    at: float


@dataclass(frozen=True, slots=True)
class Stopping:
    """The engine accepts nothing new."""


@dataclass(frozen=True, slots=True)
class EngineEnded:
    """The engine is exiting; `counters` are its last ones, if it ever served."""

    reason: str
    counters: dict[str, int | float] = field(default_factory=dict)

    @classmethod
    def of(cls, code: int, core: CoreStats | None = None) -> EngineEnded:
        counters: dict[str, int | float] = {} if core is None else {name: getattr(core, name) for name in COUNTERS}
        return cls(EndReason.FAILED if code else EndReason.STOPPED, counters)


Message = Registration | Ready | Stopping | EngineEnded
MESSAGES: Codec[Message] = Codec(Registration, Ready, Stopping, EngineEnded)
