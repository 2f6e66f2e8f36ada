"""Lines of `thothy artifacts show` on the provenance of an artifact and its review."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any


def provenance_lines(provenance: Mapping[str, Any] | None) -> Iterator[str]:
    """One line: model, version of the prompts, and seed; none if nothing was recorded."""
    if provenance:
        version, seed = provenance.get("version"), provenance.get("seed")
        yield f"Made by {provenance.get('model') or 'an unknown model'}, prompts {version}, seed {seed}"


def review_lines(review: Mapping[str, Any] | None) -> Iterator[str]:
    """The counts of a review's findings, and one line per statement that is not supported."""
    from thothy_ai.jobs.plans.review import SUPPORTED

    findings = review["findings"] if review else []
    if not findings:
        return
    counts = Counter(finding["finding"] for finding in findings)
    found = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.most_common())
    yield f"Review: {found}"
    for finding in findings:
        if finding["finding"] != SUPPORTED:
            reason = f" ({finding['reason']})" if finding["reason"] else ""
            yield f"  {finding['finding'].replace('_', ' ')}: {finding['statement']}{reason}"
