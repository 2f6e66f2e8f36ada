"""A second look: the model judges an artifact's statements against the source, which is still in the KV cache.

One call for all statements, and one token per finding: the letters stand apart by spaces, so that none merges with its
neighbour. Only a statement that is not supported needs a reason. What is the same for all reviews of a source precedes
the statements, so that the next one finds it in the cache.

A small model gets a legend of one line and gives no reasons. It supports true statements hardly more often than false
ones, however it is asked: its review should cost little.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from typing import Any, Final, NamedTuple

from thothy_ai.jobs.api.plan import Call, Calls, Context, Output, Outputs, Sampling
from thothy_ai.jobs.api.verdict import Finding, Rejection, RejectionReason, Review
from thothy_ai.jobs.plans.budget import max_tokens
from thothy_ai.jobs.prompts import about_source
from thothy_ai.jobs.schema import object_schema, prose_pattern

SUPPORTED: Final = "supported"
CONTRADICTED: Final = "contradicted"
NOT_FOUND: Final = "not_found"
MAX_STATEMENTS = 24  # per call
MAX_REASONS = 6
_LETTERS: Final = {"S": SUPPORTED, "C": CONTRADICTED, "N": NOT_FOUND}
TOKENS_PER_FINDING = 6  # at most
_INSTRUCTION = (
    "Check each statement below against the source, on its own: its figures, names, negations and directions.\n"
    "findings: one letter per statement, in their order. S: supported, the source says so or it follows. "
    "C: contradicted, the source says otherwise. N: not found, the source does not say it.\n"
    "reasons: for each statement with C or N, what the source says instead, in a few words of English.\n\n"
    "{statements}"
)
_PLAIN = "S supported, C contradicted, N not found:\n\n{statements}"


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
    texts = [statement.text for statement in statements]
    numbered = [f"{number}. {text}" for number, text in enumerate(texts, start=1)]  # for the reasons
    schema = _schema(len(statements), reasons=not context.plain)
    budget = Sampling(max_tokens=max_tokens(schema, "en", context) + TOKENS_PER_FINDING * len(statements))
    asked = _PLAIN if context.plain else _INSTRUCTION
    listed = "\n".join(texts if context.plain else numbered)
    return Call(about_source(source, asked.format(statements=listed), context), schema, budget, step="review")


def _schema(count: int, *, reasons: bool) -> dict[str, Any]:
    """One schema per number of statements. A small model is not asked for reasons, which take most of a review."""
    code = f"[{''.join(_LETTERS)}]"
    others = f"(?: {code}){{{count - 1},{count - 1}}}" if count > 1 else ""
    findings = {"type": "string", "pattern": f"^{code}{others}$"}
    if not reasons:
        return findings
    reason = object_schema(
        {
            "statement": {"type": "integer", "minimum": 1, "maximum": count},
            "reason": {"type": "string", "pattern": prose_pattern(4, 120)},
        }
    )
    listed = {"type": "array", "items": reason, "minItems": 0, "maxItems": min(count, MAX_REASONS)}
    return object_schema({"findings": findings, "reasons": listed})


def _findings(statements: Sequence[Statement], output: Output, context: Context) -> list[Finding]:
    try:
        found = json.loads(output.text)
        codes, listed = (found, ()) if context.plain else (found["findings"], found["reasons"])
        reasons = {entry["statement"]: entry["reason"] for entry in listed}
        named = {number: _LETTERS.get(code, NOT_FOUND) for number, code in enumerate(codes.split(), start=1)}
    except (ValueError, KeyError, TypeError, AttributeError):
        reasons, named = dict.fromkeys(range(1, len(statements) + 1), "the review could not be read"), {}
    return [
        Finding(statement.text, named.get(number, NOT_FOUND), reasons.get(number, ""))
        for number, statement in enumerate(statements, start=1)
    ]
