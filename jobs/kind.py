"""`JobKind`: a request class, an artifact class and everything between them, as one frozen value.

A kind owns its prompt, output budget, grammar and validation. It has no access to a database or a model: it turns a
request into messages, a JSON schema and sampling parameters, and a model's output into a verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from hashlib import sha256
from types import GenericAlias
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator
from typing_extensions import TypeVar

from thothy_ai.jobs.problems import describe
from thothy_ai.jobs.schema import grammar_schema
from thothy_ai.jobs.text import check_content, check_encodable, strings_in
from thothy_ai.jobs.verdict import Rejection, RejectionReason, Verdict

__all__ = ["Artifact", "JobKind", "Message", "Rejection", "RejectionReason", "Request", "Sampling", "Verdict"]

SOURCE_KEY_DIGITS = 32
_REASONS = {
    "string_too_short": RejectionReason.TOO_SHORT,
    "string_too_long": RejectionReason.TOO_LONG,
    "too_short": RejectionReason.TOO_SHORT,
    "too_long": RejectionReason.TOO_LONG,
}


class Message(NamedTuple):
    """One chat message. `role` is `system`, `user` or `assistant`."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Sampling:
    """Output budget in tokens, and sampling parameters. `temperature` 0 is greedy, so that every retry is identical."""

    max_tokens: int
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0


class Artifact(BaseModel):
    """Base class of all artifacts: the model's output must parse as one, and `Job.result` returns one."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    @field_validator("*", mode="before")
    @classmethod
    def _check_texts(cls, value: object) -> object:
        for text in strings_in(value):
            check_encodable(text)
        return value


A = TypeVar("A", bound=Artifact, default=Artifact)
A_co = TypeVar("A_co", bound=Artifact, default=Artifact, covariant=True)

if TYPE_CHECKING:

    class _NamesArtifact(Generic[A_co]):
        """Generic, for type checkers."""

else:

    class _NamesArtifact:
        """`Request[X]` is `Request` itself as a base class: pydantic's generics would make another class for each X."""

        __slots__ = ()

        def __class_getitem__(cls, artifact: object) -> GenericAlias:
            return GenericAlias(cls, artifact)


class Request(_NamesArtifact[A_co], BaseModel):
    """Base class of all requests. Each string is encodable, not blank, and at most `MAX_CHARACTERS` long.

    `class Hook(Request[HookArtifact])` tells type checkers that `Job.result` of a `Hook` is a `HookArtifact`; without
    the brackets, it is an `Artifact`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    @field_validator("*", mode="before")
    @classmethod
    def _check_texts(cls, value: object) -> object:
        for text in strings_in(value):
            check_encodable(text)
            check_content(text)
        return value


R = TypeVar("R", bound=Request)


def _no_overrides(_: Request) -> Mapping[str, Any]:
    return {}


def _no_follow_ups(_: Request, __: Artifact) -> tuple[Request, ...]:
    return ()


def source_key(source: str) -> str:
    """The key of a source text: 32 hexadecimal digits."""
    return sha256(source.encode()).hexdigest()[:SOURCE_KEY_DIGITS]


@dataclass(frozen=True)
class JobKind(Generic[R, A]):
    """One kind of job.

    `source` returns the text that sibling jobs share. `checks` runs the validators, cheapest first; the first rejection
    decides. `schema_overrides` replaces top-level properties of the schema for one request. `follow_ups` returns the
    requests to enqueue once an artifact is accepted. Raises `SchemaError` if the artifact has an unbounded string or
    array, and `TypeError` if the request class names another artifact class.
    """

    name: str
    request: type[R]
    artifact: type[A]
    prompt: Callable[[R], tuple[Message, ...]]
    sampling: Callable[[R], Sampling]
    locale: Callable[[R], str]
    source: Callable[[R], str]
    checks: Callable[[R, A], Iterable[Rejection | None]]
    schema_overrides: Callable[[R], Mapping[str, Any]] = _no_overrides
    follow_ups: Callable[[R, A], tuple[Request, ...]] = _no_follow_ups
    _schema: Mapping[str, Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_schema", grammar_schema(self.artifact))
        for named in _named_artifacts(self.request):
            if not issubclass(self.artifact, named):
                mine, theirs = self.artifact.__name__, named.__name__
                raise TypeError(f"{self.request.__name__} is a Request[{theirs}], but the kind's artifact is {mine}")

    def schema(self, request: R) -> dict[str, Any]:
        """Return the JSON schema that the output for this request must match, as a copy that the caller may change."""
        schema = deepcopy(dict(self._schema))
        schema["properties"] |= self.schema_overrides(request)
        return schema

    def source_key(self, request: R) -> str:
        """Digest of the source, equal for siblings; jobs with the same key run together and share its KV."""
        return source_key(self.source(request))

    def judge(self, request: R, text: str, truncated: bool) -> Verdict:
        """Parse and validate an output. `truncated`: it reached its token budget. Raises what a check raises."""
        artifact = self._parse(text, truncated)
        if isinstance(artifact, Rejection):
            return Verdict.reject(artifact)
        rejection = next(filter(None, self.checks(request, artifact)), None)
        return Verdict.reject(rejection, artifact) if rejection else Verdict.accept(artifact)

    def _parse(self, text: str, truncated: bool) -> A | Rejection:
        if not text.strip():
            return Rejection(RejectionReason.EMPTY, "the output is empty")
        try:
            return self.artifact.model_validate_json(text.encode("utf-8", "surrogatepass"))
        except ValidationError as error:
            return _rejection(error, truncated)


def _named_artifacts(request: type[BaseModel]) -> Iterator[type]:
    """The artifact classes that a request class and its bases name in brackets."""
    for base in request.__mro__:
        for alias in base.__dict__.get("__orig_bases__", ()):
            origin = alias.__origin__ if isinstance(alias, GenericAlias) else None
            if isinstance(origin, type) and issubclass(origin, _NamesArtifact):
                yield from (named for named in alias.__args__ if isinstance(named, type))


def _rejection(error: ValidationError, truncated: bool) -> Rejection:
    first = error.errors(include_url=False, include_input=False)[0]
    if truncated and first["type"] == "json_invalid":
        return Rejection(RejectionReason.TRUNCATED, "the output reached its token budget before the JSON was complete")
    where = ".".join(str(part) for part in first["loc"]) or "output"
    reason = _REASONS.get(first["type"], RejectionReason.OFF_SCHEMA)
    return Rejection(reason, f"{where}: {describe(first)}")
