"""`OneCall`: the plan of a kind whose artifact is written in one call: a prompt, a schema, a budget and checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Generic

from typing_extensions import TypeVar

from thothy_ai.jobs.api.artifact import Artifact
from thothy_ai.jobs.api.kind import Request
from thothy_ai.jobs.api.plan import Call, Context, Early, Message, Output, Plan, Sampling, TemplateOption
from thothy_ai.jobs.api.verdict import Rejection, Verdict
from thothy_ai.jobs.plans import retries
from thothy_ai.jobs.plans.judging import severity_of, verdict
from thothy_ai.jobs.plans.outputs import parse
from thothy_ai.jobs.schema import grammar_schema

R = TypeVar("R", bound=Request)
A = TypeVar("A", bound=Artifact, default=Artifact)


@dataclass(frozen=True)
class OneCall(Generic[R, A]):
    """A plan of one call.

    `prompt` also gets the context, since a small model may need plainer instructions. `checks` runs the validators: the
    first gate rejects, and the findings of other checks are left to a person. `locale` returns the language of the
    text. `schema_overrides` replaces top-level properties of the schema for one request. `early` names the checks that
    can stop an output early. `template_options` go to the call. Raises `SchemaError` if the artifact has an unbounded
    string or array.
    """

    artifact: type[A]
    prompt: Callable[[R, Context], tuple[Message, ...]]
    sampling: Callable[[R], Sampling]
    checks: Callable[[R, A], Iterable[Rejection | None]]
    locale: Callable[[R], str | None] = lambda _: None
    schema_overrides: Callable[[R], Mapping[str, Any]] = lambda _: {}
    early: Callable[[R], Early | None] = lambda _: None
    template_options: Mapping[str, TemplateOption] = field(default_factory=dict)
    _schema: Mapping[str, Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_schema", grammar_schema(self.artifact))

    def __call__(self, request: R, context: Context) -> Plan:
        """Ask once, and judge the output; if several texts were drawn, return the best one's verdict."""
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
        verdicts = [self.judge(request, each) for each in (output, *output.others)]
        return min(verdicts, key=severity_of)

    def schema(self, request: R) -> dict[str, Any]:
        """Return the JSON schema that the output for this request must match, as a copy that the caller may change."""
        schema = deepcopy(dict(self._schema))
        schema["properties"] |= self.schema_overrides(request)
        return schema

    def judge(self, request: R, output: Output) -> Verdict:
        """Parse and validate an output. Errors of checks propagate."""
        artifact = parse(self.artifact, output)
        if isinstance(artifact, Rejection):
            return Verdict.reject(artifact)
        return verdict(artifact, self.checks(request, artifact), self.locale(request) or "en")
