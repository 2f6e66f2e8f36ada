"""The claims that a verifier is measured with: each in a version that the source supports, and in one with a defect.

One JSON object per line: `id`, `sort` of the defect, `locale`, the `good` and the `bad` version of the claim, and
either the `source_file`, with the claim's `quote` if it has one, or the `original` that the claim translates.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thothy_ai.jobs.api.verdict import Place
from thothy_ai.jobs.evaluation.cases import DATA, read_lines, with_source
from thothy_ai.jobs.plans.verification import ArtifactClaim, claims_of

CLAIMS = DATA / "claims.jsonl"


@dataclass(frozen=True, slots=True)
class LabelledClaim:
    """A claim, whether it is sound, and the sort of defect in its bad version."""

    claim: ArtifactClaim
    sound: bool
    sort: str


@dataclass(frozen=True, slots=True)
class ClaimSet:
    """Claims that a verifier sees together: about one source or, without a source, translations."""

    source: str | None
    claims: tuple[LabelledClaim, ...]


def labelled_texts(path: Path = CLAIMS) -> tuple[ClaimSet, ...]:
    """All claims, in texts with alternating good and bad versions, so that no text has both versions of one claim.

    Raises `CaseError`.
    """
    texts: dict[tuple[str | None, bool], list[LabelledClaim]] = defaultdict(list)
    for number, (source, good, bad) in enumerate(read_lines(path, _versions)):
        texts[source, bool(number % 2)].append(good)
        texts[source, not number % 2].append(bad)
    return tuple(ClaimSet(source, tuple(claims)) for (source, _), claims in texts.items())


def _versions(entry: Mapping[str, Any], folder: Path) -> tuple[str | None, LabelledClaim, LabelledClaim]:
    source = with_source(entry, folder).get("source")
    quotes = [entry["quote"]] if "quote" in entry else []

    def version(text: str, *, sound: bool) -> LabelledClaim:
        if source is None:
            claim = ArtifactClaim(text, Place("text", 0, len(text)), (entry["original"],))
        else:
            (claim,) = claims_of(text, "text", source, entry["locale"], quotes)
        return LabelledClaim(claim, sound, entry["sort"])

    return source, version(entry["good"], sound=True), version(entry["bad"], sound=False)
