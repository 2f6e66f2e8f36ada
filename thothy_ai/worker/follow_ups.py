"""The jobs that an accepted artifact asks for. They inherit tenant, priority, deadline and limits from their
parent, and its model unless their kind names one."""

from __future__ import annotations

from uuid_utils.compat import uuid7

from thothy_ai.producer.drafts import Canonical
from thothy_ai.worker.claims import Claim
from thothy_ai.worker.finish import FollowUp


def follow_up(claim: Claim, wanted: Canonical) -> FollowUp:
    """A follow-up of a claimed job."""
    return FollowUp(
        id=uuid7(),
        parent_id=claim.id,
        tenant=claim.tenant,
        kind=wanted.kind,
        priority=claim.priority,
        deadline=claim.deadline,
        source_key=wanted.source_key,
        digest=wanted.digest(claim.tenant),
        max_attempts=claim.max_attempts,
        max_compute_seconds=claim.max_compute_seconds,
        model=wanted.model,
        request=wanted.request,
    )
