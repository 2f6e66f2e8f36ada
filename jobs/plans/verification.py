"""Verification: each claim of an artifact is held against its evidence, and unsupported claims are doubted.

The evidence of a claim is the text it came with (a key point's quotation, a segment's original) and the sentences of
the source that share its rarest words. The model first cites a passage, then judges: two letters per claim, separated
by spaces, so that tokens do not merge. The source precedes the claims, since its KV is still cached.

With an entailment model next to the engine (`Context.verifier`), that model judges instead. An unreadable answer leaves
its claims `unread`: they get no findings.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Final, NamedTuple

from thothy_ai.jobs.api.plan import Call, Calls, Context, Outputs, Sampling
from thothy_ai.jobs.api.verdict import Finding, Place, RejectionReason, VerifiedClaim, printable
from thothy_ai.jobs.checks.segments import located
from thothy_ai.jobs.evidence import passages
from thothy_ai.jobs.plans.budget import max_tokens
from thothy_ai.jobs.plans.documents import side_by_side
from thothy_ai.jobs.prompts import about_source
from thothy_ai.jobs.schema import object_schema
from thothy_ai.jobs.text.division import estimated_tokens, grouped

SUPPORTED: Final = "supported"
CONTRADICTED: Final = "contradicted"
NOT_FOUND: Final = "not_found"
UNREAD: Final = "unread"
MAX_PASSAGES = 3  # per claim
MAX_CLAIMS = 24  # per call
MAX_GROUP_TOKENS = 1_200  # per call, for claims and passages
TOKENS_PER_CLAIM = 6  # of an answer, at most
_LABELS: Final = {"S": SUPPORTED, "C": CONTRADICTED, "N": NOT_FOUND}
_BY_ENTAILMENT: Final = {"entailment": SUPPORTED, "contradiction": CONTRADICTED, "neutral": NOT_FOUND}
_LETTERS: Final = "abc"  # of passages
_NONE: Final = "-"
_ANSWER: Final = f"[{_LETTERS}{_NONE}] [{''.join(_LABELS)}]"
_RULES = (
    "Hold each claim below against the source, on its own. Under it stand passages of the source that may decide it.\n"
    "Look at who says something and who is meant, at what has happened and what is only planned or asked for, at cause "
    "and mere coincidence, at figures, units and what they count, at names, negations and directions.\n"
    "Answer for each claim in order: first cite, then judge. Cite the letter of the passage that decides, - if none "
    "does. Then S: supported, the source says so or it follows; C: contradicted, the source says otherwise; N: not "
    "found, the source does not say it.\n\n{claims}"
)
_TRANSLATION_RULES = (
    "Hold each translation below against its original, the passage a under it, and look at the same things: who, what, "
    "whether, how much, and what was left out or added.\n"
    "Answer for each in order: a, then S if it says the same, C if it says something else, N if it says more or less."
    "\n\n{claims}"
)
_SMALL_MODEL_RULES = "Cite a letter or -, then S supported, C contradicted, N not found:\n\n{claims}"


Read = Callable[[Sequence["ArtifactClaim"], Any], Iterator[VerifiedClaim]]  # labels a group of claims by an answer


class ArtifactClaim(NamedTuple):
    """A claim of an artifact, and the passages to hold it against, the likeliest first.

    Unless it `needs_support`, only a contradiction counts against it.
    """

    text: str
    place: Place
    evidence: tuple[str, ...] = ()
    needs_support: bool = True


def claims_of(
    text: str, part: str, source: str, locale: str, evidence: Sequence[str] = (), *, needs_support: bool = True
) -> Iterator[ArtifactClaim]:
    """The sentences of an artifact's field, with the field's own evidence and passages of the source."""
    for start, sentence in located(text, locale):
        found = dict.fromkeys((*evidence, *passages(sentence, source, locale, MAX_PASSAGES)))
        place = Place(part, start, start + len(sentence))
        yield ArtifactClaim(sentence, place, tuple(found)[:MAX_PASSAGES], needs_support)


def verify(
    claims: Sequence[ArtifactClaim], context: Context, source: str | None
) -> Generator[Calls, Outputs, tuple[VerifiedClaim, ...]]:
    """Have claims labelled, in order: claims about a source or, without a source, translations of their evidence."""

    def tokens(claim: ArtifactClaim) -> float:
        return estimated_tokens(claim.text) + sum(map(estimated_tokens, claim.evidence))

    groups = grouped(claims, tokens, MAX_GROUP_TOKENS, MAX_CLAIMS)
    make, read = (_entailment, _entailed) if context.verifier else (_question, _answered)
    outputs = yield from side_by_side([make(group, context, source) for group in groups])
    verified: list[VerifiedClaim] = []
    for group, output in zip(groups, outputs, strict=True):
        try:
            verified += list(read(group, json.loads(output.text)))
        except (ValueError, KeyError, TypeError, AttributeError):
            verified += (VerifiedClaim(claim.text, UNREAD, "") for claim in group)
    # Without a cited passage, a contradiction is not credible.
    return tuple(
        each._replace(label=NOT_FOUND) if each.label == CONTRADICTED and not each.evidence else each
        for each in verified
    )


def doubt(claim: ArtifactClaim, verified: VerifiedClaim, source: str, context: Context) -> Finding | None:
    """The finding on a claim that is contradicted, or that needs support and has none."""
    if verified.label == CONTRADICTED:
        reason, detail = RejectionReason.CONTRADICTS_SOURCE, f"{claim.text!r}, but the source: {verified.evidence!r}"
    elif verified.label == NOT_FOUND and claim.needs_support:
        reason, detail = RejectionReason.UNSUPPORTED, f"{claim.text!r}"
    else:
        return None
    start = source.find(verified.evidence) if verified.evidence else -1
    span = (start, start + len(verified.evidence)) if start >= 0 else None
    return Finding(reason, printable(detail), claim.place, span, context.verification_precision, "verification")


def _question(group: Sequence[ArtifactClaim], context: Context, source: str | None) -> Call:
    rules = _RULES if source else _TRANSLATION_RULES
    lines = []
    for number, claim in enumerate(group, start=1):
        lines.append(f"{number}. {claim.text}")
        lines += [f"   {letter}: {passage}" for letter, passage in zip(_LETTERS, claim.evidence, strict=False)]
    instruction = (_SMALL_MODEL_RULES if context.plain else rules).format(claims="\n".join(lines))
    about = source or "\n\n".join(claim.evidence[0] for claim in group)
    pattern = f"^{_ANSWER}(?: {_ANSWER}){{{len(group) - 1},{len(group) - 1}}}$" if len(group) > 1 else f"^{_ANSWER}$"
    schema = object_schema({"claims": {"type": "string", "pattern": pattern}})
    budget = max_tokens(schema, "en", context) + TOKENS_PER_CLAIM * len(group)
    return Call(about_source(about, instruction, context), schema, Sampling(max_tokens=budget), step="verify")


def _answered(group: Sequence[ArtifactClaim], answer: Any) -> Iterator[VerifiedClaim]:  # noqa: ANN401  JSON
    letters = answer["claims"].split()
    for claim, cited, label in zip(group, letters[::2], letters[1::2], strict=True):
        passage = dict(zip(_LETTERS, claim.evidence, strict=False)).get(cited, "")
        yield VerifiedClaim(claim.text, _LABELS[label], passage)


def _entailment(group: Sequence[ArtifactClaim], _: Context, source: str | None) -> Call:
    return Call.of_pairs([(" ".join(claim.evidence) or source or "", claim.text) for claim in group], step="verify")


def _entailed(group: Sequence[ArtifactClaim], answer: Any) -> Iterator[VerifiedClaim]:  # noqa: ANN401  JSON
    for claim, label in zip(group, answer, strict=True):
        yield VerifiedClaim(
            claim.text,
            UNREAD if label is None else _BY_ENTAILMENT[label],
            "" if label is None else next(iter(claim.evidence), ""),
        )
