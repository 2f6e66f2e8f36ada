"""A job kind for measurements: a workload file's job, with a prompt and an output of about so many tokens.

A model with random weights writes any allowed token, and never ends a text by itself. So the schema bounds the text's
characters, from both sides. The budget is far above what they take: an engine that must end a text within its budget
looks for its shortest completion, which would cost more than everything else here. Bounds are rounded, since jobs with
a bound in common share the states of its lexer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from thothy_ai.jobs.api.artifact import Artifact
from thothy_ai.jobs.api.kind import JobKind, Request
from thothy_ai.jobs.api.plan import Message, Sampling
from thothy_ai.jobs.api.verdict import Rejection
from thothy_ai.jobs.plans.one_call import OneCall
from thothy_ai.jobs.schema import quotation

MAX_CHARACTERS = 65_536
MAX_TOKENS = 4_096
BUDGET_FACTOR, BUDGET_MORE = 2, 64
STEP = 1.1  # between two bounds


class Templated(Request):
    """Write `characters` characters, or up to 5 % more or less, after a template and a text; `tokens` is the budget."""

    template: str
    text: str
    characters: Annotated[int, Field(ge=1, le=MAX_CHARACTERS)]
    tokens: Annotated[int, Field(ge=1, le=MAX_TOKENS)]

    @classmethod
    def of(cls, template: str, text: str, tokens: int, characters_per_token: float) -> Templated:
        """A job that writes about so many tokens."""
        characters = min(MAX_CHARACTERS, max(1, round(tokens * characters_per_token)))
        budget = min(MAX_TOKENS, BUDGET_FACTOR * tokens + BUDGET_MORE)
        return cls(template=template, text=text, characters=characters, tokens=budget)


class TemplatedArtifact(Artifact):
    """Whatever was written."""

    note: Annotated[str, quotation(1, 2 * MAX_CHARACTERS)]


def _no_checks(_: Templated, __: TemplatedArtifact) -> Iterator[Rejection | None]:
    return iter(())


def _of_length(characters: int) -> dict[str, object]:
    """The schema of a text of about so many characters."""
    rounded = round(STEP ** round(math.log(characters, STEP)))
    return {"type": "string", "pattern": rf"^[^\x00-\x1f\x7f]{{{rounded},{rounded + 1}}}$"}


KIND = JobKind(
    name="templated",
    request=Templated,
    artifact=TemplatedArtifact,
    plan=OneCall(
        artifact=TemplatedArtifact,
        prompt=lambda request, _: (Message("user", f"{request.template} {request.text}"),),
        sampling=lambda request: Sampling(max_tokens=request.tokens, temperature=1.0),
        checks=_no_checks,
        schema_overrides=lambda request: {"note": _of_length(request.characters)},
    ),
    locale=lambda _: "en",
    source=lambda request: request.text,
)
