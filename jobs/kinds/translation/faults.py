"""Faults and doubts of a translation, for a single segment or a whole text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from thothy_ai.jobs import checks
from thothy_ai.jobs.api.plan import Early
from thothy_ai.jobs.api.verdict import Rejection
from thothy_ai.jobs.kinds.translation.inline import bare, has_words
from thothy_ai.jobs.kinds.translation.task import Task
from thothy_ai.jobs.kinds.translation.units import Document, document_of
from thothy_ai.jobs.plans.judging import judgement
from thothy_ai.jobs.text.locales import script_of

MIN_LATIN_CHARS = 60
Check = Callable[[str], Rejection | None]


@judgement(kept=4096)
def faults(text: str, original: str, task: Task) -> Iterator[Rejection | None]:
    """Faults and doubts of the translation of a passage."""
    yield checks.empty("text", text)
    yield _new(checks.refusal, text, original)
    yield _new(checks.meta_talk, text, original)
    yield _new(checks.unsafe_markup, text, original)
    yield checks.preserved(text, original)
    if not task.same_language:
        yield checks.untranslated(text, original, task.target)
    yield _wrong_language(text, task)
    yield checks.foreign_letters(text, task.given, task.target)
    yield checks.proportion("text", text, original)
    yield checks.numbers_kept(text, original, task.origin, task.target)
    yield checks.contradiction(text, original, task.target)
    yield checks.glossary(text, original, *task.terms_in(original))
    yield checks.address(text, task.formality, task.target)
    if not checks.slip(original, task.origin):
        yield checks.slip(text, task.target)
    if not checks.unfinished("text", original, task.origin):
        yield checks.unfinished("text", text, task.target)
    if not checks.repetition(original, task.origin):
        yield checks.repetition(text, task.target)


def early_checks(original: str, task: Task) -> Early:
    """The checks above whose rejection later text cannot change."""
    names = ["refusal", "meta_talk"]
    if not task.same_language:
        names.append("untranslated_passage")
    if not checks.unsafe_markup(original):
        names.append("unsafe_markup")
    if not checks.repetition(original, task.origin):
        names.append("loop")
    return Early(("text",), tuple(names), original, task.target)


def _wrong_language(text: str, task: Task) -> Rejection | None:
    """Like `wrong_language`, but lenient with a few Latin words and names, which may as well be in a related
    language.
    """
    words = bare(text)
    if script_of(task.target) == "Latn" and len(" ".join(words.split())) < MIN_LATIN_CHARS:
        return checks.surely_foreign(words, task.target)
    return checks.wrong_language(words, task.target)


def _new(check: Check, text: str, original: str) -> Rejection | None:
    """A check's result for the translation, unless the check also rejects the original."""
    found = check(text)
    return None if found and check(original) else found


def faults_of_whole(text: str, task: Task) -> Iterator[Rejection | None]:
    """Faults and doubts of a translation of the task's text, in single units or as a whole."""
    if checks.empty("text", task.text):
        return
    yield task.already_there()
    original, translated = document_of(task.text), document_of(text)
    if not aligned(original, translated):
        yield from faults(text, task.text, task)
        return
    yield checks.preserved(text, task.text)
    yield _wrong_language(text, task)
    yield checks.unknown_words(bare(text), bare(task.text), task.target)
    at = source_at = 0
    for before, after in zip(original.units, translated.units, strict=True):
        found: Sequence[Rejection | None] = (
            faults(after.text, before.text, task)
            if has_words(before.text)
            else (checks.numbers_kept(after.text, before.text, task.origin, task.target),)
        )
        start, source_start = text.find(after.text, at), task.source.find(before.text, source_at)
        yield from (each.moved(start, source_start) for each in found if each)
        at, source_at = max(start, at), max(source_start, source_at)


def aligned(one: Document, other: Document) -> bool:
    """Whether two documents have their units in the same places."""
    return _outline(one) == _outline(other)


def _outline(document: Document) -> list[str | None]:
    return [part.strip() if isinstance(part, str) else None for part in document.parts]
