"""How a prompt is laid out: the source first, word for word the same for every kind, then what to do with it.

Siblings so share a prefix, and the engine computes its KV once. There is no system message: a small model does better
with the one of its own chat template.
"""

from __future__ import annotations

from thothy_ai.jobs.kind import Message
from thothy_ai.jobs.locales import language_of


def about_source(source: str, instruction: str) -> tuple[Message, ...]:
    """One user message: the source, then the instruction."""
    return (Message("user", f"{source.strip()}\n\n{instruction}"),)


def in_language(locale: str) -> str:
    """Return the sentence that asks for a language; nothing for English, which models write unasked."""
    name = language_of(locale).name
    return "" if name == "English" else f" Write in {name}."
