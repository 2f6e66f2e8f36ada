"""The jobs that an accepted artifact asks for: of the same tenant, priority and deadline as their parent."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from thothy_ai.jobs import Request
from thothy_ai.queue.drafts import EnqueueOptions, draft
from thothy_ai.settings import Settings
from thothy_ai.worker.claims import Claim


@dataclass(frozen=True, slots=True)
class FollowUp:
    """One job to insert beside its parent's artifact. `request` is canonical JSON."""

    id: UUID
    parent_id: UUID
    tenant: str
    kind: str
    priority: int
    deadline: datetime | None
    source_key: str
    digest: str
    max_attempts: int
    request: str

    def row(self) -> dict[str, Any]:
        """What the statement `follow_ups` reads; the request's JSON travels as text inside JSON."""
        fields = ("tenant", "kind", "priority", "source_key", "digest", "max_attempts", "request")
        deadline = self.deadline.isoformat() if self.deadline else None
        ids = {"id": str(self.id), "parent_id": str(self.parent_id)}
        return ids | {"deadline": deadline} | {name: getattr(self, name) for name in fields}


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
