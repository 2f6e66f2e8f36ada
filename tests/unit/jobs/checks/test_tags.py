"""Tags in another language than their summary's."""

from __future__ import annotations

import pytest

from thothy_ai.jobs import checks

SOURCE = "Kassel baut Radwege, sagt Petra Vogt von Cargo Cult."


@pytest.mark.parametrize(
    ("locale", "tags"),
    [
        ("de", ["bicycle lanes", "urban transport", "parking spaces"]),
        ("de", ["cycling", "retail", "parking"]),
        ("fr", ["housing", "traffic"]),
        ("es-MX", ["city planning", "bike lanes"]),
        ("it", ["Urban Mobility", "Traffic Policy", "Retail"]),
        ("pl", ["housing", "traffic"]),
        ("ru", ["cycling", "retail"]),
        ("ja", ["urban transport", "housing"]),
        ("en", ["Fahrradwege", "Verkehrspolitik"]),
        ("fr", ["Radwege", "Stadtverkehr", "Parkplätze"]),
    ],
)
def test_tags_that_are_all_in_another_language_are_found(locale: str, tags: list[str]) -> None:
    found = list(checks.foreign_tags(tags, "" if "Radwege" in tags else SOURCE, locale))
    assert found
    assert {each.part for each in found} <= {f"tags.{number}" for number in range(len(tags))}


def test_one_english_tag_among_others_is_found_at_its_place() -> None:
    (found,) = checks.foreign_tags(["Radwege", "bicycle lanes", "Stadtverkehr"], SOURCE, "de-DE")
    assert (found.part, found.span) == ("tags.1", (0, 13))
    assert "German" in found.detail
    (found,) = checks.foreign_tags(["自転車道", "bicycle lanes"], "", "ja")
    assert found.part == "tags.1"


@pytest.mark.parametrize(
    ("locale", "tags"),
    [
        ("de", ["Radwege", "Carsharing", "Machine Learning"]),
        ("de", ["Carsharing", "Startups", "E-Bikes"]),
        ("de", ["Cargo Cult", "Petra Vogt", "Kassel"]),
        ("fr", ["mobilité urbaine", "marketing", "transport"]),
        ("es", ["movilidad urbana", "marketing"]),
        ("it", ["export", "trasporti"]),
        ("ja", ["自転車道", "AI", "Cargo Cult"]),
        ("ru", ["велодорожки", "SNS", "Kassel"]),
        ("en", ["cycling", "Kassel"]),
    ],
)
def test_loans_names_and_abbreviations_may_stand_in_any_language(locale: str, tags: list[str]) -> None:
    assert list(checks.foreign_tags(tags, SOURCE, locale)) == []


ENGLISH = (
    "The brewery in Kassel says that sales fell after the council closed the road, and the mayor, Petra Vogt, agrees."
)


@pytest.mark.parametrize(
    ("tags", "count"),
    [(["brewery", "sales", "council"], 3), (["Brauerei", "Kassel", "Petra Vogt"], 0), (["Brauerei", "Marketing"], 0)],
)
def test_words_of_a_source_in_another_language_are_foreign_names_apart(tags: list[str], count: int) -> None:
    assert len(list(checks.foreign_tags(tags, ENGLISH, "de"))) == count
