"""A call that asks for a webhook makes a batch: what may be asked for, and its row. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from uuid_utils.compat import uuid7

from thothy_ai.db.states import Notify
from thothy_ai.errors import InvalidJobError
from thothy_ai.queue.drafts import Draft

MAX_URL_LENGTH = 2000
SCHEMES = ("http", "https")


@dataclass(frozen=True, slots=True)
class BatchDraft:
    """A batch, ready to be inserted with its jobs."""

    id: UUID
    url: str
    notify: Notify

    def row(self, tenant: str, jobs: int) -> dict[str, Any]:
        """Parameters of the statement `producer/batch`."""
        return {"id": str(self.id), "tenant": tenant, "url": self.url, "notify": self.notify, "jobs": jobs}


def draft_batch(webhook: str | None, notify: str) -> BatchDraft | None:
    """The batch that this webhook makes; None without one. Raises `InvalidJobError`."""
    try:
        wanted = Notify(notify)
    except ValueError:
        raise InvalidJobError("notify", f"{notify!r} is neither 'job' nor 'batch'") from None
    if webhook is None and wanted is not Notify.BATCH:  # the default is also that of calls without a webhook
        raise InvalidJobError("notify", "needs a webhook, the URL to notify")
    return None if webhook is None else BatchDraft(uuid7(), checked_url(webhook), wanted)


def draft_one(webhook: str | None) -> BatchDraft | None:
    """The batch of a single job, whose end is told to this webhook; None without one. Raises `InvalidJobError`."""
    return None if webhook is None else draft_batch(webhook, Notify.JOB)


def checked_url(url: object) -> str:
    """The URL of a webhook. Where it leads is checked when it is called. Raises `InvalidJobError`."""
    if not isinstance(url, str) or not 0 < len(url) <= MAX_URL_LENGTH:
        raise InvalidJobError("webhook", f"must be a URL of 1 to {MAX_URL_LENGTH} characters")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise InvalidJobError("webhook", "must be printable ASCII without spaces: percent-encode other characters")
    try:
        parts = urlsplit(url)
        _ = parts.port  # reading the port validates it
    except ValueError:
        raise InvalidJobError("webhook", "is not a URL") from None
    if parts.scheme not in SCHEMES or not parts.hostname:
        raise InvalidJobError("webhook", "must look like https://host/path")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise InvalidJobError("webhook", "must have no user, no password and no fragment")
    return parts.geturl()  # with a lower-case scheme


def inserted(drafts: Sequence[Draft]) -> int:
    """How many of these drafts became jobs."""
    return len({draft.id for draft in drafts if not draft.existed})
