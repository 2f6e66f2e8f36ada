"""Messages between an engine's process and its verifier's.

engine                        verifier
LoadVerifier             ──▶
                         ◀──   VerifierReady   or  VerifierRefused  (and the process ends)
JudgePairs               ──▶
                         ◀──   PairsJudged     (once per batch)
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from thothy_ai.engine.api.errors import EngineError
from thothy_ai.engine.api.numbers import Finite
from thothy_ai.engine.wire.codec import Codec


@dataclass(frozen=True, slots=True)
class LoadVerifier:
    """Load the model of this folder on this device."""

    folder: Path
    device: str
    threads: int | None = None
    log_level: str = "INFO"


@dataclass(frozen=True, slots=True)
class VerifierReady:
    """The verifier's model is loaded."""


@dataclass(frozen=True, slots=True)
class VerifierRefused:
    """The model cannot be loaded."""

    error: EngineError


@dataclass(frozen=True, slots=True)
class JudgePairs:
    """Judge these pairs of a premise and a claim. The answer carries the request's `number`."""

    number: int
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class JudgedPairs:
    """Labels of a request's pairs by index, None for a pair that can't be judged, and its share of the seconds."""

    number: int
    labels: dict[int, str | None]
    seconds: Finite


@dataclass(frozen=True, slots=True)
class PairsJudged:
    """The pairs that one batch judged."""

    requests: tuple[JudgedPairs, ...]


ToVerifier = LoadVerifier | JudgePairs
FromVerifier = VerifierReady | VerifierRefused | PairsJudged

TO_VERIFIER: Codec[ToVerifier] = Codec(LoadVerifier, JudgePairs)
FROM_VERIFIER: Codec[FromVerifier] = Codec(VerifierReady, VerifierRefused, PairsJudged)
