"""The sub-plan that writes sections: side by side, each repaired once if something is wrong with it, then verified."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from thothy_ai.jobs.api.plan import Calls, Context, Output, Outputs
from thothy_ai.jobs.api.requests import WritingRequest
from thothy_ai.jobs.api.verdict import Rejection, VerifiedClaim
from thothy_ai.jobs.kinds.report.faults import section_fault
from thothy_ai.jobs.kinds.report.values import Brief, Section
from thothy_ai.jobs.kinds.report.verifying import verified
from thothy_ai.jobs.kinds.report.writer import Writer
from thothy_ai.jobs.plans import retries
from thothy_ai.jobs.plans.documents import side_by_side


@dataclass(frozen=True)
class Written:
    """Sections by their place, as far as they could be read, what is wrong with which of them, and the findings."""

    sections: Mapping[int, Section]
    rejections: Mapping[int, Rejection]
    findings: Mapping[int, tuple[VerifiedClaim, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Assignment:
    """What sections are to be written about a text. `topic` is that of the request, if it is for one section."""

    briefs: Sequence[Brief]
    text: str
    request: WritingRequest[Any]
    writer: Writer
    topic: str | None = None

    def written(self, kept: Mapping[int, Section], context: Context) -> Generator[Calls, Outputs, Written]:
        """Write the sections that are not kept and verify them all; once more those that are refuted.

        Each section that changes after its verification is verified again, a refuted one in any case.
        """
        missing = {place: context for place in range(len(self.briefs)) if place not in kept}
        first = yield from self._repaired(kept, missing, context)
        if first.rejections:
            return first
        verification = yield from self._verified(first, first.sections, context)
        if not verification.rejections:
            return verification
        sound = {place: section for place, section in first.sections.items() if place not in verification.rejections}
        again = {place: retries.after(context, rejection) for place, rejection in verification.rejections.items()}
        second = yield from self._repaired(sound, again, context)
        if second.rejections:
            return second
        new = {place: section for place, section in second.sections.items() if section != sound.get(place)}
        last = yield from self._verified(second, new, context)
        return replace(last, findings={**verification.findings, **last.findings})

    def _repaired(
        self, kept: Mapping[int, Section], contexts: Mapping[int, Context], context: Context
    ) -> Generator[Calls, Outputs, Written]:
        """Write sections, each in its context, then once more those that something is wrong with."""
        sections, rejections = dict(kept), dict[int, Rejection]()
        earlier: dict[int, Sequence[Output]] = {}
        for step in ("section", "repair"):
            calls = {
                place: [
                    replace(call, step=step)
                    for call in self.writer.section_calls(self.briefs[place], self.text, self.request, fitting)
                ]
                for place, fitting in contexts.items()
            }
            outputs = iter((yield from side_by_side([call for of_one in calls.values() for call in of_one])))
            unread: dict[int, Rejection] = {}
            for place, of_one in calls.items():
                answers = (*islice(outputs, len(of_one)), *earlier.get(place, ()))
                earlier[place] = self.writer.kept(answers)
                written = self.writer.section_of(self.briefs[place], answers, self.text, self.request)
                if isinstance(written, Rejection):
                    unread[place] = written
                else:
                    sections[place] = written
            rejections = {}
            for place, section in sections.items():
                others = tuple(other for number, other in sorted(sections.items()) if number < place)
                if rejection := section_fault(section, self.text, self.request, others, self.topic):
                    rejections[place] = rejection
            rejections |= unread
            if not rejections or not all(
                self.writer.may_be_repaired(earlier[place], self.text, self.request) for place in unread
            ):
                break
            contexts = {place: retries.after(context, rejections[place]) for place in sorted(rejections)}
        return Written(sections, rejections)

    def _verified(
        self, written: Written, sections: Mapping[int, Section], context: Context
    ) -> Generator[Calls, Outputs, Written]:
        bodies = {place: section.body for place, section in sorted(sections.items())}
        findings, rejections = yield from verified(bodies, self.text, self.request, context)
        return replace(written, findings=findings, rejections=rejections)
