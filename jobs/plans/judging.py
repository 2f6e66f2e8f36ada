"""Judgements: the results of checks, the rejection among them, and the verdict.

A plan is replayed at each step, so judgements are cached.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, wraps
from typing import Any, ParamSpec, cast

from thothy_ai.jobs.api.artifact import Artifact
from thothy_ai.jobs.api.verdict import Finding, Place, Rejection, Verdict, Verification, printable
from thothy_ai.jobs.checks.gates import is_gate, precision

P = ParamSpec("P")
Checks = Callable[P, Iterator[Rejection | None]]
Judgement = Callable[P, tuple[Rejection, ...]]


def judgement(kept: int) -> Callable[[Checks[P]], Judgement[P]]:
    """Decorates a generator of checks: returns all results as a tuple, and caches the last `kept` of these."""

    def decorated(checks: Checks[P]) -> Judgement[P]:
        @wraps(checks)
        def judged(*args: P.args, **kwargs: P.kwargs) -> tuple[Rejection, ...]:
            return tuple(filter(None, checks(*args, **kwargs)))

        return cast("Judgement[P]", lru_cache(kept)(judged))

    return decorated


def gate_in(found: Iterable[Rejection | None], locale: str) -> Rejection | None:
    """The first rejection by a gate, if any."""
    return next((each for each in found if each and is_gate(each.reason, locale)), None)


def worst(found: Iterable[Rejection | None], locale: str) -> Rejection | None:
    """The first rejection by a gate or, without one, the first of all; None if there are no faults."""
    given = list(filter(None, found))
    return gate_in(given, locale) or next(iter(given), None)


def severity(found: Iterable[Rejection], locale: str) -> tuple[int, float]:
    """How bad a draft is, for comparison: the number of gates that reject it, then the summed precision of
    all results.
    """
    given = list(found)
    return sum(is_gate(each.reason, locale) for each in given), sum(precision(each.reason, locale) for each in given)


def severity_of(judged: Verdict) -> tuple[bool, bool, float]:
    """How bad the verdict on a text is, for comparison: rejected or not, unreadable or not, and the weight of its
    findings.
    """
    return not judged.accepted, judged.artifact is None, sum(finding.weight for finding in judged.findings)


def verdict(
    artifact: Artifact,
    found: Iterable[Rejection | None],
    locale: str,
    verification: Verification | None = None,
    doubts: Sequence[Finding] = (),
) -> Verdict:
    """The verdict on an artifact, from the results of checks and the doubts of verification. Any gate rejects it."""
    given = list(dict.fromkeys(filter(None, found)))
    findings = (*findings_of(given, artifact.model_dump(mode="json"), locale), *doubts)
    gate = gate_in(given, locale)
    if gate is None:
        return Verdict.accept(artifact, verification, findings)
    return Verdict.reject(gate, artifact, verification, findings)


def findings_of(found: Iterable[Rejection], values: Mapping[str, Any], locale: str) -> tuple[Finding, ...]:
    """The results of checks as findings, located in an artifact's values; without a span, a finding covers its whole
    part.
    """
    return tuple(
        Finding(each.reason, printable(each.detail), _place(each, values), each.source, precision(each.reason, locale))
        for each in found
    )


def _place(rejection: Rejection, values: Mapping[str, Any]) -> Place | None:
    if not rejection.part:
        return None
    value: Any = values
    for step in rejection.part.split("."):
        try:
            value = value[int(step) if isinstance(value, Sequence) else step]
        except (KeyError, IndexError, ValueError, TypeError):
            value = ""  # the part is missing
    return Place(rejection.part, *(rejection.span or (0, len(value) if isinstance(value, str) else 0)))
