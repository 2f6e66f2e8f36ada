"""`Voices`: chooses the approved artifacts that a job's prompts show as examples of its voice.

They depend on the voice, the language and the source alone, and are kept for a while: sibling jobs of all kinds have
the same examples before their source, and share its KV as without a voice.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from rapidfuzz import fuzz

from thothy_ai.worker.record.claims import Claim
from thothy_ai.worker.record.store import JobStore, retry_until_answered

EXAMPLES = 3  # in a prompt
CANDIDATES = 50  # latest approved artifacts to choose from
COMPARED_CHARS = 4_000  # of a source
KEPT, KEPT_SECONDS = 1_000, 900.0

Key = tuple[str, str, str, str]


class Example(NamedTuple):
    """The text of an artifact that a person has approved, and its job."""

    job_id: UUID
    text: str


@dataclass(frozen=True, slots=True)
class _Chosen:
    examples: tuple[Example, ...]
    until: float  # monotonic


class Voices:
    """Used on one asyncio loop."""

    def __init__(self, store: JobStore) -> None:
        self._store = store
        self._chosen: dict[Key, _Chosen] = {}  # the oldest first

    async def examples(self, claim: Claim) -> tuple[Example, ...]:
        """The examples for this job: none if it asks for no voice, or the voice has none in its language."""
        request = claim.request if isinstance(claim.request, dict) else {}
        voice, source = request.get("voice"), request.get("source")
        if not isinstance(voice, str) or not isinstance(source, str):
            return ()
        language = str(request.get("locale", "en")).partition("-")[0]
        key = (claim.tenant, voice, language, claim.source_key)
        chosen = self._chosen.get(key)
        if chosen is None or chosen.until < time.monotonic():
            found = await retry_until_answered(
                "the search for examples of a voice",
                lambda: self._store.examples(claim.tenant, voice, language, CANDIDATES),
            )
            chosen = _Chosen(most_similar([Example(*row) for row in found], source), time.monotonic() + KEPT_SECONDS)
            self._chosen.pop(key, None)
            self._chosen[key] = chosen
            if len(self._chosen) > KEPT:
                del self._chosen[next(iter(self._chosen))]
        return chosen.examples


def most_similar(candidates: Sequence[Example], source: str) -> tuple[Example, ...]:
    """The examples that have most words in common with the beginning of the source, the most similar last: nearest to
    it in the prompt.

    Compares words, since artifacts' signatures are equal only for nearly identical texts.
    """
    first = {example.job_id: example for example in reversed(candidates)}  # approved twice, it counts once
    compared = source[:COMPARED_CHARS].casefold()
    ranked = sorted(first.values(), key=lambda example: fuzz.token_set_ratio(example.text.casefold(), compared))
    return tuple(ranked[-EXAMPLES:])
