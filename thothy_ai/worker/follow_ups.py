"""The jobs that an accepted artifact asks for. They inherit tenant, priority and deadline from their parent."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from thothy_ai.jobs import Request
from thothy_ai.queue.drafts import EnqueueOptions, draft
from thothy_ai.settings import Settings
from thothy_ai.worker.claims import Claim
from thothy_ai.worker.finish import FollowUp


def drafted(claim: Claim, requests: Iterable[Request], settings: Settings) -> tuple[FollowUp, ...]:
    """The follow-ups of a claimed job. Raises `InvalidJobError` when one cannot be queued."""
    of_tenant = settings.model_copy(update={"tenant": claim.tenant})
    options = EnqueueOptions(priority=claim.priority, max_attempts=claim.max_attempts)
    return tuple(_drafted(claim, request, options, of_tenant) for request in requests)


def _drafted(claim: Claim, request: Request, options: EnqueueOptions, settings: Settings) -> FollowUp:
    job = draft(request, options, settings, datetime.now(UTC))
    return FollowUp(
        id=job.id,
        parent_id=claim.id,
        tenant=claim.tenant,
        kind=job.kind,
        priority=claim.priority,
        deadline=claim.deadline,
        source_key=job.source_key,
        digest=job.digest,
        max_attempts=claim.max_attempts,
        request=job.request,
    )
