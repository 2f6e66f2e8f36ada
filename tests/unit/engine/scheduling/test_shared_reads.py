"""Whatever comes, shares and goes: attention finds in each block what was written for those who read."""

from __future__ import annotations

import random
from collections import deque

import pytest

from thothy_ai.engine.api import FinishReason, SamplingParams
from thothy_ai.engine.api.core import CoreRequest
from thothy_ai.engine.api.limits import EngineConfig
from thothy_ai.engine.scheduling import prefix_groups
from thothy_ai.engine.scheduling.scheduler import Scheduler
from thothy_ai.engine.scheduling.sequence import Sequence
from thothy_ai.engine.scheduling.step_builder import ScheduledStep

SIZE, SAMPLED = 2, 7


def request(number: int, draw: random.Random) -> Sequence:
    prompt = [50 * draw.randrange(2) + place for place in range(draw.choice([6, 10, 14, 20, 24]))]
    prompt += [1000 + number] * draw.randrange(2)
    max_tokens = draw.choice([1, 3, 8, 16, 20])
    return Sequence(CoreRequest(str(number), tuple(prompt), SamplingParams(max_tokens=max_tokens)), max_tokens)


def text(sequence: Sequence, end: int) -> tuple[int, ...]:
    """Its first tokens, those included that are sampled and not read."""
    return tuple([*sequence.tokens, *[SAMPLED] * end][:end])


class Device:
    """What each place of each block holds: the KV of a group of layers for the last of some tokens."""

    def __init__(self, windows: tuple[int | None, ...]) -> None:
        self._windows = windows
        self._written = dict[tuple[int, int], tuple[int, tuple[int, ...]]]()
        self.shared = 0  # prefixes that several members read together

    def compute(self, scheduled: ScheduledStep) -> None:
        starts, counts = scheduled.step.starts.tolist(), scheduled.step.counts.tolist()
        for sequence, start, count in zip(scheduled.members, starts, counts, strict=True):
            for place in range(start, start + count):
                for group, table in enumerate(sequence.tables):
                    self._written[table[place // SIZE], place % SIZE] = group, text(sequence, place + 1)
        for sequence, start, count in zip(scheduled.members, starts, counts, strict=True):
            self._read(sequence, start, start + count, sequence.tables)
        for first, size, length in zip(*(column.tolist() for column in scheduled.step.groups), strict=True):
            self.shared += 1
            members = scheduled.members[first : first + size]
            for sequence, start in zip(members, starts[first : first + size], strict=True):
                for other in members:
                    self._read(sequence, start, length, other.tables)

    def _read(self, sequence: Sequence, start: int, end: int, tables: list[list[int]]) -> None:
        """All that its token at `start` sees, up to `end`, in these blocks."""
        for group, (window, table) in enumerate(zip(self._windows, tables, strict=True)):
            for place in range(0 if window is None else max(0, start + 1 - window), end):
                assert self._written[table[place // SIZE], place % SIZE] == (group, text(sequence, place + 1))


def end(scheduled: ScheduledStep, scheduler: Scheduler) -> None:
    """Read a step's results."""
    for sequence, samples in zip(scheduled.members, scheduled.step.samples, strict=True):
        sequence.in_flight -= 1
        if samples:
            sequence.pending -= 1
            if sequence.finish_reason is None:
                sequence.tokens.append(SAMPLED)
        if sequence.output_tokens >= sequence.max_tokens:
            sequence.finish(FinishReason.LENGTH)
        if sequence.finish_reason is not None and not sequence.in_flight:
            scheduler.retire(sequence)


@pytest.mark.parametrize("unread", [0, 1])
@pytest.mark.parametrize("windows", [(None,), (None, 6), (None, None, 6, 6), (8, 8, 3)])
def test_members_read_what_was_written_for_them(
    windows: tuple[int | None, ...], unread: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefix_groups, "_MIN_TOKENS", SIZE)
    draw, device, steps = random.Random(3), Device(windows), deque[ScheduledStep]()
    config = EngineConfig(
        block_size=SIZE, num_blocks=1 + 25 * len(windows), max_rows=8, token_budget=24, max_context=60,
        windows=windows, group_rows=4,
    )  # fmt: skip
    scheduler = Scheduler(config)
    for number in range(500):
        if scheduler.waiting < 6 and draw.random() < 0.4:
            scheduler.add(request(number, draw))
        scheduled = scheduler.schedule()
        if scheduled is not None:
            device.compute(scheduled)
            steps.append(scheduled)
        while len(steps) > (unread if scheduled is not None else 0):
            end(steps.popleft(), scheduler)
        scheduler.check()
    assert device.shared
