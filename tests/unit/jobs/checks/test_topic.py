"""Texts about something else, and texts that repeat their instruction."""

from __future__ import annotations

import pytest

from tests.unit.jobs.checks.reasons import reason
from thothy_ai.jobs import RejectionReason, checks

OFF = RejectionReason.OFF_TOPIC
ENGLISH = (
    "Cargo bikes are replacing the second car. Most families ask whether two children and a crate of water fit. "
    "Dealers hire mechanics, and the city builds garages for parking near the station."
)
CHINESE = "货运自行车正在取代家里的第二辆车。多数家庭会问，能不能坐下两个孩子。城市在车站附近修建停车库。"


@pytest.mark.parametrize(
    ("text", "locale", "source", "found"),
    [
        ("Families replace their second car by a bike.", "en", ENGLISH, None),
        ("The Amazon rainforest is a land of endless possibilities.", "en", ENGLISH, OFF),
        ("Der Regenwald ist ein Land der Möglichkeiten.", "de", ENGLISH, None),
        ("It is so.", "en", ENGLISH, None),
        ("许多家庭用自行车取代第二辆车，城市修建停车库。", "zh", CHINESE, None),
        ("亚马逊雨林拥有丰富的动植物资源，吸引各国游客。", "zh", CHINESE, OFF),
        ("Anything at all, whatever happens.", "en", "", OFF),
    ],
)
def test_off_topic(text: str, locale: str, source: str, found: RejectionReason | None) -> None:
    assert reason(checks.off_topic(text, source, locale, min_share=0.35)) is found


@pytest.mark.parametrize(
    ("topic", "found"),
    [
        ("where the bikes are parked", None),
        ("what mechanics earn", None),
        ("what is changing and why", None),
        ("Families with children", None),
        ("how submarines dive", None),
        ("Parking garages near the station", OFF),
    ],
)
def test_a_section_is_about_its_topic(topic: str, found: RejectionReason | None) -> None:
    text = "Families replace their second car by cargo bikes with room for two children and a crate of water."
    if topic.startswith("where"):
        text += " They park them near the station."
    assert reason(checks.off_topic(text, ENGLISH, "en", 0.35, topic)) is found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Explain to city planners in three sentences what is changing.", RejectionReason.PROMPT_ECHO),
        ("What is changing in the city is the way families shop.", None),
        ("Cargo bikes are replacing the second car.", None),
        ("", None),
    ],
)
def test_echo(text: str, found: RejectionReason | None) -> None:
    instruction = "Explain to city planners in three sentences what is changing, with facts of the text above."
    assert reason(checks.echo(text, instruction)) is found


def test_nothing_is_no_instruction() -> None:
    assert checks.echo("Anything.", "") is None
