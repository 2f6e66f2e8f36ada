"""Near-duplicates of other texts, and signatures (MinHash in bands) to look for them in a database."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from thothy_ai.jobs.verdict import Rejection, RejectionReason

_BANDS, _ROWS, _SHINGLE = 16, 4, 5


def near_duplicate(text: str, others: Iterable[str]) -> Rejection | None:
    """Reject a text that shares most of its five-character shingles with another one."""
    mine = _shingles(text)
    for other in others:
        theirs = _shingles(other)
        if len(mine & theirs) > 0.7 * len(mine | theirs):
            return Rejection(RejectionReason.NEAR_DUPLICATE, f"nearly the same as {other[:80]!r}")
    return None


def signature(text: str) -> tuple[int, ...]:
    """Sixteen signed 64-bit integers; two texts that are nearly the same have some of them in common."""
    hashes = [_hash(shingle) for shingle in _shingles(text)] or [0]
    return tuple(
        _signed(hash(tuple(min(each ^ _hash(f"{band}.{row}") for each in hashes) for row in range(_ROWS))))
        for band in range(_BANDS)
    )


def _shingles(text: str) -> set[str]:
    plain = " ".join("".join(char if char.isalnum() else " " for char in text.casefold()).split())
    return {plain[start : start + _SHINGLE] for start in range(max(1, len(plain) - _SHINGLE + 1))}


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest())


def _signed(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63
