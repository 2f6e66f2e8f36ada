"""Validators: pure functions that take a text and return a `Rejection`, or None if it passes. Kinds compose them.

Each rejects only what it is sure of: a false rejection costs GPU time, a false acceptance costs trust. The time of each
is linear in its texts; docs/validators.md has figures.
"""

from __future__ import annotations

from thothy_ai.jobs.checks.address import address
from thothy_ai.jobs.checks.contradiction import contradiction, denied
from thothy_ai.jobs.checks.copying import copied, copied_passage, quoted, untranslated, untranslated_passage
from thothy_ai.jobs.checks.duplicates import near_duplicate, signature
from thothy_ai.jobs.checks.form import unfinished
from thothy_ai.jobs.checks.languages import surely_foreign, wrong_language
from thothy_ai.jobs.checks.length import empty, length, proportion, too_long
from thothy_ai.jobs.checks.letters import foreign_letters
from thothy_ai.jobs.checks.markup import preserved, unsafe_markup
from thothy_ai.jobs.checks.names import new_name, unknown_name
from thothy_ai.jobs.checks.numbers import new_number, numbers_kept
from thothy_ai.jobs.checks.prompt_injection import instructs, obeys_source, without_instructions
from thothy_ai.jobs.checks.quotations import exchanged, misquoted
from thothy_ai.jobs.checks.readability import too_hard
from thothy_ai.jobs.checks.refusals import meta_talk, refusal
from thothy_ai.jobs.checks.repetition import loop, repetition
from thothy_ai.jobs.checks.segments import sentences, words
from thothy_ai.jobs.checks.tags import foreign_tags
from thothy_ai.jobs.checks.terms import banned, glossary, mentions
from thothy_ai.jobs.checks.titles import own_title, repeated_title
from thothy_ai.jobs.checks.topic import echo, off_topic
from thothy_ai.jobs.checks.typography import slip
from thothy_ai.jobs.checks.vocabulary import unknown_words

__all__ = [
    "address", "banned", "contradiction", "copied", "copied_passage", "denied", "echo", "empty", "exchanged",
    "foreign_letters", "foreign_tags", "glossary", "instructs", "length", "loop", "mentions", "meta_talk",
    "misquoted", "near_duplicate", "new_name", "new_number", "numbers_kept", "obeys_source", "off_topic", "own_title",
    "preserved", "proportion", "quoted", "refusal", "repeated_title", "repetition", "sentences", "signature", "slip",
    "surely_foreign", "too_hard", "too_long", "unfinished", "unknown_name", "unknown_words", "unsafe_markup",
    "untranslated", "untranslated_passage", "without_instructions", "words", "wrong_language",
]  # fmt: skip
