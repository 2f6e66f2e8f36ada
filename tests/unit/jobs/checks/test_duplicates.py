"""Near-duplicates, and the signatures that find candidates for them."""

from __future__ import annotations

import random

import pytest

from tests.unit.jobs.checks.reasons import reason
from thothy_ai.jobs import RejectionReason, checks

PARAGRAPH = (
    "Cargo bikes are replacing the second car in Freiburg. The dealer Radhaus Sonne sold 418 of them last year, "
    "and its manager expects more. What holds the trend back is space: most models do not go down cellar stairs, "
    "so families park them in the yard or pay for a place in one of the garages that the city has begun to build "
    "near the station."
)
OTHER = (
    "Fermentation has become a habit in Lyon. Three makers of clay crocks doubled their orders within a year, and most "
    "come from people under thirty. Workshops on kimchi are booked out until spring, and schools borrow crocks."
)
SAME_TOPIC = (
    "In Freiburg, a bicycle with a box now does what the family's other car used to do. Radhaus Sonne, which sold"
    " 73 of them in 2019, sold almost six times as many last year. Cellars are too narrow for them, and yards are"
    " full."
)
CHINESE = "新能源汽车销量继续上升，充电桩却不够用，农村地区的车主常常要开很远的路才能找到一个能用的充电桩。"


@pytest.mark.parametrize(
    ("text", "other", "found"),
    [
        (PARAGRAPH, PARAGRAPH, True),
        (PARAGRAPH, PARAGRAPH.replace("418", "400").replace("Freiburg", "Basel").replace("manager", "owner"), True),
        (PARAGRAPH, PARAGRAPH.upper() + "!", True),
        (PARAGRAPH, PARAGRAPH + " " + OTHER, True),
        (PARAGRAPH, SAME_TOPIC, False),
        (PARAGRAPH, OTHER, False),
        (CHINESE, CHINESE.replace("继续", "仍在"), True),
        (CHINESE, "发酵食品越来越受年轻人欢迎，许多人在家自己做泡菜和酸奶，相关课程要提前几个月预订。", False),
        ("Yes.", "Yes.", True),
        ("", "", False),
        ("", PARAGRAPH, False),
    ],
)
def test_near_duplicate(text: str, other: str, found: bool) -> None:
    assert (reason(checks.near_duplicate(text, [OTHER[::-1], other])) is RejectionReason.NEAR_DUPLICATE) is found


def test_a_signature_is_a_row_of_signed_64_bit_integers() -> None:
    signature = checks.signature(PARAGRAPH)
    assert len(signature) == 16
    assert all(-(2**63) <= band < 2**63 for band in signature)
    assert signature == checks.signature(f"  {PARAGRAPH.upper()} ")
    assert len(checks.signature("")) == 16
    assert not set(signature) & set(checks.signature(OTHER))


def test_signatures_are_those_of_every_process() -> None:
    assert (
        checks.signature("Cargo bikes")[:2]
        == checks.signature("cargo  BIKES!")[:2]
        == (963014742850602503, -3811520827227035501)
    )


def test_edited_texts_have_a_band_in_common() -> None:
    draw = random.Random(7)
    words = PARAGRAPH.split()
    hits = 0
    for _ in range(200):
        edited = list(words)
        for position in draw.sample(range(len(words)), 2):
            edited[position] = f"word{draw.randrange(10**6)}"
        hits += bool(set(checks.signature(PARAGRAPH)) & set(checks.signature(" ".join(edited))))
    assert hits >= 190


def test_different_texts_seldom_have_a_band_in_common() -> None:
    draw = random.Random(7)
    vocabulary = [f"w{number}" for number in range(4000)]
    texts = [" ".join(draw.choices(vocabulary, k=60)) for _ in range(40)]
    signatures = [set(checks.signature(text)) for text in texts]
    pairs = [(one, other) for position, one in enumerate(signatures) for other in signatures[:position]]
    assert sum(bool(one & other) for one, other in pairs) <= len(pairs) * 0.02
