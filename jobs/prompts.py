"""Prompt layout: the source first, verbatim for every kind, then the instruction.

Siblings thus share a prefix, and the engine computes its KV once. There is no system message: a small model does better
with the default one of its chat template.
"""

from __future__ import annotations

from thothy_ai.jobs.locales import language_of
from thothy_ai.jobs.plan import Message


def about_source(source: str, instruction: str) -> tuple[Message, ...]:
    """Return a prompt of one user message: the source, then the instruction."""
    return (Message("user", f"{source.strip()}\n\n{instruction}"),)


def in_language(locale: str) -> str:
    """Return a sentence that requests a language, or the empty string for English, which models write by default."""
    name = language_of(locale).name
    return "" if name == "English" else f" Write in {name}."
