"""Which follow-ups a version that stands has made, and which it supersedes."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from thothy_ai.queue.follow_ups import settled


def made(digests: str, *, of_this_version: bool = False) -> list[dict[str, Any]]:
    return [
        {"id": UUID(int=number), "digest": digest, "of_this_version": of_this_version}
        for number, digest in enumerate(digests)
    ]


@pytest.mark.parametrize(
    ("asked", "earlier", "new", "stale"),
    [
        ("ab", "", "ab", []),
        ("ab", "ab", "", []),
        ("ab", "ac", "b", [1]),
        ("aab", "a", "ab", []),
        ("a", "aa", "", [1]),
        ("", "ab", "", [0, 1]),
    ],
)
def test_follow_ups_are_those_that_the_version_asks_for(asked: str, earlier: str, new: str, stale: list[int]) -> None:
    rows = [{"digest": digest} for digest in asked]
    inserted, superseded = settled(rows, made(earlier))
    assert "".join(row["digest"] for row in inserted) == new
    assert superseded == [UUID(int=number) for number in stale]


def test_those_of_this_version_are_not_made_again_but_are_superseded_if_it_is_rejected() -> None:
    assert settled([{"digest": "b"}], made("a", of_this_version=True)) == ([], [])
    assert settled([], made("a", of_this_version=True)) == ([], [UUID(int=0)])
