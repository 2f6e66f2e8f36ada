"""Texts that are no answer: a refusal, talk about the text or the task, and obedience to the source."""

from __future__ import annotations

import re

from thothy_ai.jobs.verdict import Rejection, RejectionReason

_REFUSAL = re.compile(
    r"\bas an ai\b|\bi(?:'m| am) (?:sorry|unable)\b|\bi (?:cannot|can't|can’t) (?:help|assist|provide|comply|fulfil)"
    r"|\bals (?:eine )?ki\b|\ben tant qu['’]ia\b",
    re.IGNORECASE,
)
_META = re.compile(
    r"\b(?:the|this) (?:text|article|passage|source|document) (?:above )?"
    r"(?:discusses|describes|explains|is about|talks about|explores|highlights)"
    r"|\bder text (?:beschreibt|handelt|behandelt|erklärt)|\ble texte (?:décrit|explique|parle)",
    re.IGNORECASE,
)


def refusal(text: str) -> Rejection | None:
    """Reject a refusal, such as "As an AI, I cannot ..."."""
    found = _REFUSAL.search(text)
    return Rejection(RejectionReason.REFUSAL, f"refuses: {found[0]!r}") if found else None


def meta_talk(text: str) -> Rejection | None:
    """Reject talk about the text or the task, such as "The text discusses ..."."""
    found = _META.search(text)
    return Rejection(RejectionReason.META_TALK, f"talks about the text: {found[0]!r}") if found else None


def obeys_source(text: str, source: str) -> Rejection | None:  # noqa: ARG001
    """Reject a text that follows an instruction in its source."""
    return None
