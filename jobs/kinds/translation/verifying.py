"""Verification of a translation: each sentence against its original, or each unit where their numbers differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field

from thothy_ai.jobs.api.plan import Calls, Context, Outputs
from thothy_ai.jobs.api.verdict import Finding, Place, Rejection, RejectionReason, Verification, VerifiedClaim
from thothy_ai.jobs.checks.segments import located, sentences
from thothy_ai.jobs.kinds.translation.calls import Prompt
from thothy_ai.jobs.kinds.translation.drafting import drafted, joined, segments_of
from thothy_ai.jobs.kinds.translation.inline import has_words
from thothy_ai.jobs.kinds.translation.task import Task
from thothy_ai.jobs.kinds.translation.units import Document
from thothy_ai.jobs.plans import retries
from thothy_ai.jobs.plans.verification import ArtifactClaim, doubt, verify

_AGAIN = Rejection(RejectionReason.CONTRADICTS_SOURCE, "it did not say what the passage says")
Translations = Mapping[str, str]  # translations of units, by their originals


@dataclass
class TranslationVerifier:
    """Verifies translations of a document. Remembers verified translations, so that later calls do not repeat them."""

    document: Document
    task: Task
    context: Context
    known: dict[tuple[str, str], VerifiedClaim] = field(default_factory=dict)

    def improved(self, translations: Translations, prompt: Prompt) -> Generator[Calls, Outputs, Translations]:
        """The translations; doubtful ones are written once more, and replaced if the new ones are less doubtful."""
        before = yield from self._doubts(translations)
        wanted = [part for unit in before for part in segments_of(unit) if has_words(part)]
        context = retries.after(self.context, _AGAIN)
        drafts = yield from drafted(wanted, self.document, self.task, context, prompt)
        again = dict(translations)
        for unit in before:
            parts = segments_of(unit)
            if not any(part in drafts and drafts[part].rejected(self.task.target) for part in parts):
                again[unit] = joined(drafts[part].text if part in drafts else part for part in parts)
        after = yield from self._doubts(again)
        return {unit: again[unit] if after[unit] < before[unit] else text for unit, text in translations.items()}

    def summed_up(self, translations: Translations) -> tuple[Verification, tuple[Finding, ...]]:
        """The labels of verified translations, and the doubts."""
        claims = [(claim, self.known[claim.text, claim.evidence[0]]) for _, claim in self._claims(translations)]
        doubts = (doubt(claim, label, self.task.source, self.context) for claim, label in claims)
        return Verification(tuple(label for _, label in claims)), tuple(filter(None, doubts))

    def _doubts(self, translations: Translations) -> Generator[Calls, Outputs, Counter[str]]:
        """The number of doubtful claims of each unit that has any."""
        claims = list(self._claims(translations))
        new = [claim for _, claim in claims if (claim.text, claim.evidence[0]) not in self.known]
        labels = yield from verify(new, self.context, None)
        self.known |= {(claim.text, claim.evidence[0]): label for claim, label in zip(new, labels, strict=True)}
        labelled = ((unit, claim, self.known[claim.text, claim.evidence[0]]) for unit, claim in claims)
        return Counter(unit for unit, claim, label in labelled if doubt(claim, label, "", self.context))

    def _claims(self, translations: Translations) -> Iterator[tuple[str, ArtifactClaim]]:
        """The claims of a translated document, each with its unit."""
        at = 0
        for part in self.document.parts:
            if isinstance(part, str):
                at += len(part)
                continue
            text = part.laid_out(translations.get(part.text, part.text))
            if has_words(part.text):
                ours, originals = located(text, self.task.target), sentences(part.text, self.task.origin)
                if len(ours) != len(originals):
                    ours, originals = [(0, text)], (part.text,)
                for (start, mine), original in zip(ours, originals, strict=True):
                    place = Place("text", at + start, at + start + len(mine))
                    yield part.text, ArtifactClaim(mine, place, (original,))
            at += len(text)
