"""The sub-plan that writes sections: side by side, each repaired once if something is wrong with it."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from thothy_ai.jobs import retries
from thothy_ai.jobs.documents import side_by_side
from thothy_ai.jobs.plan import Calls, Context, Outputs
from thothy_ai.jobs.report.section import Brief, Section, section_call, section_fault, section_of
from thothy_ai.jobs.requests import WritingRequest
from thothy_ai.jobs.verdict import Rejection


class Written(NamedTuple):
    """Sections by their place, as far as they could be read, and what is wrong with which of them."""

    sections: Mapping[int, Section]
    rejections: Mapping[int, Rejection]


def written(
    briefs: Sequence[Brief],
    kept: Mapping[int, Section],
    text: str,
    request: WritingRequest[Any],
    context: Context,
) -> Generator[Calls, Outputs, Written]:
    """Write the sections that are not kept, then once more those that something is wrong with."""
    sections, rejections = dict(kept), dict[int, Rejection]()
    contexts = {place: context for place in range(len(briefs)) if place not in kept}
    for step in ("section", "repair"):
        calls = [section_call(briefs[place], text, request, fitting) for place, fitting in contexts.items()]
        outputs = yield from side_by_side([replace(call, step=step) for call in calls])
        found = {
            place: section_of(briefs[place], output, request) for place, output in zip(contexts, outputs, strict=True)
        }
        sections |= {place: section for place, section in found.items() if isinstance(section, Section)}
        unread = {place: section for place, section in found.items() if isinstance(section, Rejection)}
        rejections = _faults(sections, text, request) | unread
        if not rejections:
            break
        contexts = {place: retries.after(context, rejections[place]) for place in sorted(rejections)}
    return Written(sections, rejections)


def _faults(sections: Mapping[int, Section], text: str, request: WritingRequest[Any]) -> dict[int, Rejection]:
    faults: dict[int, Rejection] = {}
    for place, section in sections.items():
        others = tuple(other for number, other in sorted(sections.items()) if number < place)
        if rejection := section_fault(section, text, request, others):
            faults[place] = rejection
    return faults
