"""Whatever the scheduler plans, each member of a recurrent model begins with the state of its own tokens."""

from __future__ import annotations

import random

import pytest

from thothy_ai.engine.api import FinishReason, SamplingParams
from thothy_ai.engine.api.adapters import Adapter
from thothy_ai.engine.api.core import CoreRequest
from thothy_ai.engine.api.errors import EngineError
from thothy_ai.engine.api.limits import EngineConfig
from thothy_ai.engine.api.step import NOT_KEPT
from thothy_ai.engine.scheduling.scheduler import Scheduler
from thothy_ai.engine.scheduling.sequence import Sequence
from thothy_ai.engine.scheduling.step_builder import ScheduledStep

SEEDS = 300
DRAWN = 7  # the token that is always drawn

State = tuple[object, ...]  # the tokens that made it


class Device:
    """Slots whose states are the tokens that they were computed from."""

    def __init__(self, config: EngineConfig) -> None:
        self._config, self._slots = config, dict[int, State]()

    def run(self, scheduled: ScheduledStep) -> None:
        step, members = scheduled.step, scheduled.step.num_members
        assert step.num_tokens <= self._config.token_budget
        assert members <= self._config.max_members
        assert sorted(scheduled.order.tolist()) == list(range(members))
        self._copy(zip(step.restored.sources.tolist(), step.restored.targets.tolist(), strict=True))
        keeps = step.keeps.tolist() or [NOT_KEPT] * members
        kept = [slot for slot in keeps if slot != NOT_KEPT]
        assert len({*kept}) == len(kept)
        assert min(kept, default=self._config.max_rows + 1) > self._config.max_rows
        rows, starts, ends = step.rows.tolist(), step.starts.tolist(), step.ends.tolist()
        for sequence, row, start, end, slot in zip(scheduled.members, rows, starts, ends, keeps, strict=True):
            known = [token(sequence, position) for position in range(end)]
            assert start == 0 or self._slots[row] == tuple(known[:start]), (sequence.request.id, start)
            self._slots[row] = tuple(known)
            if slot != NOT_KEPT and end - start > 1:
                self._slots[slot] = self._slots[row]
            assert rows.count(row) == 1 or end - start > 1 or start >= sequence.prompt_tokens
        self._copy(zip(step.kept_after.sources.tolist(), step.kept_after.targets.tolist(), strict=True))

    def _copy(self, copies: zip[tuple[int, int]]) -> None:
        for source, target in copies:
            self._slots[target] = self._slots[source]


def token(sequence: Sequence, position: int) -> object:
    """A token with all that its state depends on."""
    adapted = sequence.branch.digest if position >= sequence.adapted_from else ""
    known = sequence.tokens[position] if position < len(sequence.tokens) else DRAWN
    return sequence.request.salt, adapted, known


def some(draw: random.Random, *lengths: int) -> tuple[int, ...]:
    return tuple(draw.choices(range(50), k=draw.choice(lengths)))


def jobs(draw: random.Random, block_size: int) -> list[Sequence]:
    """Siblings of three sources, some with parts in common after the source, of several priorities and adapters."""
    sources = [some(draw, 1, 16, 31, 32, 33, 64, 65, 96, 128) for _ in range(3)]
    kinds = [some(draw, 0, 15, 16, 17, 32, 64) for _ in range(3)]
    priorities, salts = draw.choice([(0,), (0, 0, 5, 1000)]), draw.choice([("",), ("", "other")])
    adapters = draw.choice([(), (Adapter(1, "one", (3,)), Adapter(2, "two", ()))])
    made = []
    for number in range(draw.choice([3, 10, 40])):
        prompt = draw.choice(sources) + draw.choice(kinds) + some(draw, 1, 2, 5, 30)
        sampling = SamplingParams(max_tokens=draw.choice([1, 2, 5, 20]))
        request = CoreRequest(
            f"{number}", prompt, sampling, draw.choice("ab"), draw.choice(salts), draw.choice(priorities)
        )
        sequence = Sequence(request, max_tokens=sampling.max_tokens)
        if adapters and draw.random() < 0.5:
            try:
                sequence.adapt(draw.choice(adapters), block_size)
            except EngineError:  # the prompt does not activate it
                continue
        made.append(sequence)
    return made


def read(scheduler: Scheduler, scheduled: ScheduledStep, left: set[Sequence], draw: random.Random) -> None:
    for sequence, _ in scheduled.sampling_members:
        sequence.pending -= 1
        sequence.tokens.append(DRAWN)
        if sequence.output_tokens >= sequence.max_tokens or draw.random() < 0.05:
            sequence.finish(FinishReason.STOP)
    for sequence in scheduled.members:
        sequence.in_flight -= 1
        if sequence.finish_reason is not None and not sequence.in_flight and sequence in left:
            scheduler.retire(sequence)
            left.remove(sequence)


@pytest.mark.parametrize("some_seeds", range(4))
def test_every_member_begins_with_the_state_of_its_own_tokens(some_seeds: int) -> None:
    for seed in range(some_seeds, SEEDS, 4):
        draw = random.Random(seed)
        size = draw.choice([1, 2, 8, 16, 32])
        config = EngineConfig(
            block_size=size,
            num_blocks=draw.choice([600, 1500, 6000]) // size + 2,
            max_rows=draw.choice([1, 2, 3, 8]),
            token_budget=draw.choice([1, 2, 3, 17, 64, 95, 96, 97, 130, 1000]),
            max_context=300,
            recurrent=True,
            kept_states=draw.choice([0, 1, 2, 3, 9]),
            adapter_slots=draw.choice([1, 2]),
            graphs=draw.random() < 0.5,
            group_rows=draw.choice([1, 8]),
        )
        scheduler, device, waiting = Scheduler(config), Device(config), jobs(draw, size)
        left, unread, most = {*waiting}, list[ScheduledStep](), int(draw.random() < 0.5)
        while left:
            while waiting and draw.random() < 0.6:
                scheduler.add(waiting.pop())
            begun = sorted(left.difference(waiting), key=lambda each: each.arrival)
            if begun and draw.random() < 0.05:
                aborted = draw.choice(begun)
                aborted.finish(FinishReason.ABORTED)
                if not aborted.in_flight:
                    scheduler.retire(aborted)
                    left.remove(aborted)
            scheduled = scheduler.schedule()
            assert scheduled is not None or unread or waiting or not left, f"seed {seed}: nothing goes on"
            if scheduled is not None:
                device.run(scheduled)
                unread.append(scheduled)
            while len(unread) > (most if scheduled is not None else 0):
                read(scheduler, unread.pop(0), left, draw)
        scheduler.check()
