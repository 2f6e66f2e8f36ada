"""The prose of a JSON document that is still being written."""

from __future__ import annotations

import pytest

from thothy_ai.plans.early import is_wrong_language, prose_of

FRENCH = "Les familles de Fribourg achètent des vélos cargo à la place d'une deuxième voiture, dit le vendeur"


@pytest.mark.parametrize(
    ("text", "prose"),
    [
        ("", []),
        ('{"a_long_key_of_it', ["a_long_key_of_it"]),
        ('{"a_long_key_of_it":', []),
        ('{"title": "A title of words", "mood": "calm", "body": "It begi', ["A title of words"]),
        ('{"body": "It says \\"no\\" to them", "x', ['It says "no" to them']),
        ('{"body": "It ends with a \\u00', ["It ends with a \\u00"]),
        ('{"body": "It ends with a \\', ["It ends with a "]),
        (
            '{"points": [{"point": "First of the points"}, "second of them, tw',
            ["First of the points", "second of them, tw"],
        ),
        ("no JSON at all, but a long sentence", []),
    ],
)
def test_long_values_are_prose_and_keys_are_not(text: str, prose: list[str]) -> None:
    assert prose_of(text) == prose


@pytest.mark.parametrize(("locale", "wrong"), [("fr", False), ("fr-CA", False), ("de", True), ("ja", True)])
def test_a_language_is_told_from_the_beginning_of_a_text(locale: str, wrong: bool) -> None:
    assert is_wrong_language(f'{{"title": "{FRENCH}", "body": "', locale) is wrong
    assert not is_wrong_language('{"title": "12 / 5 = 2,4", "body": "', locale)
