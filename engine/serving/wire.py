"""The engine's API as the plain values that msgpack carries, and back, with types checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from thothy_ai.engine.api import (
    AbandonedRequest,
    AbandonedStats,
    AbandonedUsage,
    BlockStats,
    CoreStats,
    Delta,
    EngineInfo,
    EngineStats,
    FinishReason,
    GenerationRequest,
    GenerationResult,
    MemoryStats,
    Message,
    SamplingParams,
    SchedulerStats,
    Usage,
)
from thothy_ai.engine.backend import Failure, Output
from thothy_ai.engine.errors import InvalidRequestError, ProtocolError, from_code

Fields = Mapping[str, Any]
Plain = GenerationRequest | SamplingParams | GenerationResult | EngineInfo | Usage

_NUMBER = (int, float)
_TEXT_OR_NONE = (str, type(None))
_TYPES: dict[str, type | tuple[type, ...]] = {
    "id": str,
    "text": _TEXT_OR_NONE,
    "schema": _TEXT_OR_NONE,
    "profile": str,
    "salt": str,
    "stream": bool,
    "priority": int,
    "deadline": (int, float, type(None)),
    "max_tokens": int,
    "temperature": _NUMBER,
    "top_k": int,
    "top_p": _NUMBER,
    "min_p": _NUMBER,
    "repetition_penalty": _NUMBER,
    "seed": (int, type(None)),
    "ignore_eos": bool,
}
_STATS_GROUPS: dict[str, Any] = {
    "scheduler": SchedulerStats,
    "blocks": BlockStats,
    "core": CoreStats,
    "memory": MemoryStats,
    "abandoned": AbandonedStats,
}
_STATS_NAMES = {"scheduler": "{}", "blocks": "blocks_{}", "core": "{}", "memory": "memory_{}"}
_STATS = {  # name on the wire: (group, field)
    pattern.format(field): (group, field)
    for group, pattern in _STATS_NAMES.items()
    for field in _STATS_GROUPS[group].__dataclass_fields__
} | {"orphans": ("abandoned", "kept"), "orphans_dropped": ("abandoned", "dropped")}


def fields_of(value: Plain) -> dict[str, Any]:
    """A dataclass's fields by name."""
    return {name: getattr(value, name) for name in type(value).__dataclass_fields__}


def request_fields(request: GenerationRequest) -> dict[str, Any]:
    """A request as plain values."""
    fields = fields_of(request)
    fields["messages"] = [(message.role, message.content) for message in request.messages]
    fields["sampling"] = fields_of(request.sampling)
    return fields


def output_parts(output: Output) -> tuple[object, ...]:
    """An output as plain values."""
    match output:
        case Delta(id_, text, token_ids):
            return ("delta", id_, text, token_ids)
        case GenerationResult():
            fields = fields_of(output)
            return ("result", fields | fields_of(fields.pop("usage")))
        case Failure(id_, error):
            return ("failure", id_, error.code, str(error))


def read_request(fields: Fields) -> GenerationRequest:
    """A request from its fields; InvalidRequestError names what is wrong with it."""
    known = _known(GenerationRequest, fields)
    try:
        known["sampling"] = _sampling(known.get("sampling", {}))
        known["messages"] = tuple(Message(_text(role), _text(content)) for role, content in known.get("messages", ()))
        known["token_ids"] = _integers(known.get("token_ids", ()))
        return GenerationRequest(**known)
    except (TypeError, ValueError, AttributeError) as error:
        raise InvalidRequestError(f"malformed request: {error}") from error


def read_output(parts: Sequence[Any]) -> Output:
    """An output from its plain values; TypeError, ValueError or ProtocolError if malformed."""
    match parts:
        case ["delta", str(id_), str(text), list(token_ids)]:
            return Delta(id_, text, tuple(token_ids))
        case ["result", dict(fields)]:
            known = _known(GenerationResult, fields)
            known["finish_reason"] = FinishReason(known["finish_reason"])
            known["token_ids"] = _integers(known["token_ids"])
            return GenerationResult(**known, usage=Usage(**_known(Usage, fields)))
        case ["failure", str(id_), str(code), str(message)]:
            return Failure(id_, from_code(code, message))
        case _:
            raise ProtocolError("unknown kind of output")


def read_info(fields: Fields) -> EngineInfo:
    """An EngineInfo; ProtocolError if a field is missing."""
    try:
        return EngineInfo(**_known(EngineInfo, fields))
    except TypeError as error:
        raise ProtocolError(f"malformed EngineInfo: {error}") from error


def stats_fields(stats: EngineStats) -> dict[str, Any]:
    """Statistics as plain values: one flat map, in which all refusals are counted together."""
    fields = {name: getattr(getattr(stats, group), field) for name, (group, field) in _STATS.items()}
    return fields | {"requests_refused": stats.requests_refused}


def read_stats(fields: Fields) -> EngineStats:
    """Statistics from their fields; what is missing is 0. All refusals are the core's then."""
    groups: dict[str, dict[str, Any]] = {group: {} for group in _STATS_GROUPS}
    for name, (group, field) in _STATS.items():
        if name in fields:
            groups[group][field] = fields[name]
    return EngineStats(**{group: kind(**groups[group]) for group, kind in _STATS_GROUPS.items()})


def abandoned_fields(usage: AbandonedUsage) -> dict[str, Any]:
    """Usage of abandoned requests as plain values."""
    costs = [(request.id, request.compute_seconds) for request in usage.requests]
    return {"session_id": usage.session_id, "costs": costs}


def read_abandoned(fields: Fields) -> AbandonedUsage:
    """Usage of abandoned requests from its fields; ProtocolError if malformed."""
    try:
        requests = tuple(AbandonedRequest(str(id_), float(seconds)) for id_, seconds in fields["costs"])
        return AbandonedUsage(str(fields["session_id"]), requests)
    except (KeyError, TypeError, ValueError) as error:
        raise ProtocolError(f"malformed AbandonedUsage: {error!r}") from error


def _known(kind: type[Plain], fields: Fields) -> dict[str, Any]:
    """The fields that this side knows; others come from a newer peer."""
    return {name: _checked(name, fields[name]) for name in kind.__dataclass_fields__ if name in fields}


def _checked(name: str, value: object) -> object:
    expected = _TYPES.get(name)
    if expected is None or (isinstance(value, expected) and (expected is bool or not isinstance(value, bool))):
        return value
    raise InvalidRequestError(f"{name}={value!r:.80} has the wrong type")


def _sampling(fields: object) -> SamplingParams:
    if not isinstance(fields, dict):
        raise TypeError("sampling is not a map")
    known = _known(SamplingParams, fields)
    known["stop"] = tuple(_text(stop) for stop in known.get("stop", ()))
    return SamplingParams(**known)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.80} is not text")
    return value


def _integers(values: Sequence[object]) -> tuple[int, ...]:
    integers = tuple(value for value in values if isinstance(value, int))
    if len(integers) != len(values):
        raise TypeError("token ids must be integers")
    return integers
