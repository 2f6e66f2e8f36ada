"""Which checks reject a text, and which leave it to a person: by the reason that they give, in `tables/gates.toml`.

A check whose precision is near one is a gate. What any other finds is a finding, whose weight is its precision in the
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
    """Have these gates make findings in this process: those that an operator has found wrong too often."""
    _LEFT_TO_PEOPLE.clear()
    _LEFT_TO_PEOPLE.update(reasons)


def is_gate(reason: RejectionReason, locale: str) -> bool:
    """Whether a text in this language about which a check says this is rejected."""
    declared = table("gates").get(reason, {})
    if reason in _LEFT_TO_PEOPLE:
        return False
    return bool(declared.get("gate")) and group_of(locale) not in declared.get("finding_in", ())


def group_of(locale: str) -> str:
    """The language group in which a locale's language is measured."""
    return _GROUPS.get(locale.partition("-")[0].lower(), _OTHER)


def precision(reason: RejectionReason, locale: str) -> float:
    """How often what a check says for this reason is right in a locale's language group, 0 to 1."""
    return estimated(*table("gates").get(reason, {}).get(group_of(locale), (0, 0)))


def measure(finding: Mapping[str, Any], locale: str) -> str:
    """What was measured of whatever raised a stored finding, in words: the counts behind its weight, if any."""
    if finding["by"] != "rule":
        weight = finding["weight"]
        return "not measured" if weight == UNMEASURED else f"right in {weight:.0%} of its doubts"
    group = group_of(locale)
    right, wrong = table("gates").get(finding["reason"], {}).get(group, (0, 0))
    languages = "other languages" if group == _OTHER else group
    texts = f"right in {right} of {right + wrong} texts" if right + wrong else "not measured"
    return f"{texts} in {languages}"


def estimated(right: int, wrong: int) -> float:
    """How often something is right that was right and wrong so often, 0 to 1.

    Of few texts, the estimate is cautious: one that was found rightly makes two thirds (Laplace's rule of succession).
    """
    return round((right + 1) / (right + wrong + 2), 2) if right + wrong else UNMEASURED
