"""Which checks reject a text and which leave it to a person: by rejection reason, in `tables/gates.toml`.

A check whose precision is near one is a gate. Other checks make findings, weighted by the check's precision in the
text's language group, as measured on labelled texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from thothy_ai.jobs.api.verdict import RejectionReason
from thothy_ai.jobs.checks.tables import table

UNMEASURED: Final = 0.5  # the weight of a finding by a check that was never right or wrong in a language group
_GROUPS = {
    "en": "English",
    "zh": "Chinese and Japanese",
    "ja": "Chinese and Japanese",
    "ko": "Korean",
    "ar": "Arabic",
    "hi": "Hindi",
    "ru": "Russian",
}
_OTHER = "others"
GROUPS: Final = (*dict.fromkeys(_GROUPS.values()), _OTHER)


_LEFT_TO_PEOPLE: Final[set[RejectionReason]] = set()


def leave_to_people(reasons: Iterable[RejectionReason]) -> None:
    """Turn these gates into checks that make findings, in this process: an operator has found them wrong too often."""
    _LEFT_TO_PEOPLE.clear()
    _LEFT_TO_PEOPLE.update(reasons)


def is_gate(reason: RejectionReason, locale: str) -> bool:
    """Whether a check that gives this reason is a gate in this locale's language."""
    declared = table("gates").get(reason, {})
    if reason in _LEFT_TO_PEOPLE:
        return False
    return bool(declared.get("gate")) and group_of(locale) not in declared.get("finding_in", ())


def group_of(locale: str) -> str:
    """The language group in which a locale's language is measured."""
    return _GROUPS.get(locale.partition("-")[0].lower(), _OTHER)


def precision(reason: RejectionReason, locale: str) -> float:
    """The share of right results among those with this reason in a locale's language group, 0 to 1."""
    return estimated(*table("gates").get(reason, {}).get(group_of(locale), (0, 0)))


def measure(finding: Mapping[str, Any], locale: str) -> str:
    """The measurement behind a stored finding's weight, in words: the counts of right and wrong results, if any."""
    if finding["by"] != "rule":
        weight = finding["weight"]
        return "not measured" if weight == UNMEASURED else f"right in {weight:.0%} of its doubts"
    group = group_of(locale)
    right, wrong = table("gates").get(finding["reason"], {}).get(group, (0, 0))
    languages = "other languages" if group == _OTHER else group
    texts = f"right in {right} of {right + wrong} texts" if right + wrong else "not measured"
    return f"{texts} in {languages}"


def estimated(right: int, wrong: int) -> float:
    """The estimated precision, 0 to 1, from counts of right and wrong results.

    It is cautious with few texts: a single right result gives two thirds (Laplace's rule of succession).
    """
    return round((right + 1) / (right + wrong + 2), 2) if right + wrong else UNMEASURED
