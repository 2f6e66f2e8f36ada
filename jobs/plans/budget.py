"""Output budgets: how many tokens a schema's longest text can take. A budget never cuts off what the schema allows.

Budgets are generous on purpose: an engine reserves the usual length of such outputs, not the budget.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from thothy_ai.jobs.api.plan import Context
from thothy_ai.jobs.schema import max_characters
from thothy_ai.jobs.text.locales import script_of

MARGIN = 24  # tokens: braces, quotation marks, escapes
MAX_SHARE = 0.5  # of the model's context, so that a source has room
# Tokens per character. All vocabularies are best at English; a small one takes two or three tokens for one
# character of a script that it hardly knows.
_ENGLISH, _LATIN, _OTHER = 0.34, 0.5, 1.0
_SMALL_MODEL_FACTOR: Final = 1.6


def max_tokens(schema: Mapping[str, Any], locale: str, context: Context) -> int:
    """The budget for an output that matches `schema`, in the language of `locale`."""
    per_character = _LATIN if script_of(locale) == "Latn" else _OTHER
    if context.plain:
        per_character *= _SMALL_MODEL_FACTOR
    elif locale.partition("-")[0] == "en":
        per_character = _ENGLISH
    tokens = MARGIN + round(max_characters(schema) * per_character)
    return min(tokens, int(context.max_context * MAX_SHARE))
