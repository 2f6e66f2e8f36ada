"""The results of `thothy eval`, one per case and the figures of all cases, written to and read from JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from thothy_ai.engine.api import Usage
from thothy_ai.errors import ThothyError
from thothy_ai.evaluation.run import CaseAttempt
from thothy_ai.jobs.evaluation import scores
from thothy_ai.jobs.evaluation.cases import Case
from thothy_ai.jobs.plans.verification import SUPPORTED
from thothy_ai.plans.drafts import kept_attempt


class ResultsError(ThothyError):
    """A file does not hold the result of an evaluation, or holds that of a different one."""


@dataclass(frozen=True, slots=True)
class CaseResult:
    """One case: its last attempt's output and verdict, and what all attempts used.

    `coverage` and `support` are described in `jobs/evaluation/scores.py`; `verified` is the share of statements that
    the verifying model found supported. They are None where they do not apply. Computed tokens are output tokens and
    uncached prompt tokens. Wasted seconds and tokens belong to attempts that are not kept (`plans/drafts.py`).
    `to_edit` says that a rejected draft is kept for a person.
    """

    id: str
    accepted: bool
    reason: str | None
    detail: str
    attempts: int
    coverage: float | None
    support: float | None
    verified: float | None
    compute_seconds: float
    output_tokens: int
    artifact: Mapping[str, Any] | None
    text: str
    verification_seconds: float = 0.0
    wasted_seconds: float = 0.0
    computed_tokens: int = 0
    wasted_tokens: int = 0
    verification_tokens: int = 0
    saved_tokens: int = 0
    findings: int = 0  # in the last attempt
    to_edit: bool = False


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """An evaluation of one model with one version of a kind's prompts. `chrf` is computed over all translations."""

    name: str
    model: str
    device: str
    kind: str
    prompts: str
    seed: int
    chrf: float | None
    cases: tuple[CaseResult, ...]

    @property
    def accepted(self) -> int:
        """The number of cases whose artifact was accepted."""
        return sum(case.accepted for case in self.cases)

    @property
    def form_yield(self) -> float:
        """The share of cases whose artifact no gate rejects."""
        return self.accepted / len(self.cases)

    @property
    def clean_yield(self) -> float:
        """The share of cases with an artifact in which nothing was found at all."""
        return sum(case.accepted and not case.findings for case in self.cases) / len(self.cases)

    @property
    def to_edit(self) -> int:
        """The number of cases whose best draft is kept for a person to edit."""
        return sum(case.to_edit for case in self.cases)

    @property
    def coverage(self) -> float | None:
        """The mean coverage of the cases that have facts."""
        return _mean(case.coverage for case in self.cases)

    @property
    def support(self) -> float | None:
        """The mean support of the cases whose output makes statements."""
        return _mean(case.support for case in self.cases)

    @property
    def verified(self) -> float | None:
        """The mean share of supported statements in the cases that were verified."""
        return _mean(case.verified for case in self.cases)

    @property
    def verification_share(self) -> float | None:
        """Seconds of verifications over the other seconds of the verified cases."""
        return _added((case.verification_seconds, case.compute_seconds) for case in self.cases)

    @property
    def verification_tokens(self) -> float | None:
        """The same share in computed tokens, which do not depend on the machine."""
        return _added((case.verification_tokens, case.computed_tokens) for case in self.cases)

    @property
    def wasted(self) -> float | None:
        """The share of seconds in attempts that left neither an artifact nor the draft that is kept."""
        return _share((case.wasted_seconds, case.compute_seconds) for case in self.cases)

    @property
    def wasted_tokens(self) -> float | None:
        """The same share in computed tokens."""
        return _share((case.wasted_tokens, case.computed_tokens) for case in self.cases)

    @property
    def compute_seconds(self) -> float:
        """The compute-seconds of all attempts, including rejected ones."""
        return sum(case.compute_seconds for case in self.cases)

    @property
    def seconds_per_accepted(self) -> float | None:
        """Compute-seconds per accepted artifact; None if none was accepted."""
        return self.compute_seconds / self.accepted if self.accepted else None

    @property
    def reasons(self) -> Counter[str]:
        return Counter(case.reason or "unknown" for case in self.cases if not case.accepted)

    def to_json(self) -> dict[str, Any]:
        """Plain values under stable keys: the figures and every case."""
        figures = {
            "accepted": self.accepted,
            "form_yield": self.form_yield,
            "clean_yield": self.clean_yield,
            "to_edit": self.to_edit,
            "coverage": self.coverage,
            "support": self.support,
            "verified": self.verified,
            "verification_share": self.verification_share,
            "verification_share_of_tokens": self.verification_tokens,
            "wasted": self.wasted,
            "wasted_of_tokens": self.wasted_tokens,
            "compute_seconds": self.compute_seconds,
            "compute_seconds_per_accepted": self.seconds_per_accepted,
            "rejected": dict(self.reasons.most_common()),
        }
        return asdict(self) | figures


