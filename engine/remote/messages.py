"""What the text edge and the core say to each other across processes.

    text edge                     core
    start   options         ──▶
                            ◀──   folder  path            (the model's, so that both load its tokenizer at once)
                            ◀──   ready   info            or  refused  code, message  (and the process ends)
    submit  request         ──▶
    abort   id, reason      ──▶
    stop                    ──▶
                            ◀──   step    events, stats   (once per step)
                            ◀──   ended   failure         (and the process ends)

The processes are of one version and trust each other: values are rebuilt, not checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

from thothy_ai.engine.api import EngineStats, FinishReason, LogitBias, SamplingParams, TokenLogprob, Usage
from thothy_ai.engine.core_api import CoreRequest, Event, FinishedEvent, RefusedEvent, StepFailedError, TokenEvent
from thothy_ai.engine.errors import EngineError, from_code
from thothy_ai.engine.options import EngineOptions

Plain = Mapping[str, Any]


class Word(StrEnum):
    """The first part of a message."""

    START = "start"
    FOLDER = "folder"
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
            return (id_, *_error_parts(error))
        case FinishedEvent():
            usage = [getattr(event.usage, field.name) for field in fields(Usage)]
            return (event.id, event.reason.value, usage, event.error and _error_parts(event.error))


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


def _error_parts(error: EngineError) -> tuple[str, str]:
    return (error.code, str(error))


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
