"""The engine's API as the plain values that msgpack carries, and back, with types checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from thothy_ai.engine.api import (
    AbandonedRequest,
    AbandonedUsage,
    Delta,
    EngineInfo,
    EngineStats,
    FinishReason,
    GenerationRequest,
    GenerationResult,
    Message,
    SamplingParams,
)
from thothy_ai.engine.backend import Failure, Output
from thothy_ai.engine.errors import InvalidRequestError, ProtocolError, from_code

Fields = Mapping[str, Any]
Plain = GenerationRequest | SamplingParams | GenerationResult | EngineInfo | EngineStats
T = TypeVar("T", EngineInfo, EngineStats)

_NUMBER = (int, float)
_TEXT_OR_NONE = (str, type(None))
_TYPES: dict[str, type | tuple[type, ...]] = {
    "id": str,
    "text": _TEXT_OR_NONE,
    "schema": _TEXT_OR_NONE,
    "profile": str,
    "salt": str,
    "stream": bool,
    "max_tokens": int,
    "temperature": _NUMBER,
    "top_k": int,
    "top_p": _NUMBER,
    "min_p": _NUMBER,
    "repetition_penalty": _NUMBER,
    "seed": (int, type(None)),
    "ignore_eos": bool,
}


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
            return ("result", fields_of(output))
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
            return GenerationResult(**known)
        case ["failure", str(id_), str(code), str(message)]:
            return Failure(id_, from_code(code, message))
        case _:
            raise ProtocolError("unknown kind of output")


def read_fields(kind: type[T], fields: Fields) -> T:
    """An EngineInfo or EngineStats; ProtocolError if a field without a default is missing."""
    try:
        return kind(**_known(kind, fields))
    except TypeError as error:
        raise ProtocolError(f"malformed {kind.__name__}: {error}") from error


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
