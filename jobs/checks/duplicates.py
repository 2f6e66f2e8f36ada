"""Near-duplicates of other texts, and signatures to look for them in a database.

A text is the set of its five-character shingles. A signature is their MinHash, by one permutation: Li, Owen and Zhang,
"One Permutation Hashing" (2012), with empty bins filled as by Shrivastava and Li, "Densifying One Permutation Hashing
via Rotation" (2014). It is cut into bands, and texts that are nearly the same have a band in common.
"""

from __future__ import annotations

from collections.abc import Iterable
from zlib import crc32

from rapidfuzz import fuzz

from thothy_ai.jobs.api.verdict import Rejection, RejectionReason
from thothy_ai.jobs.checks.copying import normalized

BANDS = 16  # with four rows each: 99.9 % of pairs that share 80 % of their shingles have a band in common, 12 % at 30 %
_ROWS = 4
_SHINGLE = 5  # characters
_MAX_SHARED = 0.6  # of the shingles of both texts together
_MAX_CONTAINED = 0.8  # of the smaller text's shingles
_MIN_SHINGLES = 40  # with fewer, one text contains another by chance
_SHORT, _MIN_LIKENESS = 120, 88.0  # characters, per cent
_MASK = 2**64 - 1


def near_duplicate(text: str, others: Iterable[str]) -> Rejection | None:
    """Reject a text that shares more than 60 % of its shingles with another one, or nearly contains it."""
    mine = _shingles(text)
    for other in others:
        theirs = _shingles(other)
        shared, smaller = len(mine & theirs), min(len(mine), len(theirs))
        contains = smaller >= _MIN_SHINGLES and shared > _MAX_CONTAINED * smaller
        share_most = shared > _MAX_SHARED * (len(mine) + len(theirs) - shared)
        # Shingles say little about short texts, which may differ in a few characters.
        short = max(len(text), len(other)) <= _SHORT and normalized(text) and normalized(other)
        is_variant = short and fuzz.ratio(normalized(text), normalized(other)) >= _MIN_LIKENESS
        if contains or share_most or is_variant:
            return Rejection(RejectionReason.NEAR_DUPLICATE, f"nearly the same as {other[:80]!r}")
    return None


def signature(text: str) -> tuple[int, ...]:
    """`BANDS` signed 64-bit integers. Nearly identical texts have at least one in common."""
    # The smallest hash in each bin; an empty bin takes the hash of the next full bin, changed by their distance.
    count = BANDS * _ROWS
    found: list[int | None] = [None] * count
    for shingle in _shingles(text) or {""}:
        value = _mixed(crc32(shingle.encode("utf-8", "surrogatepass")))
        position, rest = value % count, value // count
        held = found[position]
        found[position] = rest if held is None else min(held, rest)
    bins: list[int] = []
    for position in range(count):
        distance = next(step for step in range(count) if found[(position + step) % count] is not None)
        bins.append((found[(position + distance) % count] or 0) + distance * 0x9E3779B97F4A7C15)
    bands = []
    for number in range(BANDS):
        band = number
        for row in bins[number * _ROWS : (number + 1) * _ROWS]:
            band = _mixed((band ^ row) & _MASK)
        bands.append(band - 2**64 if band >= 2**63 else band)
    return tuple(bands)


def _shingles(text: str) -> set[str]:
    plain = normalized(text)
    return {plain[start : start + _SHINGLE] for start in range(max(1, len(plain) - _SHINGLE + 1))} if plain else set()


def _mixed(value: int) -> int:
    """The finalizer of splitmix64, a bijection that spreads 32 bits over 64."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
