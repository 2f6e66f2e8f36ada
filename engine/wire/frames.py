"""The engine's API as the plain values that msgpack carries, and back, with types checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from thothy_ai.engine.api import (
    AbandonedRequest,
    AbandonedStats,
    AbandonedUsage,
    BlockStats,
    Choice,
    CoreStats,
    Delta,
    EngineInfo,
    EngineStats,
    GenerationRequest,
    GenerationResult,
    MemoryStats,
    Message,
    SamplingParams,
    SchedulerStats,
    TextStats,
    Usage,
)
from thothy_ai.engine.api.backend import Failure, Output
from thothy_ai.engine.api.errors import InvalidRequestError, ProtocolError, from_code
from thothy_ai.engine.wire.plain import Fields, fields_of, read, read_as

_FAILURE_USAGE = "failure_usage"
_BEFORE_REPETITION = {"stop_repetition": False}  # of a client that does not say it: it cannot read that finish reason
_ASKED_FOR = ("logprobs", "mean_logprob", "others")
_STATS_GROUPS: dict[str, Any] = {
    "scheduler": SchedulerStats,
    "blocks": BlockStats,
    "core": CoreStats,
    "memory": MemoryStats,
    "text": TextStats,
    "abandoned": AbandonedStats,
}
_STATS_NAMES = {"scheduler": "{}", "blocks": "blocks_{}", "core": "{}", "memory": "memory_{}"}
_STATS = {  # name on the wire: (group, field)
    pattern.format(field): (group, field)
    for group, pattern in _STATS_NAMES.items()
    for field in _STATS_GROUPS[group].__dataclass_fields__
} | {
    "repetitions": ("text", "repetitions"),
    "saved_tokens": ("text", "saved_tokens"),
    "orphans": ("abandoned", "kept"),
    "orphans_dropped": ("abandoned", "dropped"),
}


def request_fields(request: GenerationRequest) -> dict[str, Any]:
    """A request as plain values."""
    fields = fields_of(request)
    fields["messages"] = [(message.role, message.content) for message in request.messages]
    biases = [fields_of(bias) for bias in request.sampling.logit_bias]
    fields["sampling"] = fields_of(request.sampling) | {"logit_bias": biases}
    fields["beam_search"] = request.beam_search and fields_of(request.beam_search)
    return fields | {_FAILURE_USAGE: True}


def output_parts(output: Output) -> tuple[object, ...]:
    """An output as plain values."""
    match output:
        case Delta(id_, text, token_ids, choice):
            return ("delta", id_, text, token_ids, choice) if choice else ("delta", id_, text, token_ids)
        case GenerationResult():
            fields = _choice_fields(output)
            if output.others:
                fields["others"] = [_choice_fields(other) for other in output.others]
            return ("result", fields | fields_of(fields.pop("usage")))
        case Failure(id_, error, usage):
            parts = ("failure", id_, error.code, str(error))
            return parts if usage is None else (*parts, fields_of(usage))


def read_request(fields: Fields) -> GenerationRequest:
    """A request from its fields; InvalidRequestError names what is wrong with it."""
    try:
        sampling = read(SamplingParams, fields.get("sampling", {}))
        messages = _messages(fields.get("messages", []))
        plain = {**_BEFORE_REPETITION, **fields, "messages": [], "sampling": {}}
        options = _map(plain.pop("template_options", {}))
        return read(GenerationRequest, plain, sampling=sampling, messages=messages, template_options=options)
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(f"malformed request: {error}") from error


def wants_failure_usage(fields: Fields) -> bool:
    """Whether the client of this request reads the usage of a failure; one that does not is of an earlier version."""
    return fields.get(_FAILURE_USAGE) is True


def read_output(parts: Sequence[Any]) -> Output:
    """An output from its plain values; TypeError, ValueError or ProtocolError if malformed."""
    match parts:
        case ["delta", str(id_), str(text), token_ids]:
            return Delta(id_, text, read_as(tuple[int, ...], token_ids))
        case ["delta", str(id_), str(text), token_ids, choice]:
            return Delta(id_, text, read_as(tuple[int, ...], token_ids), read_as(int, choice))
        case ["result", dict(fields)]:
            return read(GenerationResult, fields, usage=read(Usage, fields))
        case ["failure", str(id_), str(code), str(message)]:
            return Failure(id_, from_code(code, message))
        case ["failure", str(id_), str(code), str(message), usage]:
            return Failure(id_, from_code(code, message), read(Usage, usage))
        case _:
            raise ProtocolError("unknown kind of output")


def read_info(fields: Fields) -> EngineInfo:
    """An EngineInfo; ProtocolError if a field is missing or malformed."""
    try:
        return read(EngineInfo, fields)
    except (TypeError, ValueError) as error:
        raise ProtocolError(f"malformed EngineInfo: {error}") from error


def stats_fields(stats: EngineStats) -> dict[str, Any]:
    """Statistics as plain values: one flat map, in which all refusals are counted together."""
    fields = {name: getattr(getattr(stats, group), field) for name, (group, field) in _STATS.items()}
    return fields | {"requests_refused": stats.requests_refused}


def read_stats(fields: Fields) -> EngineStats:
    """Statistics from their fields; what is missing is 0. All refusals are the core's. ProtocolError if malformed."""
    groups: dict[str, dict[str, Any]] = {group: {} for group in _STATS_GROUPS}
    for name, (group, field) in _STATS.items():
        if name in fields:
            groups[group][field] = fields[name]
    try:
        return EngineStats(**{group: read(kind, groups[group]) for group, kind in _STATS_GROUPS.items()})
    except (TypeError, ValueError) as error:
        raise ProtocolError(f"malformed EngineStats: {error}") from error


def abandoned_fields(usage: AbandonedUsage) -> dict[str, Any]:
    """Usage of abandoned requests as plain values."""
    costs = [(request.id, request.compute_seconds) for request in usage.requests]
    return {"session_id": usage.session_id, "costs": costs}


def read_abandoned(fields: Fields) -> AbandonedUsage:
    """Usage of abandoned requests from its fields; ProtocolError if malformed."""
    try:
        requests = tuple(_abandoned(cost) for cost in fields["costs"])
        return AbandonedUsage(read_as(str, fields["session_id"]), requests)
    except (KeyError, TypeError, ValueError) as error:
        raise ProtocolError(f"malformed AbandonedUsage: {error!r}") from error


def _choice_fields(choice: Choice | GenerationResult) -> dict[str, Any]:
    """A choice as plain values; what was not asked for is left out."""
    fields = fields_of(choice) | {"logprobs": [each and fields_of(each) for each in choice.logprobs]}
    return {name: value for name, value in fields.items() if name not in _ASKED_FOR or value or value == 0}


def _abandoned(cost: Sequence[object]) -> AbandonedRequest:
    id_, seconds = cost
    return AbandonedRequest(read_as(str, id_), read_as(float, seconds))


def _messages(values: object) -> tuple[Message, ...]:
    return tuple(Message(*_pair(value)) for value in _list(values))


def _pair(value: object) -> tuple[str, str]:
    role, content = read_as(tuple[str, ...], value)
    return role, content


def _list(values: object) -> list[Any]:
    if not isinstance(values, list):
        raise TypeError("messages are no list")
    return values


def _map(values: object) -> dict[Any, Any]:
    if not isinstance(values, dict):
        raise TypeError("template_options are not a map")
    return values
