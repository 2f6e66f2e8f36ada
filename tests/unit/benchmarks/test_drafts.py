"""Recorded outputs are written without drafts and with, and none finds a copy of itself to draft from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial

import pytest

from benchmarks.device_model import LLAMA
from benchmarks.drafts.measure import HEADER, Measuring, repeated
from benchmarks.drafts.modelled import ModelledDevice
from benchmarks.drafts.recording import Recorded
from benchmarks.drafts.replaying import Replaying
from tests.support.byte_tokenizer import END, VOCAB, byte_compiler
from thothy_ai.engine.core import loop

LENGTHS = 90, 30, 60
RECORDS = [
    Recorded("hook", "", (number,) * 40, tuple(range(20 + number, 30 + number)) * (length // 10), length, None)
    for number, length in enumerate(LENGTHS)
]


@pytest.fixture
def replaying(monkeypatch: pytest.MonkeyPatch) -> Iterator[Replaying]:
    monkeypatch.setattr(loop, "time", loop.time)  # the device replaces it
    device = ModelledDevice(LLAMA)
    made = Replaying(partial(device.core, VOCAB, END, drafts=True), byte_compiler(), END, device.now)
    yield made
    made.close()


def test_rows_are_full_until_none_is_left_for_the_first_that_ends(replaying: Replaying) -> None:
    replaying.renew(drafts=False)
    replaying.prepare(RECORDS)
    found = replaying.drain(RECORDS, 2)
    assert found.whole.output_tokens == sum(LENGTHS)
    # After 30 tokens of each, the third output takes the second one's row, and ends with the first.
    assert found.full.output_tokens > 80
    assert found.full.output_tokens + found.tail.output_tokens < found.whole.output_tokens  # less the first tokens
    assert found.whole.drafted_tokens == 0
    assert 0 < found.whole.busy_seconds < found.whole.seconds


def test_the_same_engine_drafts_or_does_not(replaying: Replaying) -> None:
    measuring = Measuring(replaying, RECORDS)
    full, tail = measuring.measure("hooks", RECORDS, 2)
    assert len(full) == len(tail) == len(HEADER)
    assert full[:3] == ("hooks", "2", "full")
    assert float(full[HEADER.index("drafts a step")]) > 0  # they repeat themselves
    [alone] = measuring.measure("hooks", RECORDS, 1)
    assert alone[2] == "full"


def test_no_copy_of_an_output_is_of_its_kind() -> None:
    wanted = [each for drain in range(2) for each in repeated(RECORDS, 4, drain)]
    assert len(wanted) > 2 * len(RECORDS)
    assert max(Counter((each.kind, each.tokens) for each in wanted).values()) == 1
    assert sum(len(each.tokens) for each in repeated(RECORDS, 4, 0)) >= 4 * 600
