"""A job kind for measurements: a workload file's job, with a prompt and an output of so many tokens.

Its outputs never end by themselves: each is cut at its number of tokens, and rejected as truncated.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from thothy_ai.jobs.kind import Artifact, JobKind, Request
from thothy_ai.jobs.one_call import OneCall
from thothy_ai.jobs.plan import Message, Sampling
from thothy_ai.jobs.schema import quotation
from thothy_ai.jobs.verdict import Rejection

MAX_TOKENS = 4_096
CHARS_OF_A_TOKEN = 9  # more than a text has on average, less than half of what one of the longest tokens has


class Templated(Request):
    """Write `tokens` tokens after a template and a text."""

    template: str
    text: str
    tokens: Annotated[int, Field(ge=1, le=MAX_TOKENS)]


class TemplatedArtifact(Artifact):
    """Whatever was written."""

    note: Annotated[str, quotation(1, MAX_TOKENS)]


def _no_checks(_: Templated, __: TemplatedArtifact) -> Iterator[Rejection | None]:
    return iter(())


def _longer_than(tokens: int) -> dict[str, object]:
    """The schema of a text that has more characters than so many tokens.

    Rounded up to a power of two: jobs with a bound in common share the states of its lexer, which cost far more to
    find than to look up.
    """
    chars = (1 << (tokens - 1).bit_length()) * CHARS_OF_A_TOKEN
    return {"type": "string", "pattern": rf"^[^\x00-\x1f\x7f]{{{chars},{chars + 1}}}$"}


KIND = JobKind(
    name="templated",
    request=Templated,
    artifact=TemplatedArtifact,
    plan=OneCall(
        artifact=TemplatedArtifact,
        prompt=lambda request, _: (Message("user", f"{request.template} {request.text}"),),
        sampling=lambda request: Sampling(max_tokens=request.tokens, temperature=1.0),
        checks=_no_checks,
        schema_overrides=lambda request: {"note": _longer_than(request.tokens)},
    ),
    locale=lambda _: "en",
    source=lambda request: request.text,
)
