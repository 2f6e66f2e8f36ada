"""A second look: the model judges an artifact's statements against the source, which is still in the KV cache.

One call for all statements, and one token per label: the letters stand apart by spaces, so that none merges with its
neighbour. Only a statement that is not supported needs a reason. What the verifications of a source have in common
precedes the statements, so that the next one finds it in the cache.

A small model gets a legend of one line and gives no reasons. It supports true statements hardly more often than false
ones, however it is asked: its verification should cost little.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from typing import Any, Final, NamedTuple

from thothy_ai.jobs.api.plan import Call, Calls, Context, Outputs, Sampling
from thothy_ai.jobs.api.verdict import Rejection, RejectionReason, Verification, VerifiedClaim
from thothy_ai.jobs.plans.budget import max_tokens
from thothy_ai.jobs.prompts import about_source
from thothy_ai.jobs.schema import object_schema, prose_pattern

SUPPORTED: Final = "supported"
CONTRADICTED: Final = "contradicted"
NOT_FOUND: Final = "not_found"
MAX_CLAIMS = 24  # per call
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


class Claim(NamedTuple):
    """Something that an artifact claims. Unless it `needs_support`, only a contradiction counts against it."""

    text: str
    needs_support: bool = True


def verify(source: str, claims: Sequence[Claim], context: Context) -> Generator[Calls, Outputs, Verification]:
    """Ask for a label for each claim. One that is missing in the output counts as `not_found`."""
    form = _SMALL_MODEL_FORM if context.plain else _FORM
    groups = [claims[first : first + MAX_CLAIMS] for first in range(0, len(claims), MAX_CLAIMS)]
    if not groups:
        return Verification(())
    calls = []
    for group in groups:
        schema = form.schema(len(group))
        budget = max_tokens(schema, "en", context) + TOKENS_PER_FINDING * len(group)
        messages = about_source(source, form.instruction(group), context)
        calls.append(Call(messages, schema, Sampling(max_tokens=budget), step="verify"))
    outputs = yield tuple(calls)
    verified: list[VerifiedClaim] = []
    for group, output in zip(groups, outputs, strict=True):
        try:
            letters, reasons = form.read(json.loads(output.text))
            codes = dict(enumerate(letters.split(), start=1))
        except (ValueError, KeyError, TypeError, AttributeError):
            codes, reasons = {}, dict.fromkeys(range(1, len(group) + 1), "the verification could not be read")
        verified += [
            VerifiedClaim(claim.text, _LETTERS.get(codes.get(number, "N"), NOT_FOUND), reasons.get(number, ""))
            for number, claim in enumerate(group, start=1)
        ]
    return Verification(tuple(verified))


def refuted(claim: Claim, verified: VerifiedClaim) -> Rejection | None:
    """Why a claim cannot be published, if its label is against it."""
    said = f"{claim.text[:140]!r}: {verified.reason or 'no reason given'}"
    if verified.label == CONTRADICTED:
        return Rejection(RejectionReason.CONTRADICTS_SOURCE, said)
    if verified.label == NOT_FOUND and claim.needs_support:
        return Rejection(RejectionReason.UNSUPPORTED, said)
    return None


def _letters_schema(count: int) -> dict[str, Any]:
    code = f"[{''.join(_LETTERS)}]"
    others = f"(?: {code}){{{count - 1},{count - 1}}}" if count > 1 else ""
    return {"type": "string", "pattern": f"^{code}{others}$"}


class _Form:
    """A letter per statement, and reasons for those that are not supported."""

    def instruction(self, statements: Sequence[Claim]) -> str:
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
    """Letters only: reasons would take most of a verification."""

    def instruction(self, statements: Sequence[Claim]) -> str:
        return _SMALL_MODEL_INSTRUCTION.format(statements="\n".join(each.text for each in statements))

    def schema(self, count: int) -> dict[str, Any]:
        return _letters_schema(count)

    def read(self, found: Any) -> tuple[str, dict[int, str]]:  # noqa: ANN401  JSON
        return found, {}


_FORM, _SMALL_MODEL_FORM = _Form(), _SmallModelForm()
