"""What a job kind is: a request, an artifact, and everything between them, as one frozen value.

A kind owns its prompt, output budget, grammar and judgement. It knows no database and no model: it turns a request into
messages, a schema and sampling, and a model's text into a verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from thothy_ai.jobs.schema import grammar_schema
from thothy_ai.jobs.text import check_carriable, check_written, strings_in
from thothy_ai.jobs.verdict import Rejection, RejectionReason, Verdict

__all__ = ["Artifact", "JobKind", "Message", "Rejection", "RejectionReason", "Request", "Sampling", "Verdict"]

_REASONS = {
    "string_too_short": RejectionReason.TOO_SHORT,
    "string_too_long": RejectionReason.TOO_LONG,
    "too_short": RejectionReason.TOO_SHORT,
    "too_long": RejectionReason.TOO_LONG,
}


class Message(NamedTuple):
    """One chat message."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Sampling:
    """Output budget and how tokens are chosen. `temperature` 0 is greedy, and greedy makes every retry the same."""

    max_tokens: int
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0


class Request(BaseModel):
    """Base of all requests. Every text in it can be stored, says something, and has an end."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    @field_validator("*", mode="before")
    @classmethod
    def _check_texts(cls, value: object) -> object:
        for text in strings_in(value):
            check_carriable(text)
            check_written(text)
        return value


class Artifact(BaseModel):
    """Base of all artifacts: what a model's output must parse as, and what a reader of results gets."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    @field_validator("*", mode="before")
    @classmethod
    def _check_texts(cls, value: object) -> object:
        for text in strings_in(value):
            check_carriable(text)
        return value


R = TypeVar("R", bound=Request)
A = TypeVar("A", bound=Artifact)


def _nothing_narrower(_: Request) -> Mapping[str, Any]:
    return {}


def _no_follow_ups(_: Request, __: Artifact) -> tuple[Request, ...]:
    return ()


@dataclass(frozen=True)
class JobKind(Generic[R, A]):
    """One kind of job.

    `source` gives the text that sibling jobs share. `checks` yields findings in order of cost; the first one decides.
    `narrower` replaces top-level properties of the schema for one request; `follow_ups` are the jobs that an accepted
    artifact asks for. Raises `SchemaError` when the artifact leaves a string or an array unbounded.
    """

    name: str
    request: type[R]
    artifact: type[A]
    prompt: Callable[[R], tuple[Message, ...]]
    sampling: Callable[[R], Sampling]
    locale: Callable[[R], str]
    source: Callable[[R], str]
    checks: Callable[[R, A], Iterable[Rejection | None]]
    narrower: Callable[[R], Mapping[str, Any]] = _nothing_narrower
    follow_ups: Callable[[R, A], tuple[Request, ...]] = _no_follow_ups
    _schema: Mapping[str, Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_schema", grammar_schema(self.artifact))

    def schema(self, request: R) -> dict[str, Any]:
        """Return the JSON schema that this request's output must match; the caller owns the copy."""
        schema = deepcopy(dict(self._schema))
        schema["properties"] |= self.narrower(request)
        return schema

    def source_key(self, request: R) -> str:
        """Digest of the source: equal for siblings, which then run together and share its KV."""
        return sha256(self.source(request).encode()).hexdigest()[:32]

    def judge(self, request: R, text: str, truncated: bool) -> Verdict:
        """Judge an output. `truncated` says that generation ended by its budget. Never raises, whatever the text."""
        artifact = self._parse(text, truncated)
        if isinstance(artifact, Rejection):
            return Verdict.reject(artifact)
        finding = next(filter(None, self.checks(request, artifact)), None)
        return Verdict.reject(finding, artifact) if finding else Verdict.accept(artifact)

    def _parse(self, text: str, truncated: bool) -> A | Rejection:
        if not text.strip():
            return Rejection(RejectionReason.EMPTY, "the output is empty")
        try:
            return self.artifact.model_validate_json(text.encode("utf-8", "surrogatepass"))
        except ValidationError as error:
            return _rejection(error, truncated)


def _rejection(error: ValidationError, truncated: bool) -> Rejection:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    if truncated and first["type"] == "json_invalid":
        return Rejection(RejectionReason.TRUNCATED, "the output budget ran out before the end")
    where = ".".join(str(part) for part in first["loc"]) or "output"
    reason = _REASONS.get(first["type"], RejectionReason.OFF_SCHEMA)
    what = "has not the shape of its field" if first["type"] == "string_pattern_mismatch" else first["msg"]
    return Rejection(reason, f"{where}: {what}")
