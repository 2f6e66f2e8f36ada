"""Builds one step, member by member, with the tokens and blocks of its sequences that the device lacks.

A sampled token is never sent, since the device writes it to its row. Everything else that a sequence gains (its prompt,
forced tokens, blocks) is sent with the sequence's next step. A sequence that starts, or starts again after a
preemption, gets a new row, to which everything is sent.

CUDA graphs support only single-token members. If grammars have forced a few more tokens, each of them becomes a member
of its own. This is correct because each layer writes all of a step's KV before it reads any, so that a token finds the
KV of the tokens before it, whether or not they belong to the same member.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from functools import cached_property
from itertools import compress
from operator import add

import numpy as np
from numpy.typing import NDArray

from thothy_ai.engine.api.step import (
    NO_ADAPTER,
    NO_GROUPS,
    NO_UPDATES,
    NOT_KEPT,
    AdapterCopies,
    Groups,
    Int32,
    RowBiases,
    RowUpdates,
    Start,
    StartedRows,
    StateCopies,
    Step,
)
from thothy_ai.engine.scheduling.drafting.drafts import DraftedTokens
from thothy_ai.engine.scheduling.kv_budget import KVBudget
from thothy_ai.engine.scheduling.prefix_groups import PrefixGroup, PrefixGroups
from thothy_ai.engine.scheduling.sequence import Sequence

_MAX_SPLIT = 128  # tokens; each one reads its sequence's KV again
# sequence, row, start, count, samples, prefill; a plain tuple is fast, and a step can have a thousand
_Member = tuple[Sequence, int, int, int, bool, bool]


@dataclass(frozen=True, eq=False)
class ScheduledStep:
    """A step with the sequence of each member; a sequence can have several members.

    `prefill` [N] bool: the member's tokens begin inside its prompt. `admitted`: the sequences that start, or start
    again, in this step. `planned`: the sequences in the order of planning; a sequence comes after those whose KV it
    reads. `drafts`: the drafts by sequence; each drafted token is a member. `weighed`: the numbers of the blocks that
    the step weighs, each with the budget of their sequence.
    """

    step: Step
    members: tuple[Sequence, ...]
    prefill: NDArray[np.bool_]
    admitted: tuple[Sequence, ...]
    planned: Seq[Sequence] = ()
    drafts: Mapping[Sequence, DraftedTokens] = field(default_factory=dict)
    weighed: Seq[tuple[KVBudget, range]] = ()

    @property
    def order(self) -> Int32:
        """The members' places in the step [N], in the sequences' order of planning."""
        places: dict[Sequence, list[int]] = defaultdict(list)
        for place, sequence in enumerate(self.members):
            places[sequence].append(place)
        return np.array([place for sequence in self.planned for place in places[sequence]], np.int32)

    @cached_property
    def sampling_members(self) -> list[tuple[Sequence, int]]:
        """The sequences of the sampling members, each with the position of the token to be sampled."""
        step = self.step
        return list(compress(zip(self.members, step.ends.tolist(), strict=True), step.samples.tolist()))


class StepBuilder:
    """Owned by the scheduler while it plans one step."""

    def __init__(self) -> None:
        self._members: list[_Member] = []
        self._admitted: list[Sequence] = []
        self._tokens, self._blocks = _Updates(), _Updates()
        self._restored: dict[int, int] = {}  # source slot by target slot
        self._kept: dict[int, tuple[int, int]] = {}  # row, and its number of tokens, by slot
        self._adapted = False
        self._budgeted = False
        self._weighed: list[tuple[KVBudget, range]] = []
        self._weighed_blocks: list[int] = []
        self._drafts: dict[Sequence, DraftedTokens] = {}

    @property
    def num_tokens(self) -> int:
        """Tokens that the step computes so far."""
        return sum(member[3] for member in self._members)

    @property
    def drawing(self) -> list[Sequence]:
        """The sequences that draw a token, except those whose prompt ends in this step."""
        return [member[0] for member in self._members if member[4] and not member[5]]

    def admit(self, sequence: Sequence) -> None:
        """Add a sequence that has a new row, still empty on the device."""
        sequence.tokens_sent = sequence.blocks_sent = 0
        self._admitted.append(sequence)

    @property
    def has_members(self) -> bool:
        return bool(self._members)

    def add(self, sequence: Sequence, start: int, count: int, *, samples: bool) -> None:
        """Add a member with the sequence's tokens `start` to `start + count`."""
        known, sent = len(sequence.tokens), sequence.tokens_sent
        if known > sent or sequence.num_blocks > sequence.blocks_sent:
            self._send(sequence, sent, sequence.tokens[sent:])
        sequence.tokens_sent = start + count + 1 if samples else max(sent, known)
        sequence.in_flight += 1
        self._adapted |= sequence.adapter is not None and start >= sequence.adapted_from
        self._budgeted |= sequence.budget is not None
        self._members.append((sequence, sequence.row, start, count, samples, start < sequence.prompt_tokens))

    def draft(self, sequence: Sequence, draft: DraftedTokens) -> None:
        """Add members for a draft's tokens, after the sequence's last token; each of them samples."""
        self._drafts[sequence] = draft
        self._send(sequence, draft.start, draft.tokens)
        sequence.in_flight += len(draft.tokens)

    def _send(self, sequence: Sequence, first: int, tokens: list[int]) -> None:
        """Send tokens from position `first` on, and the blocks that the device lacks."""
        if tokens:
            self._tokens.add(sequence.row, first, tokens)
        if sequence.num_blocks > sequence.blocks_sent:
            for place, table in enumerate(sequence.tables, sequence.row * len(sequence.tables)):
                self._blocks.add(place, sequence.blocks_sent, table[sequence.blocks_sent :])
            sequence.blocks_sent = sequence.num_blocks

    def restore(self, row: int, slot: int) -> None:
        """Begin the row with the state in `slot`."""
        self._restored[row] = slot

    def keep(self, row: int, tokens: int, slot: int) -> None:
        """Keep the row's state after its first `tokens` tokens, where a member ends, in `slot`."""
        self._kept[slot] = row, tokens

    def weigh(self, budget: KVBudget, numbers: range, blocks: list[int]) -> None:
        """Have the importance of a sequence's blocks returned, which have these numbers and are full after the step."""
        self._weighed.append((budget, numbers))
        self._weighed_blocks += blocks

    def build(
        self, prefix_groups: PrefixGroups, graph_rows: int = 0, placed: Mapping[int, int] | None = None
    ) -> ScheduledStep | None:
        """The step, with single-token members first and groups side by side; None without any members.

        `graph_rows`: the maximum number of single-token members for which there is a graph. `placed`: adapters by the
        slot that they are copied to.
        """
        if not self._members:
            return None
        singles, groups = prefix_groups.arrange({member[0]: member for member in self._members if member[3] == 1})
        longer = [member for member in self._members if member[3] > 1]
        prompts, forced = [each for each in longer if each[5]], [each for each in longer if not each[5]]
        few = not prompts and sum(member[3] for member in forced) <= min(graph_rows - len(singles), _MAX_SPLIT)
        if few or self._drafts:  # a graph has room for the forced tokens; drafts are chosen to fit
            for member in forced:
                member[0].in_flight += member[3] - 1
            forced = [
                (sequence, row, place, 1, samples and place == start + count - 1, False)
                for sequence, row, start, count, samples, _ in forced
                for place in range(start, start + count)
            ]
        ordered = [*singles, *forced]
        if self._drafts:
            ordered, groups = self._with_drafts(ordered, groups, prefix_groups)
        ordered += prompts
        sequences, rows, starts, counts, samples, prefill = zip(*ordered, strict=True)
        starting = [
            Start(each.row, each.request.sampling, each.seed, each.prompt_tokens, each.end_tokens)
            for each in self._admitted
        ]
        step = Step(
            np.array(rows, np.int32),
            np.array(starts, np.int32),
            np.array(counts, np.int32),
            np.array(samples, np.bool_),
            Groups(*np.ascontiguousarray(np.array(groups, np.int32).T)) if groups else NO_GROUPS,
            StartedRows.of(starting),
            self._tokens.columns(),
            self._blocks.columns(),
            RowBiases.of(starting),
            StateCopies.of(self._restored),
            AdapterCopies.of(placed or {}),
            self._keeps(rows, starts, counts) if self._kept else NO_UPDATES.rows,
            _slots(sequences, starts) if self._adapted else NO_UPDATES.rows,
            _dropped(sequences) if self._budgeted else NO_UPDATES.rows,
            np.array(self._weighed_blocks, np.int32) if self._weighed else NO_UPDATES.rows,
        )
        planned, in_prefill = [*dict.fromkeys(member[0] for member in self._members)], np.array(prefill, np.bool_)
        admitted, weighed = tuple(self._admitted), tuple(self._weighed)
        return ScheduledStep(step, sequences, in_prefill, admitted, planned, self._drafts, weighed)

    def _with_drafts(
        self, members: list[_Member], groups: list[PrefixGroup], prefix_groups: PrefixGroups
    ) -> tuple[list[_Member], list[PrefixGroup]]:
        """The members with those of drafts appended. A sequence's drafts form a group, which reads their KV once; its
        last token joins the group unless it is in one already.
        """
        grouped = sum(group.size for group in groups)  # grouped members come first
        alone = {member[0]: member for member in members[grouped:] if member[4] and member[0] in self._drafts}
        ordered = [*members[:grouped], *(each for each in members[grouped:] if alone.get(each[0]) is not each)]
        groups = [*groups]
        for sequence, draft in self._drafts.items():
            own = [alone[sequence]] if sequence in alone else []
            own += [(sequence, sequence.row, place, 1, True, False) for place in range(draft.start, draft.end)]
            groups += prefix_groups.of_one(len(ordered), len(own), own[0][2])
            ordered += own
        return ordered, groups

    def _keeps(self, rows: Seq[int], starts: Seq[int], counts: Seq[int]) -> Int32:
        """The slots in which the members' states are kept."""
        slots = {kept: slot for slot, kept in self._kept.items()}
        ends = zip(rows, map(add, starts, counts), strict=True)
        return np.array([slots.get(end, NOT_KEPT) for end in ends], np.int32)


def _slots(sequences: Seq[Sequence], starts: Seq[int]) -> Int32:
    """The adapter slots of members that begin at these positions."""
    slots = [
        sequence.adapter_slot if start >= sequence.adapted_from else NO_ADAPTER
        for sequence, start in zip(sequences, starts, strict=True)
    ]
    return np.array(slots, np.int32)


def _dropped(sequences: Seq[Sequence]) -> Int32:
    """How many tokens each sequence has dropped; empty if none has dropped any."""
    dropped = [sequence.dropped for sequence in sequences]
    return np.array(dropped, np.int32) if any(dropped) else NO_UPDATES.rows


class _Updates:
    def __init__(self) -> None:
        self._updates: list[tuple[int, int, int]] = []  # (row, first, count)
        self._values: list[int] = []

    def add(self, row: int, first: int, values: Seq[int]) -> None:
        """Send these values to the row, from place `first` on."""
        self._updates.append((row, first, len(values)))
        self._values += values

    def columns(self) -> RowUpdates:
        if not self._updates:
            return NO_UPDATES
        rows, firsts, counts = np.ascontiguousarray(np.array(self._updates, np.int32).T)
        return RowUpdates(rows, firsts, counts, np.array(self._values, np.int32))
