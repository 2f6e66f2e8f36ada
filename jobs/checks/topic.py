"""What a text is about: another subject than its source, or its own instruction."""

from __future__ import annotations

from thothy_ai.jobs import language as detect
from thothy_ai.jobs.checks.segments import runs, words
from thothy_ai.jobs.verdict import Rejection, RejectionReason


def off_topic(text: str, source: str, locale: str, min_share: float, topic: str | None = None) -> Rejection | None:
    """Reject a text if too small a share of its longer words (compared by prefix) is in the source or the topic.

    Passes if the source is in a language other than that of the locale.
    """
    if not detect.is_in(source[:400], locale):
        return None
    prefixes = {word[:5] for word in words(text, locale) if len(word) >= 5}
    known = {word[:5] for word in words(f"{source} {topic or ''}", locale)}
    share = len(prefixes & known) / max(len(prefixes), 1)
    if not prefixes or share >= min_share:
        return None
    return Rejection(RejectionReason.OFF_TOPIC, f"only {share:.0%} of its longer words are in the source")


def echo(text: str, instruction: str) -> Rejection | None:
    """Reject a text that repeats six consecutive words of the instruction."""
    known = f" {' '.join(words(instruction))} "
    found = next((run for run in map(" ".join, runs(words(text), 6)) if f" {run} " in known), None)
    return Rejection(RejectionReason.PROMPT_ECHO, f"repeats the instruction: {found!r}") if found else None
