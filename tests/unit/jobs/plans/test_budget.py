"""Budgets follow from schemas, scripts and the model's context."""

from __future__ import annotations

from tests.support.plans import PLAIN
from thothy_ai.jobs import Context
from thothy_ai.jobs.plans.budget import MAX_SHARE, max_tokens
from thothy_ai.jobs.schema import prose_pattern


def schema(characters: int) -> dict[str, object]:
    return {
        "type": "object",
        "properties": {"text": {"type": "string", "pattern": prose_pattern(1, characters)}},
        "required": ["text"],
        "additionalProperties": False,
    }


def test_a_longer_text_gets_more() -> None:
    assert max_tokens(schema(100), "en", Context()) < max_tokens(schema(1_000), "en", Context())


def test_other_scripts_and_small_vocabularies_get_more() -> None:
    english, german, chinese = (max_tokens(schema(1_000), locale, Context()) for locale in ("en", "de", "zh-TW"))
    assert 300 < english < german < chinese
    assert chinese >= 1_000
    assert max_tokens(schema(1_000), "en", PLAIN) > english


def test_a_source_keeps_its_room() -> None:
    assert max_tokens(schema(100_000), "zh", Context(max_context=4_096)) == 4_096 * MAX_SHARE
