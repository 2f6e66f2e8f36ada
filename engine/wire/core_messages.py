"""What the frontend and the core say to each other across processes.

    frontend                      core
    start   options         ──▶
                            ◀──   folder  path            (where the model's text files are)
    configuration           ──▶                           (each of these three, or the error instead)
    tokenizer               ──▶
    json_tokens             ──▶
                            ◀──   ready   info            or  refused  code, message  (and the process ends)
    submit  request         ──▶
    abort   id, reason      ──▶
    stop                    ──▶
                            ◀──   step    events, stats   (once per step)
                            ◀──   ended   failure         (and the process ends)

The processes are of one version and trust each other: values are rebuilt, not checked.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, astuple, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

from thothy_ai.engine.api import EngineStats, FinishReason, LogitBias, SamplingParams, TokenLogprob, Usage
from thothy_ai.engine.api.core import CoreRequest, Event, FinishedEvent, RefusedEvent, StepFailedError, TokenEvent
from thothy_ai.engine.api.errors import EngineError, from_code
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.checkpoint.configuration import Configuration, FolderConfiguration
from thothy_ai.engine.grammar.core_tokenizer import CoreTokenizer
from thothy_ai.engine.grammar.tokens import JsonTokens

Plain = Mapping[str, Any]


class Word(StrEnum):
    """The first part of a message."""

    START = "start"
    FOLDER = "folder"
    CONFIGURATION = "configuration"
    TOKENIZER = "tokenizer"
    JSON_TOKENS = "json_tokens"
    READY = "ready"
    REFUSED = "refused"
    SUBMIT = "submit"
    ABORT = "abort"
    STOP = "stop"
    STEP = "step"
    ENDED = "ended"


def options_parts(options: EngineOptions) -> Plain:
    """Options as plain values."""
    values = asdict(options)
    return {name: str(value) if isinstance(value, Path) else value for name, value in values.items()}


def read_options(parts: Plain) -> EngineOptions:
    """Options from `options_parts`."""
    paths = {name: Path(parts[name]) for name in ("model", "cache_dir") if parts[name] is not None}
    return EngineOptions(**(dict(parts) | paths))


def configuration_parts(configuration: FolderConfiguration) -> Sequence[object]:
    """A folder's configuration as plain values; as JSON text, since its integers may be larger than msgpack's."""
    return (json.dumps([vars(configuration.text), configuration.eos_token_ids]), configuration.container)


def read_configuration(parts: Sequence[Any]) -> FolderConfiguration:
    """A configuration from `configuration_parts`."""
    numbers, container = parts
    text, ends = json.loads(numbers)
    return FolderConfiguration(Configuration(**text), container, tuple(ends))


def tokenizer_parts(tokenizer: CoreTokenizer | None) -> Sequence[object] | None:
    """A tokenizer as plain values, without its tokens."""
    if tokenizer is None:
        return None
    return (tokenizer.definition, tokenizer.eos_token_id, tokenizer.end_of_turn)


def read_tokenizer(parts: Sequence[Any] | None, tokens: Future[JsonTokens | None]) -> CoreTokenizer | None:
    """A tokenizer from `tokenizer_parts`, with tokens that are still to come."""
    if parts is None:
        return None
    definition, eos, turn = parts
    return CoreTokenizer(definition, eos, turn, tokens)


def json_tokens_parts(tokens: JsonTokens | None) -> bytes:
    """Tokens, and all sets of them that are computed."""
    return pickle.dumps(tokens)


def read_json_tokens(parts: bytes) -> JsonTokens | None:
    """Tokens from `json_tokens_parts`."""
    tokens: JsonTokens | None = pickle.loads(parts)  # noqa: S301  it comes from the process that started this one
    return tokens


def request_parts(request: CoreRequest) -> Plain:
    """A request as plain values; it has no grammar yet."""
    parts = {field.name: getattr(request, field.name) for field in fields(request) if field.name != "grammar"}
    return parts | {"sampling": asdict(request.sampling)}


def read_request(parts: Plain) -> CoreRequest:
    """A request from `request_parts`."""
    return CoreRequest(
        **(dict(parts) | {"prompt": tuple(parts["prompt"]), "sampling": _read_sampling(parts["sampling"])})
    )


def _read_sampling(parts: Plain) -> SamplingParams:
    sequences = {name: tuple(parts[name]) for name in ("stop", "stop_token_ids")}
    biases = tuple(LogitBias(**bias) for bias in parts["logit_bias"])
    return SamplingParams(**(dict(parts) | sequences | {"logit_bias": biases}))


def event_parts(event: Event) -> tuple[object, ...]:
    """An event as plain values."""
    match event:
        case TokenEvent(id_, tokens, logprobs):
            return (id_, tokens, logprobs and [each and astuple(each) for each in logprobs])
        case RefusedEvent(id_, error):
            return (id_, *error_parts(error))
        case FinishedEvent():
            usage = [getattr(event.usage, field.name) for field in fields(Usage)]
            return (event.id, event.reason.value, usage, event.error and error_parts(event.error))


def read_events(events: Iterable[Sequence[Any]]) -> list[Event]:
    """Events from `event_parts`."""
    return [_read_event(event) for event in events]


def _read_event(parts: Sequence[Any]) -> Event:
    match parts:
        case [id_, tokens, None]:
            return TokenEvent(id_, tuple(tokens))
        case [id_, tokens, list(logprobs)]:
            return TokenEvent(id_, tuple(tokens), tuple(each and _read_logprob(*each) for each in logprobs))
        case [id_, code, message]:
            return RefusedEvent(id_, from_code(code, message))
        case [id_, reason, usage, error]:
            return FinishedEvent(id_, FinishReason(reason), Usage(*usage), error and from_code(*error))
    raise ValueError(f"{len(parts)} parts are no event")


def _read_logprob(logprob: float, tokens: Sequence[int], logprobs: Sequence[float]) -> TokenLogprob:
    return TokenLogprob(logprob, tuple(tokens), tuple(logprobs))


def error_parts(error: Exception) -> tuple[str, str]:
    """An error as plain values, for `from_code`; one of another type as an EngineError."""
    return (error.code if isinstance(error, EngineError) else EngineError.code, str(error))


def stats_parts(stats: EngineStats) -> Sequence[Sequence[float]]:
    """Statistics as plain values, group by group."""
    groups = (getattr(stats, group.name) for group in fields(stats))
    return [[getattr(group, field.name) for field in fields(group)] for group in groups]


def read_stats(parts: Sequence[Sequence[Any]]) -> EngineStats:
    """Statistics from `stats_parts`."""
    kinds = (type(getattr(_NO_STATS, group.name)) for group in fields(EngineStats))
    return EngineStats(*(kind(*map(_as_tuple, values)) for kind, values in zip(kinds, parts, strict=True)))


def _as_tuple(value: Any) -> Any:  # noqa: ANN401  any field's
    return tuple(value) if isinstance(value, list) else value


_NO_STATS = EngineStats()


def failure_parts(failure: StepFailedError | None) -> object:
    """Why the core ended, as plain values: None if it was stopped."""
    return failure and (failure.members, failure.cause)


def read_failure(parts: Sequence[Any] | None) -> StepFailedError | None:
    """The failure from `failure_parts`."""
    return None if parts is None else StepFailedError(tuple(parts[0]), parts[1])
