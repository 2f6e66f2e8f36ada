"""Passages taken from the source, and quotations that must be."""

from __future__ import annotations

import pytest

from tests.unit.jobs.checks.reasons import reason
from thothy_ai.jobs import RejectionReason, checks

COPIED = RejectionReason.COPIED_FROM_SOURCE
SOURCE = """In Freiburg, the bakery run and the school run now happen in the same vehicle: an electric bicycle with a
box in front. The dealer Radhaus Sonne sold 418 cargo bikes last year. In 2019 it sold 73. “People come in to replace
the second car,” says its manager, Katrin Vogel. What holds the trend back is space: most cargo bikes do not go down
cellar stairs, and the city counts 1.5 % more of them in the streets."""
QUOTING = (
    "Sales rose almost sixfold, and the shop knows why. “In Freiburg, the bakery run and the school run now happen in "
    "the same vehicle,” it says. Cellars, however, are too narrow for many models on sale, and the city has yet to "
    "build enough racks for those who live in old houses."
)
CHINESE = (
    "2023年，中国新能源汽车销量达到21.2万辆，同比增长百分之三十。业内人士表示，充电桩的数量仍然不足，农村地区尤其如此。"
)
JAPANESE = "発酵食品の人気が若い世代の間で高まっています。専門家によると、自宅で作る人が去年の二倍になりました。"


@pytest.mark.parametrize(
    ("text", "locale", "source", "found"),
    [
        ("The dealer Radhaus Sonne sold 418 cargo bikes last year. In 2019 it sold 73.", "en", SOURCE, COPIED),
        ("THE DEALER Radhaus Sonne — sold 418 cargo bikes last year!", "en", SOURCE, COPIED),
        (
            "What holds the trend back is space: most cargo bikes do not go down cellar stairs, families say.",
            "en",
            SOURCE,
            COPIED,
        ),
        (
            "Radhaus Sonne in Freiburg sold 418 cargo bikes last year, almost six times as many as in 2019.",
            "en",
            SOURCE,
            None,
        ),
        ("Families in Freiburg swap the second car for a bicycle with a box.", "en", SOURCE, None),
        ("“People come in to replace the second car,” says its manager.", "en", SOURCE, None),
        (f"“{SOURCE.replace('“', '').replace('”', '')}” says its manager.", "en", SOURCE, COPIED),
        (QUOTING, "en", SOURCE, None),
        (
            "A dealer's view: ‘In Freiburg, the bakery run and the school run now happen in the same vehicle.’",
            "en",
            SOURCE,
            None,
        ),
        (
            "The shops' owners: the bakery run and the school run now happen in the same vehicle: an 'electric' one.",
            "en",
            SOURCE,
            COPIED,
        ),
        ("2023年，中国新能源汽车销量达到21.2万辆，同比增长百分之三十。", "zh", CHINESE, COPIED),
        ("充电设施跟不上：去年新能源车卖出逾21万辆，乡村却很难找到充电的地方。", "zh", CHINESE, None),
        ("発酵食品の人気が若い世代の間で高まっています。", "ja", JAPANESE, COPIED),
        ("若者がいま夢中なのは、家で仕込む味噌やキムチだ。", "ja", JAPANESE, None),
        ("Cargo bike", "en", SOURCE, None),
        ("", "en", SOURCE, None),
        ("Anything goes here.", "en", "", None),
    ],
)
def test_copied(text: str, locale: str, source: str, found: RejectionReason | None) -> None:
    assert reason(checks.copied("text", text, source, locale)) is found


def test_limits_are_the_caller_s() -> None:
    text = "Families know it: most cargo bikes do not go down cellar stairs, so they look for room in the yard."
    assert checks.copied("text", text, SOURCE, "en") is None
    assert reason(checks.copied("text", text, SOURCE, "en", max_run=8)) is COPIED
    text += " In Freiburg, the bakery run and the school run are one."
    assert checks.copied("text", text, SOURCE, "en", max_share=0.7) is None
    assert reason(checks.copied("text", text, SOURCE, "en", max_share=0.4)) is COPIED


@pytest.mark.parametrize(
    ("quote", "found"),
    [
        ("People come in to replace the second car", None),
        ("'people come in to replace\nthe SECOND car,'", None),
        ("most cargo bikes do not go down cellar stairs", None),
        ("In Freiburg … in the same vehicle", None),
        ("In Freiburg, the bakery run […] in the same vehicle", None),
        ("1.5 % more", None),
        ("15 % more", RejectionReason.QUOTE_NOT_IN_SOURCE),
        ("People come in to replace the first car", RejectionReason.QUOTE_NOT_IN_SOURCE),
        ("eople come in", RejectionReason.QUOTE_NOT_IN_SOURCE),
        ("In the same vehicle … In Freiburg", RejectionReason.QUOTE_NOT_IN_SOURCE),
        ("…", RejectionReason.QUOTE_NOT_IN_SOURCE),
        ("", RejectionReason.QUOTE_NOT_IN_SOURCE),
    ],
)
def test_quoted(quote: str, found: RejectionReason | None) -> None:
    assert reason(checks.quoted("quote", quote, SOURCE)) is found


@pytest.mark.parametrize(("quote", "says"), [("", "quote is empty"), ("15 %", "quote is not in the source: '15 %'")])
def test_a_missing_quote_is_not_a_false_one(quote: str, says: str) -> None:
    rejection = checks.quoted("quote", quote, SOURCE)
    assert rejection is not None
    assert rejection.detail == says


@pytest.mark.parametrize(
    ("quote", "source"),
    [
        ("销量达到21.2万辆", CHINESE),
        ("若い世代の間で", JAPANESE),
        ("बिक्री 12 लाख", "पिछले साल बिक्री 12 लाख तक बढ़ी।"),
        ("ارتفعت المبيعات", "«ارتفعت المبيعات» بنسبة ١٥٪"),
        ("ยอดขาย", "เมื่อปีที่แล้วยอดขายเพิ่มขึ้น"),
        ("ＡＢＣ", "the abc of it"),
    ],
)
def test_quoted_in_many_scripts(quote: str, source: str) -> None:
    assert checks.quoted("quote", quote, source) is None
