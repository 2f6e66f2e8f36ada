"""The sampling seed of an attempt."""

from __future__ import annotations

from hashlib import sha256
from uuid import UUID


def attempt_seed(job_id: UUID, attempt: int) -> int:
    """63 bits for sampling: the same for the same attempt wherever it runs, different for a retry."""
    return int.from_bytes(sha256(f"{job_id}.{attempt}".encode()).digest()[:8]) >> 1
