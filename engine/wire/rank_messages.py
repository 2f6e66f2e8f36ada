"""Messages between the first rank's process and another rank's.

first rank                    another rank
JoinGroup                ──▶
                         ◀──   RankFound               (once it has imported what it computes with)
LoadShare                ──▶
                         ◀──   RankLoaded, RankReady
                         ◀──   RankFailed              (at any time, and the process ends)
"""

from __future__ import annotations

from dataclasses import dataclass

from thothy_ai.engine.api.errors import EngineError
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.wire.codec import Codec
from thothy_ai.engine.wire.core_messages import ConfigurationRead


@dataclass(frozen=True, slots=True)
class JoinGroup:
    """Become this rank of `size`, on this device; the ranks meet at `port` of this machine."""

    rank: int
    size: int
    port: int
    device: str
    threads: int | None
    log_level: str


@dataclass(frozen=True, slots=True)
class RankFound:
    """The digest of the rank's code and the kind of its device, which must agree among ranks."""

    code: str
    device: str


@dataclass(frozen=True, slots=True)
class LoadShare:
    """Load the rank's share of a model with these options and this configuration."""

    options: EngineOptions
    configuration: ConfigurationRead


@dataclass(frozen=True, slots=True)
class RankLoaded:
    """The rank's weights are on its device."""


@dataclass(frozen=True, slots=True)
class RankReady:
    """The rank waits for steps."""


@dataclass(frozen=True, slots=True)
class RankFailed:
    """The error that ends the rank."""

    error: EngineError


ToRank = JoinGroup | LoadShare
FromRank = RankFound | RankLoaded | RankReady | RankFailed

TO_RANK: Codec[ToRank] = Codec(JoinGroup, LoadShare)
FROM_RANK: Codec[FromRank] = Codec(RankFound, RankLoaded, RankReady, RankFailed)
