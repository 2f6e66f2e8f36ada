"""Markup: what a translation must keep of its original's, and what no publishable text may contain."""

from __future__ import annotations

import re

from thothy_ai.jobs.verdict import Rejection, RejectionReason

_PLACEHOLDER = re.compile(r"\{\{?[\w.]+\}?\}|%\(\w+\)[sd]|%[sd]\b|\$\{\w+\}")
_LINK = re.compile(r"https?://[^\s)\]>\"']+")
_UNSAFE = re.compile(r"<\s*(?:script|iframe|object|embed|style)\b|javascript:|\bon\w+\s*=\s*[\"']", re.IGNORECASE)


def preserved(text: str, original: str) -> Rejection | None:
    """Reject a translation that loses a placeholder, link or line break."""
    for pattern in (_PLACEHOLDER, _LINK):
        for token in pattern.findall(original):
            if token not in text:
                return Rejection(RejectionReason.PLACEHOLDER_LOST, f"{token!r} is lost")
    if original.count("\n\n") != text.count("\n\n"):
        return Rejection(RejectionReason.PLACEHOLDER_LOST, "paragraphs are lost or added")
    return None


def unsafe_markup(text: str) -> Rejection | None:
    """Reject scripts, event handlers and `javascript:` links."""
    found = _UNSAFE.search(text)
    return Rejection(RejectionReason.UNSAFE_MARKUP, f"contains {found[0]!r}") if found else None
