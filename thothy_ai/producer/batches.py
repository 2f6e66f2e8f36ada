"""A call with a webhook makes a batch: its checks, and its row. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from uuid_utils.compat import uuid7

from thothy_ai.db.states import Notify
from thothy_ai.errors import InvalidJobError
from thothy_ai.queue.webhooks.addresses import checked_url


@dataclass(frozen=True, slots=True)
class BatchDraft:
    """A batch, ready to be inserted with its jobs, unless it is `recorded` elsewhere."""

    id: UUID
    url: str | None = None
    notify: Notify = Notify.BATCH
    recorded: bool = False

    def row(self, jobs: int) -> dict[str, Any]:
        """Parameters of the statement `producer/batch`, except the tenant."""
        return {"id": str(self.id), "url": self.url, "notify": self.notify, "jobs": jobs}


def draft_batch(webhook: str | None, notify: str, batch: UUID | bool = False) -> BatchDraft | None:
    """The batch for this webhook, a batch without webhook, or the caller's; None for no batch. Raises
    `InvalidJobError`.
    """
    try:
        wanted = Notify(notify)
    except ValueError:
        raise InvalidJobError("notify", f"{notify!r} is neither 'job' nor 'batch'") from None
    if isinstance(batch, UUID):
        return BatchDraft(batch, recorded=True)
    if webhook is None and wanted is not Notify.BATCH:  # calls without a webhook have the default
        raise InvalidJobError("notify", "needs a webhook, the URL to notify")
    if webhook is None:
        return BatchDraft(uuid7()) if batch else None
    return BatchDraft(uuid7(), checked_url(webhook), wanted)


def draft_one(webhook: str | None) -> BatchDraft | None:
    """The batch of a single job whose end notifies this webhook; None without a webhook. Raises `InvalidJobError`."""
    return None if webhook is None else draft_batch(webhook, Notify.JOB)
