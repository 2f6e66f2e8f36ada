"""An artifact's fields as a text for an editor: there and back, and what cannot be read."""

from __future__ import annotations

from typing import Any

import pytest

from thothy_ai.cli.inputs.field_text import field_text, fields_of
from thothy_ai.errors import InvalidDecisionError

BODY: dict[str, Any] = {
    "title": "Night trains\n\nare back",
    "points": [{"point": "One.", "weight": 1}, {"point": "== not a field\n\\== nor this", "weight": 0.5}],
    "tags": [],
    "extra": {"ready": True, "none": None},
}


def test_what_is_not_changed_comes_back_as_it_was() -> None:
    assert fields_of(field_text(BODY, "About it.\nTwo lines."), BODY) == BODY


def test_texts_change_items_go_and_come() -> None:
    text = field_text(BODY).replace("One.", "Uno.\r\nDue.")
    assert fields_of(text, BODY)["points"][0]["point"] == "Uno.\nDue."
    first, _, rest = text.partition("== points.1.point")
    shorter = fields_of(first + "== tags" + rest.partition("== tags")[2], BODY)
    assert [point["weight"] for point in shorter["points"]] == [1]
    longer = fields_of(f"{text}\n== points.7.point\nThree.\n", BODY)
    assert longer["points"][2] == {"point": "Three."}


def test_a_text_without_fields_is_none() -> None:
    with pytest.raises(InvalidDecisionError, match="body: has no field"):
        fields_of("# only a note\n\n", BODY)


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("== title", "== points", "points.0.point"),
        ("== title", "title", "body"),
        ("== points.0.weight\n1", "== points.0.weight\none", "points.0.weight"),
        ("== points.0.weight", "== points.0.point", "points.0.point"),
    ],
)
def test_what_cannot_be_read_is_named(old: str, new: str, field: str) -> None:
    with pytest.raises(InvalidDecisionError) as caught:
        fields_of(field_text(BODY).replace(old, new, 1), BODY)
    assert caught.value.field == field
