"""Messages between the frontend's process and the core's.

frontend                      core
LoadModel                ──▶
                         ◀──   FolderFound             (where the model's text files are)
ConfigurationRead        ──▶                           (each of these three, perhaps with the error instead)
TokenizerRead            ──▶
JsonTokensRead           ──▶
                         ◀──   CoreReady   or  CoreRefused  (and the process ends)
CoreRequest              ──▶
AbortRequest             ──▶
StopCore                 ──▶
                         ◀──   StepReport              (once per step)
                         ◀──   CoreEnded               (and the process ends)
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from thothy_ai.engine.api import AdapterInfo, EngineInfo, EngineStats, FinishReason
from thothy_ai.engine.api.core import CoreRequest, Event, FinishedEvent, RefusedEvent, StepFailedError, TokenEvent
from thothy_ai.engine.api.errors import EngineError
from thothy_ai.engine.api.identity import printable
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.checkpoint.configuration import Configuration, FolderConfiguration
from thothy_ai.engine.grammar.tokens import Bits, CoreTokenizer, JsonTokens
from thothy_ai.engine.wire.codec import Codec, Raw, pack, unpack

_MAX_FRAME = 2**31 - 1  # both ends are this engine's, and each bounds what it sends


@dataclass(frozen=True, slots=True)
class LoadModel:
    """Load a model with these options and serve it."""

    options: EngineOptions


@dataclass(frozen=True, slots=True)
class FolderFound:
    """The folder of the model's text files."""

    path: Path


@dataclass(frozen=True, slots=True)
class ConfigurationRead:
    """A FolderConfiguration as JSON text, since its integers can exceed msgpack's; or the error of reading it."""

    json: str | None = None
    error: EngineError | None = None

    @classmethod
    def of(cls, configuration: FolderConfiguration) -> ConfigurationRead:
        return cls(json.dumps([vars(configuration.text), configuration.container, configuration.eos_token_ids]))

    def configuration(self) -> FolderConfiguration:
        """The received configuration. Raises the error instead, if there is one."""
        if self.error is not None or self.json is None:
            raise self.error or ValueError("no configuration")
        text, container, ends = json.loads(self.json)
        return FolderConfiguration(Configuration(**text), container, tuple(ends))


@dataclass(frozen=True, slots=True)
class TokenizerRead:
    """A CoreTokenizer without its tokens; without a definition if the model has none; or the error of reading it."""

    definition: str | None = None
    eos_token_id: int | None = None
    end_of_turn: int | None = None
    error: EngineError | None = None

    @classmethod
    def of(cls, tokenizer: CoreTokenizer | None) -> TokenizerRead:
        if tokenizer is None:
            return cls()
        return cls(tokenizer.definition, tokenizer.eos_token_id, tokenizer.end_of_turn)

    def tokenizer(self, tokens: Future[JsonTokens | None]) -> CoreTokenizer | None:
        """The tokenizer, whose `tokens` arrive later; None if the model has none. Raises the error instead, if any."""
        if self.error is not None:
            raise self.error
        if self.definition is None:
            return None
        return CoreTokenizer(self.definition, self.eos_token_id, self.end_of_turn, tokens)


@dataclass(frozen=True, slots=True)
class JsonTokensRead:
    """The table and all sets of JsonTokens, if there are any; or the error of making them. Arrays travel as bytes."""

    table: list[bytes] | None = None
    sets: dict[str, Raw] = field(default_factory=dict)
    error: EngineError | None = None

    @classmethod
    def of(cls, tokens: JsonTokens | None) -> JsonTokensRead:
        if tokens is None:
            return cls()
        sets = {
            name: pack(value.tobytes() if isinstance(value, np.ndarray) else value)
            for name, value in tokens.prepare().items()
        }
        return cls(list(tokens.table), sets)

    def tokens(self) -> JsonTokens | None:
        """The received JsonTokens. Raises the error instead, if there is one; ProtocolError for a malformed set."""
        if self.error is not None:
            raise self.error
        if self.table is None:
            return None
        types = JsonTokens.types()
        sets = {name: _set_of(types[name], raw) for name, raw in self.sets.items() if name in types}
        return JsonTokens(self.table, sets)


def _set_of(kind: Any, raw: Raw) -> object:  # noqa: ANN401  any type's
    if kind != Bits:
        return unpack(kind, raw)
    return np.frombuffer(bytearray(unpack(bytes, raw)), np.int32)  # a bytearray, so that the array is writable


@dataclass(frozen=True, slots=True)
class CoreReady:
    """The model is loaded, and the core runs."""

    info: EngineInfo
    adapters: tuple[AdapterInfo, ...] = ()


@dataclass(frozen=True, slots=True)
class CoreRefused:
    """The model cannot be loaded."""

    error: EngineError


@dataclass(frozen=True, slots=True)
class AbortRequest:
    """End a request early, for this reason."""

    id: str
    reason: FinishReason


@dataclass(frozen=True, slots=True)
class ChangeAdapter:
    """Load the adapter in this folder under a name, or unload that name if the folder is None."""

    number: int
    name: str
    folder: str | None = None


@dataclass(frozen=True, slots=True)
class AdapterChanged:
    """The outcome of the change with this number: the loaded adapter or an error, and all adapters loaded by now."""

    number: int
    adapters: tuple[AdapterInfo, ...]
    loaded: AdapterInfo | None = None
    error: EngineError | None = None


@dataclass(frozen=True, slots=True)
class StopCore:
    """End after the current step."""


@dataclass(frozen=True, slots=True)
class StepReport:
    """A step's events, grouped by kind, with a request's tokens before its end."""

    stats: EngineStats
    tokens: tuple[TokenEvent, ...] = ()
    finished: tuple[FinishedEvent, ...] = ()
    refused: tuple[RefusedEvent, ...] = ()

    @classmethod
    def of(cls, events: Iterable[Event], stats: EngineStats) -> StepReport:
        kinds: dict[type, list[Event]] = {TokenEvent: [], FinishedEvent: [], RefusedEvent: []}
        for event in events:
            kinds[type(event)].append(event)
        return cls(stats, *map(tuple, kinds.values()))  # type: ignore[arg-type]  # sorted by type

    @property
    def events(self) -> list[Event]:
        """All events; a request's end comes last."""
        return [*self.tokens, *self.finished, *self.refused]


@dataclass(frozen=True, slots=True)
class CoreEnded:
    """The reason why the core ended: a failed step with these members, or a stop."""

    members: tuple[str, ...] = ()
    cause: str | None = None

    @classmethod
    def of(cls, failure: StepFailedError | None) -> CoreEnded:
        return cls() if failure is None else cls(failure.members, printable(failure.cause))

    @property
    def failure(self) -> StepFailedError | None:
        """The error of the failed step; None if the core was stopped."""
        return None if self.cause is None else StepFailedError(self.members, self.cause)


TextRead = ConfigurationRead | TokenizerRead | JsonTokensRead
ToCore = LoadModel | TextRead | CoreRequest | AbortRequest | ChangeAdapter | StopCore
FromCore = FolderFound | CoreReady | CoreRefused | StepReport | AdapterChanged | CoreEnded

TO_CORE: Codec[ToCore] = Codec(
    LoadModel,
    ConfigurationRead,
    TokenizerRead,
    JsonTokensRead,
    CoreRequest,
    AbortRequest,
    ChangeAdapter,
    StopCore,
    max_frame=_MAX_FRAME,
)
FROM_CORE: Codec[FromCore] = Codec(
    FolderFound, CoreReady, CoreRefused, StepReport, AdapterChanged, CoreEnded, max_frame=_MAX_FRAME
)
