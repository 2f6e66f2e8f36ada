"""Philox against the known answers that its authors publish (Random123, kat_vectors)."""

from __future__ import annotations

import pytest
import torch

from thothy_ai.kernels.reference.philox import philox, token_words, vocabulary_words

KNOWN_ANSWERS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(text: str) -> list[int]:
    return [int(word, 16) for word in text.split()]


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN_ANSWERS)
def test_known_answers(counter: str, key: str, answer: str) -> None:
    c0, c1, c2, c3 = (torch.tensor([word]) for word in words(counter))
    k0, k1 = (torch.tensor([word]) for word in words(key))
    assert [int(word) for word in philox((c0, c1, c2, c3), (k0, k1))] == words(answer)


def test_words_of_chosen_tokens_are_those_of_the_whole_vocabulary() -> None:
    seeds = torch.tensor([0, 7, 2**63 - 1, 2**40 + 3])
    positions = torch.tensor([0, 1, 40_000, 12])
    whole = vocabulary_words(seeds, positions, 103)
    draw = torch.Generator().manual_seed(1)
    tokens = torch.stack([torch.randperm(103, generator=draw)[:31] for _ in range(4)])
    assert whole.shape == (4, 103)
    assert torch.equal(token_words(seeds, positions, tokens), whole.gather(1, tokens))


def test_every_part_of_the_key_and_the_counter_matters() -> None:
    seeds = torch.tensor([5, 5, 5 + 2**32, 6])
    positions = torch.tensor([9, 10, 9, 9])
    rows = vocabulary_words(seeds, positions, 64)
    assert len({tuple(row.tolist()) for row in rows}) == 4
