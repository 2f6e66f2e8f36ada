"""Lines of `thothy artifacts show` on the provenance of an artifact and its verification."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any


def provenance_lines(provenance: Mapping[str, Any] | None) -> Iterator[str]:
    """One line: model, adapter, version of the prompts, and seed; none if nothing was recorded."""
    if provenance:
        version, seed = provenance.get("version"), provenance.get("seed")
        adapter = ""
        if of := provenance.get("adapter"):  # a third-party server gives no digest
            adapter = f" with the adapter {of['name']}" + (f" ({of['digest'][:12]})" if of["digest"] else "")
        yield f"Made by {provenance.get('model') or 'an unknown model'}{adapter}, prompts {version}, seed {seed}"


def verification_lines(verification: Mapping[str, Any] | None) -> Iterator[str]:
    """The counts of a verification's labels, and one line per claim that is not supported."""
    from thothy_ai.jobs.plans.verification import SUPPORTED
    from thothy_ai.producer.decisions import verifier_named

    claims = verification["claims"] if verification else []
    if not claims:
        return
    counts = Counter(claim["label"] for claim in claims)
    found = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.most_common())
    yield f"Verification by {verifier_named(verification or {})}: {found}"
    for claim in claims:
        if claim["label"] != SUPPORTED:
            cited = f" (the source: {claim['evidence']})" if claim["evidence"] else ""
            yield f"  {claim['label'].replace('_', ' ')}: {claim['claim']}{cited}"
