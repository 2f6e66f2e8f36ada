"""Measures the validators on labelled texts: what gates reject, and what gates and findings notice together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from thothy_ai.jobs import registry
from thothy_ai.jobs.api.verdict import Rejection
from thothy_ai.jobs.api.verdict import RejectionReason as Reason
from thothy_ai.jobs.checks.gates import GROUPS, group_of, is_gate
from thothy_ai.jobs.evaluation.labelled import LabelledText

MEANING: Final = "meaning"
FORM: Final = "form"
_SORTS: Final = {  # sorts of defects, by the reasons in a text's labels
    Reason.UNSUPPORTED: MEANING,
    Reason.NUMBER_NOT_IN_SOURCE: "figures",
    Reason.NAME_NOT_IN_SOURCE: "names",
    Reason.WRONG_LANGUAGE: "language",
    Reason.UNTRANSLATED: "language",
    Reason.QUOTE_NOT_IN_SOURCE: "quotations",
    Reason.MISQUOTED: "misquotations",
    Reason.TYPOGRAPHY: "slips",
    Reason.CONTRADICTS_SOURCE: "contradictions",
}


@dataclass(frozen=True, slots=True)
class JudgedText:
    """A labelled text and everything that the validators found in it."""

    text: LabelledText
    found: tuple[Rejection, ...]

    @property
    def gate(self) -> Rejection | None:
        """The first rejection by a gate; None if no gate rejects the text."""
        return next((each for each in self.found if is_gate(each.reason, self.text.language)), None)

    @property
    def sort(self) -> str:
        """The sort of a bad text's defect. Only a reader who understands the text can find a defect of meaning."""
        return next((sort for reason, sort in _SORTS.items() if reason in self.text.reasons), FORM)


@dataclass(frozen=True, slots=True)
class Counts:
    """For good and for bad texts: how many there are, how many a gate rejects, and in how many anything is found."""

    good: int
    good_rejected: int
    good_found: int
    bad: int
    bad_rejected: int
    bad_found: int

    @classmethod
    def of(cls, judged: Iterable[JudgedText]) -> Counts:
        """The counts of these texts."""
        parts: list[int] = []
        texts = list(judged)
        for accepted in (True, False):
            those = [each for each in texts if each.text.accepted is accepted]
            parts += (len(those), sum(each.gate is not None for each in those), sum(bool(each.found) for each in those))
        return cls(*parts)


def judge(text: LabelledText) -> JudgedText:
    """Apply the checks of the text's kind to its artifact."""
    kind = registry.find(text.kind)
    request = kind.request.model_validate(dict(text.request))
    try:
        artifact = kind.artifact.model_validate(dict(text.artifact))
    except ValidationError as error:
        off = Rejection(Reason.OFF_SCHEMA, str(error.errors(include_url=False)[0]["msg"]))
        return JudgedText(text, (off,))
    return JudgedText(text, tuple(filter(None, kind.plan.checks(request, artifact))))  # type: ignore[attr-defined]


def by_group(judged: Sequence[JudgedText]) -> dict[str, Counts]:
    """The counts of each language group that has texts."""
    groups = (group for group in GROUPS if any(group_of(each.text.language) == group for each in judged))
    return {group: Counts.of(each for each in judged if group_of(each.text.language) == group) for group in groups}


def by_sort(judged: Sequence[JudgedText]) -> dict[str, Counts]:
    """The counts of the bad texts with each sort of defect, defects of meaning last."""
    bad = [each for each in judged if not each.text.accepted]
    sorts = sorted({each.sort for each in bad}, key=lambda sort: (sort == MEANING, sort))
    return {sort: Counts.of(each for each in bad if each.sort == sort) for sort in sorts}


def precision_counts(judged: Iterable[JudgedText]) -> dict[Reason, dict[str, tuple[int, int]]]:
    """By reason and language group, the numbers of bad and of good texts with a find, as in `gates.toml`."""
    counts: dict[Reason, dict[str, tuple[int, int]]] = {}
    for each in judged:
        group = group_of(each.text.language)
        for reason in {rejection.reason for rejection in each.found}:
            right, wrong = counts.setdefault(reason, {}).get(group, (0, 0))
            counts[reason][group] = (right, wrong + 1) if each.text.accepted else (right + 1, wrong)
    return counts


def to_json(judged: Sequence[JudgedText]) -> dict[str, Any]:
    """Plain values under stable keys."""
    return {
        "texts": len(judged),
        "language_groups": {name: _figures(counts) for name, counts in by_group(judged).items()},
        "defects": {name: _figures(counts) for name, counts in by_sort(judged).items()},
        "reasons": {
            reason: {group: list(pair) for group, pair in groups.items()}
            for reason, groups in precision_counts(judged).items()
        },
    }


def _figures(counts: Counts) -> dict[str, int]:
    return {name: getattr(counts, name) for name in Counts.__slots__}
