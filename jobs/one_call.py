"""`OneCall`: the plan of a kind whose artifact is written in one call: a prompt, a schema, a budget and checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Generic

from pydantic import ValidationError
from typing_extensions import TypeVar

from thothy_ai.jobs import retries
from thothy_ai.jobs.kind import Artifact, Request
from thothy_ai.jobs.plan import Call, Context, Early, End, Message, Output, Plan, Sampling, TemplateOption, stopped
from thothy_ai.jobs.problems import describe
from thothy_ai.jobs.schema import grammar_schema
from thothy_ai.jobs.verdict import Rejection, RejectionReason, Verdict

R = TypeVar("R", bound=Request)
A = TypeVar("A", bound=Artifact, default=Artifact)

_REASONS = {
    "string_too_short": RejectionReason.TOO_SHORT,
    "string_too_long": RejectionReason.TOO_LONG,
    "too_short": RejectionReason.TOO_SHORT,
    "too_long": RejectionReason.TOO_LONG,
}


def _no_early_checks(_: Request) -> Early | None:
    return None


def _no_overrides(_: Request) -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True)
class OneCall(Generic[R, A]):
    """A plan of one call.

    `prompt` gets the context, too, since a small model may need plainer instructions. `checks` runs the validators,
    cheapest first; the first rejection decides. `locale` returns the language of the text. `schema_overrides` replaces
    top-level properties of the schema for one request. `early` names the checks that end an output before its end.
    `template_options` are the call's. Raises `SchemaError` if the artifact has an unbounded string or array.
    """

    artifact: type[A]
    prompt: Callable[[R, Context], tuple[Message, ...]]
    sampling: Callable[[R], Sampling]
    checks: Callable[[R, A], Iterable[Rejection | None]]
    locale: Callable[[R], str | None] = lambda _: None
    schema_overrides: Callable[[R], Mapping[str, Any]] = _no_overrides
    early: Callable[[R], Early | None] = _no_early_checks
    template_options: Mapping[str, TemplateOption] = field(default_factory=dict)
    _schema: Mapping[str, Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_schema", grammar_schema(self.artifact))

    def __call__(self, request: R, context: Context) -> Plan:
        """Ask once, and judge the output."""
        locale = self.locale(request)
        call = Call(
            self.prompt(request, context),
            self.schema(request),
            self.sampling(request),
            locale=locale,
            template_options=self.template_options,
            early=self.early(request),
        )
        (output,) = yield (retries.adapted(call, context, locale or "en"),)
        return self.judge(request, output)

    def schema(self, request: R) -> dict[str, Any]:
        """Return the JSON schema that the output for this request must match, as a copy that the caller may change."""
        schema = deepcopy(dict(self._schema))
        schema["properties"] |= self.schema_overrides(request)
        return schema

    def judge(self, request: R, output: Output) -> Verdict:
        """Parse and validate an output. Raises what a check raises."""
        artifact = parse(self.artifact, output)
        if isinstance(artifact, Rejection):
            return Verdict.reject(artifact)
        rejection = next(filter(None, self.checks(request, artifact)), None)
        return Verdict.reject(rejection, artifact) if rejection else Verdict.accept(artifact)


def parse(artifact: type[A], output: Output) -> A | Rejection:
    """The artifact in an output, or why there is none."""
    if rejection := stopped(output):
        return rejection
    if not output.text.strip():
        return Rejection(RejectionReason.EMPTY, "the output is empty")
    try:
        return artifact.model_validate_json(output.text.encode("utf-8", "surrogatepass"))
    except ValidationError as error:
        return rejection_of(error, truncated=output.end is End.TOKEN_LIMIT)


def rejection_of(error: ValidationError, *, truncated: bool = False) -> Rejection:
    """The rejection of an output that does not parse, by its first error."""
    first = error.errors(include_url=False, include_input=False)[0]
    if truncated and first["type"] == "json_invalid":
        return Rejection(RejectionReason.TRUNCATED, "the output reached its token budget before the JSON was complete")
    where = ".".join(str(part) for part in first["loc"]) or "output"
    reason = _REASONS.get(first["type"], RejectionReason.OFF_SCHEMA)
    return Rejection(reason, f"{where}: {describe(first)}")
