"""A second look: the model judges an artifact's statements against the source, which is still in the KV cache.

One call for all statements. A finding costs some four tokens, since only a statement that is not supported needs a
reason: with the source cached, a review takes about a tenth of the tokens of the artifact.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from typing import Any, Final, NamedTuple

from thothy_ai.jobs.budget import max_tokens
from thothy_ai.jobs.plan import Call, Calls, Context, Output, Outputs, Sampling
from thothy_ai.jobs.prompts import about_source
from thothy_ai.jobs.schema import object_schema, prose_pattern
from thothy_ai.jobs.verdict import Finding, Rejection, RejectionReason, Review

SUPPORTED: Final = "supported"
CONTRADICTED: Final = "contradicted"
NOT_FOUND: Final = "not_found"
MAX_STATEMENTS = 24  # per call
MAX_REASONS = 6
_INSTRUCTION = (
    "Check the statements below against the source, each on its own. They may be wrong in a figure, a name, a negation "
    "or a direction.\n"
    "supported: the source says so, or it follows from what the source says.\n"
    "contradicted: the source says otherwise.\n"
    "not_found: the source does not say it.\n\n"
    "{statements}\n\n"
    "findings: one per statement, in their order."
)
_PLAIN = "Is each statement supported by the text, contradicted by it, or not_found in it?\n\n{statements}"
_REASONS = (
    " reasons: for each statement that is not supported, what the source says instead, in a few words of English."
)


class Statement(NamedTuple):
    """Something that an artifact claims. Unless it `needs_support`, only a contradiction counts against it."""

    text: str
    needs_support: bool = True


def look_again(source: str, statements: Sequence[Statement], context: Context) -> Generator[Calls, Outputs, Review]:
    """Ask for a finding on each statement. One that is missing in the output counts as `not_found`."""
    groups = [statements[first : first + MAX_STATEMENTS] for first in range(0, len(statements), MAX_STATEMENTS)]
    if not groups:
        return Review(())
    outputs = yield tuple(_call(source, group, context) for group in groups)
    found = zip(groups, outputs, strict=True)
    return Review(tuple(finding for group, output in found for finding in _findings(group, output, context)))


def refuted(statement: Statement, finding: Finding) -> Rejection | None:
    """Why a statement cannot be published, if the finding is against it."""
    said = f"{statement.text[:140]!r}: {finding.reason or 'no reason given'}"
    if finding.finding == CONTRADICTED:
        return Rejection(RejectionReason.CONTRADICTS_SOURCE, said)
    if finding.finding == NOT_FOUND and statement.needs_support:
        return Rejection(RejectionReason.UNSUPPORTED, said)
    return None


def _call(source: str, statements: Sequence[Statement], context: Context) -> Call:
    listed = "\n".join(f"{number}. {statement.text}" for number, statement in enumerate(statements, start=1))
    schema = _schema(len(statements), reasons=not context.plain)
    budget = Sampling(max_tokens=max_tokens(schema, "en", context))
    asked = (_PLAIN if context.plain else _INSTRUCTION + _REASONS).format(statements=listed)
    return Call(about_source(source, asked, context), schema, budget, step="review")


def _schema(count: int, *, reasons: bool) -> dict[str, Any]:
    """One schema per number of statements. A small model is not asked for reasons, which take most of a review."""
    finding = {"enum": [SUPPORTED, CONTRADICTED, NOT_FOUND]}
    reason = object_schema(
        {
            "statement": {"type": "integer", "minimum": 1, "maximum": count},
            "reason": {"type": "string", "pattern": prose_pattern(4, 120)},
        }
    )
    findings = {"type": "array", "items": finding, "minItems": count, "maxItems": count}
    listed = {"type": "array", "items": reason, "minItems": 0, "maxItems": min(count, MAX_REASONS)}
    return object_schema({"findings": findings, "reasons": listed} if reasons else {"findings": findings})


def _findings(statements: Sequence[Statement], output: Output, context: Context) -> list[Finding]:
    try:
        found = json.loads(output.text)
        listed = () if context.plain else found["reasons"]
        reasons = {entry["statement"]: entry["reason"] for entry in listed}
        named = dict(enumerate(found["findings"], start=1))
    except (ValueError, KeyError, TypeError):
        reasons, named = dict.fromkeys(range(1, len(statements) + 1), "the review could not be read"), {}
    return [
        Finding(statement.text, named.get(number, NOT_FOUND), reasons.get(number, ""))
        for number, statement in enumerate(statements, start=1)
    ]
