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

from thothy_ai.jobs.api.plan import Call, Calls, Context, Outputs, Sampling
from thothy_ai.jobs.api.verdict import ClaimFinding, Rejection, RejectionReason, Review
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
_SMALL_MODEL_INSTRUCTION = "S supported, C contradicted, N not found:\n\n{statements}"


class Statement(NamedTuple):
    """Something that an artifact claims. Unless it `needs_support`, only a contradiction counts against it."""

    text: str
    needs_support: bool = True


def look_again(source: str, statements: Sequence[Statement], context: Context) -> Generator[Calls, Outputs, Review]:
    """Ask for a finding on each statement. One that is missing in the output counts as `not_found`."""
    form = _SMALL_MODEL_FORM if context.plain else _FORM
    groups = [statements[first : first + MAX_STATEMENTS] for first in range(0, len(statements), MAX_STATEMENTS)]
    if not groups:
        return Review(())
    calls = []
    for group in groups:
        schema = form.schema(len(group))
        budget = max_tokens(schema, "en", context) + TOKENS_PER_FINDING * len(group)
        messages = about_source(source, form.instruction(group), context)
        calls.append(Call(messages, schema, Sampling(max_tokens=budget), step="review"))
    outputs = yield tuple(calls)
    findings: list[ClaimFinding] = []
    for group, output in zip(groups, outputs, strict=True):
        try:
            letters, reasons = form.read(json.loads(output.text))
            codes = dict(enumerate(letters.split(), start=1))
        except (ValueError, KeyError, TypeError, AttributeError):
            codes, reasons = {}, dict.fromkeys(range(1, len(group) + 1), "the review could not be read")
        findings += [
            ClaimFinding(statement.text, _LETTERS.get(codes.get(number, "N"), NOT_FOUND), reasons.get(number, ""))
            for number, statement in enumerate(group, start=1)
        ]
    return Review(tuple(findings))


def refuted(statement: Statement, finding: ClaimFinding) -> Rejection | None:
    """Why a statement cannot be published, if the finding is against it."""
    said = f"{statement.text[:140]!r}: {finding.reason or 'no reason given'}"
    if finding.finding == CONTRADICTED:
        return Rejection(RejectionReason.CONTRADICTS_SOURCE, said)
    if finding.finding == NOT_FOUND and statement.needs_support:
        return Rejection(RejectionReason.UNSUPPORTED, said)
    return None


def _letters_schema(count: int) -> dict[str, Any]:
    code = f"[{''.join(_LETTERS)}]"
    others = f"(?: {code}){{{count - 1},{count - 1}}}" if count > 1 else ""
    return {"type": "string", "pattern": f"^{code}{others}$"}


class _Form:
    """A letter per statement, and reasons for those that are not supported."""

    def instruction(self, statements: Sequence[Statement]) -> str:
        numbered = (f"{number}. {each.text}" for number, each in enumerate(statements, start=1))  # for the reasons
        return _INSTRUCTION.format(statements="\n".join(numbered))

    def schema(self, count: int) -> dict[str, Any]:
        reason = object_schema(
            {
                "statement": {"type": "integer", "minimum": 1, "maximum": count},
                "reason": {"type": "string", "pattern": prose_pattern(4, 120)},
            }
        )
        listed = {"type": "array", "items": reason, "minItems": 0, "maxItems": min(count, MAX_REASONS)}
        return object_schema({"findings": _letters_schema(count), "reasons": listed})

    def read(self, found: Any) -> tuple[str, dict[int, str]]:  # noqa: ANN401  JSON
        return found["findings"], {entry["statement"]: entry["reason"] for entry in found["reasons"]}


class _SmallModelForm(_Form):
    """Letters only: reasons would take most of a review."""

    def instruction(self, statements: Sequence[Statement]) -> str:
        return _SMALL_MODEL_INSTRUCTION.format(statements="\n".join(each.text for each in statements))

    def schema(self, count: int) -> dict[str, Any]:
        return _letters_schema(count)

    def read(self, found: Any) -> tuple[str, dict[int, str]]:  # noqa: ANN401  JSON
        return found, {}


_FORM, _SMALL_MODEL_FORM = _Form(), _SmallModelForm()
