"""The sub-plan that writes sections: side by side, each repaired once if something is wrong with it, then verified."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from thothy_ai.jobs.api.plan import Calls, Context, Output, Outputs
from thothy_ai.jobs.api.requests import WritingRequest
from thothy_ai.jobs.api.verdict import Rejection
from thothy_ai.jobs.checks.gates import is_gate
from thothy_ai.jobs.kinds.report.faults import section_faults
from thothy_ai.jobs.kinds.report.values import Section, SectionBrief
from thothy_ai.jobs.kinds.report.verifying import Stated, Verified, verified
from thothy_ai.jobs.kinds.report.writer import Writer
from thothy_ai.jobs.plans import retries
from thothy_ai.jobs.plans.documents import side_by_side
from thothy_ai.jobs.plans.judging import severity, worst


@dataclass(frozen=True)
class Written:
    """Readable sections by their index, faults and doubts by section, and verification results."""

    sections: Mapping[int, Section]
    rejections: Mapping[int, Rejection]
    verified: Mapping[int, Verified] = field(default_factory=dict)


@dataclass(frozen=True)
class Assignment:
    """The sections to write about a text. `topic` is the request's, if it asks for one section."""

    briefs: Sequence[SectionBrief]
    text: str
    request: WritingRequest[Any]
    writer: Writer
    topic: str | None = None

    def written(self, kept: Mapping[int, Section], context: Context) -> Generator[Calls, Outputs, Written]:
        """Write the sections that are not kept, verify all, and write the doubtful ones once more.

        Rewritten sections are verified again. If a gate rejects one of them, the first versions stay.
        """
        missing = {place: context for place in range(len(self.briefs)) if place not in kept}
        first = yield from self._repaired(kept, missing, context)
        if first.rejections:
            return first
        found = yield from self._verified(first.sections, context)
        doubts = {place: of_text.doubts[0] for place, of_text in found.items() if of_text.doubts}
        if not doubts:
            return replace(first, verified=found)
        sound = {place: section for place, section in first.sections.items() if place not in doubts}
        again = {place: retries.after(context, Rejection(each.reason, each.detail)) for place, each in doubts.items()}
        second = yield from self._repaired(sound, again, context)
        if second.rejections:
            return replace(first, verified=found)
        new = {place: section for place, section in second.sections.items() if section != first.sections[place]}
        return replace(second, verified=found | (yield from self._verified(new, context)))

    def _repaired(
        self, kept: Mapping[int, Section], contexts: Mapping[int, Context], context: Context
    ) -> Generator[Calls, Outputs, Written]:
        """Write sections, each in its context, and the faulty ones once more; the better version stays. Sections with
        mere doubts are not among the rejections.
        """
        sections, wrong, locale = dict(kept), dict[int, Rejection](), self.request.locale
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
                last = sections.get(place)
                if isinstance(written, Rejection):
                    unread |= {} if last else {place: written}
                elif last is None or self._severity(place, written, sections) <= self._severity(place, last, sections):
                    sections[place] = written
            found = {
                place: worst(self._faults(place, section, sections), locale) for place, section in sections.items()
            }
            wrong = {place: first for place, first in found.items() if first} | unread
            if not wrong or not all(
                self.writer.may_be_repaired(earlier[place], self.text, self.request) for place in unread
            ):
                break
            contexts = {place: retries.after(context, wrong[place]) for place in sorted(wrong)}
        return Written(sections, {place: first for place, first in wrong.items() if is_gate(first.reason, locale)})

    def _faults(self, place: int, section: Section, sections: Mapping[int, Section]) -> tuple[Rejection, ...]:
        others = tuple(other for number, other in sorted(sections.items()) if number < place)
        return section_faults(section, self.text, self.request, others, self.topic)

    def _severity(self, place: int, section: Section, sections: Mapping[int, Section]) -> tuple[int, float]:
        return severity(self._faults(place, section, sections), self.request.locale)

    def _verified(
        self, sections: Mapping[int, Section], context: Context
    ) -> Generator[Calls, Outputs, dict[int, Verified]]:
        stated = {
            place: Stated(
                "body" if self.topic else f"sections.{place}.body",
                section.body,
                [each.quote for each in section.citations],
            )
            for place, section in sorted(sections.items())
        }
        return (yield from verified(stated, self.text, self.request, context))
