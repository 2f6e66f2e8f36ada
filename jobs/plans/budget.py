"""Output budgets: how many tokens a schema's longest text can take. A budget never cuts off what the schema allows.

Generous on purpose: an engine reserves what outputs like this one took so far, not the budget.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from thothy_ai.jobs.api.plan import Context
from thothy_ai.jobs.schema import max_characters
from thothy_ai.jobs.text.locales import script_of

MARGIN = 24  # tokens: braces, quotation marks, escapes
MAX_SHARE = 0.5  # of the model's context, so that a source has room
# Tokens per character. English is what all vocabularies serve best; a small one takes two or three tokens for one
# character of a script that it hardly knows.
_ENGLISH, _LATIN, _OTHER = 0.34, 0.5, 1.0
_PLAIN_FACTOR: Final = 1.6


def max_tokens(schema: Mapping[str, Any], locale: str, context: Context) -> int:
    """The budget for an output that matches `schema`, in the language of `locale`."""
    tokens = MARGIN + round(max_characters(schema) * _per_character(locale, context))
    return min(tokens, int(context.max_context * MAX_SHARE))


def _per_character(locale: str, context: Context) -> float:
    if locale.partition("-")[0] == "en" and not context.plain:
        return _ENGLISH
    return (_LATIN if script_of(locale) == "Latn" else _OTHER) * (_PLAIN_FACTOR if context.plain else 1.0)