def case_result(case: Case, attempts: Sequence[CaseAttempt]) -> CaseResult:
    """Score the last attempt's output, accepted or not, and add up what all attempts used."""
    last = attempts[-1]
    judged = last.judgement
    body, claims = judged.body, judged.verification.claims if judged.verification is not None else ()
    used = [attempt.calls.usage for attempt in attempts]
    kept = kept_attempt([attempt.judgement for attempt in attempts])
    wasted = [usage for index, usage in enumerate(used) if index != kept]
    verifying = [attempt.calls.verification_usage for attempt in attempts]
    return CaseResult(
        id=case.id,
        accepted=judged.accepted,
        reason=judged.reason and judged.reason.value,
        detail=judged.detail,
        attempts=len(attempts),
        coverage=scores.coverage(case, body),
        support=scores.support(case, body) if body is not None else None,
        verified=sum(claim.label == SUPPORTED for claim in claims) / len(claims) if claims else None,
        compute_seconds=sum(usage.compute_seconds for usage in used),
        output_tokens=sum(usage.output_tokens for usage in used),
        artifact=body,
        text=last.calls.text,
        verification_seconds=sum(usage.compute_seconds for usage in verifying),
        wasted_seconds=sum(usage.compute_seconds for usage in wasted),
        computed_tokens=sum(map(_computed, used)),
        wasted_tokens=sum(map(_computed, wasted)),
        verification_tokens=sum(map(_computed, verifying)),
        saved_tokens=sum(attempt.calls.saved_tokens for attempt in attempts),
        findings=len(judged.findings),
        to_edit=kept is not None and not judged.accepted,
    )


def _computed(usage: Usage) -> int:
    """The number of tokens that did not come from the prefix cache."""
    return usage.prompt_tokens - usage.cached_tokens + usage.output_tokens


def chrf_of(cases: Sequence[Case], results: Sequence[CaseResult]) -> float | None:
    """The chrF of all cases that have a reference. An output that did not parse counts as empty."""
    return scores.chrf(
        [
            (str((result.artifact or {}).get("text", "")), case.reference)
            for case, result in zip(cases, results, strict=True)
            if case.reference is not None
        ]
    )


def read_result(path: Path, kind: str) -> EvaluationResult:
    """The first result in a file that `--json` wrote. Raises `ResultsError`."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["results"][0]
        known = CaseResult.__slots__
        cases = tuple(CaseResult(**{name: case[name] for name in known if name in case}) for case in found["cases"])
        result = EvaluationResult(
            **{name: found[name] for name in EvaluationResult.__slots__} | {"cases": cases, "name": path.stem}
        )
    except OSError as error:
        raise ResultsError(f"{path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise ResultsError(f"{path} is not a result of `thothy eval --json`") from error
    if result.kind != kind:
        raise ResultsError(f"{path} is about {result.kind}, not {kind}")
    return result


def _added(verifications: Iterable[tuple[float, float]]) -> float | None:
    """The cost of verifications over the rest of their cases' cost. Each pair is a verification and its whole case."""
    return _share((verification, whole - verification) for verification, whole in verifications if verification)


def _share(parts: Iterable[tuple[float, float]]) -> float | None:
    """The sum of the parts over the sum of the wholes. Each pair is a part and its whole."""
    pairs = list(parts)
    whole = sum(of for _, of in pairs)
    return sum(part for part, _ in pairs) / whole if whole > 0 else None


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
