"""Plans each step: which sequences run, and how many of their tokens are computed.

One rule (vLLM V1's): every sequence's `computed` tokens catch up with its `known` tokens under one token budget.
Prefill, chunked prefill, decode, forced tokens and recomputation after preemption are all that rule.

Owns the waiting and the running sequences, their blocks and their rows. Plans on counts, never on token values that
are still on the device, so that a step can be planned before the results of the previous one are read.
"""

from __future__ import annotations

from bisect import bisect, insort
from collections.abc import Iterable

from thothy_ai.engine.api import MAX_PRIORITY, FinishReason, SchedulerStats
from thothy_ai.engine.api.limits import EngineConfig
from thothy_ai.engine.scheduling.adapter_slots import AdapterSlots
from thothy_ai.engine.scheduling.admission import LengthEstimator
from thothy_ai.engine.scheduling.block_tables import BlockTables, FoundTables
from thothy_ai.engine.scheduling.blocks import BlockPool, Chain
from thothy_ai.engine.scheduling.drafting.drafts import Drafter, DraftRoom
from thothy_ai.engine.scheduling.kept_states import KeptStates
from thothy_ai.engine.scheduling.prefix_groups import PrefixGroups
from thothy_ai.engine.scheduling.sequence import NO_ROW, Sequence
from thothy_ai.engine.scheduling.step_builder import ScheduledStep, StepBuilder
from thothy_ai.engine.scheduling.waiting import WaitingQueue

_MAX_DISPLACED = 4  # times that a sequence may be preempted for a higher priority
# While interactive sequences run, batch prompts get the first fraction of the token budget; if interactive prompts take
# the rest, they get as little as the second.
_BATCH_SHARE, _LEAST_BATCH_SHARE = 5, 32


class Scheduler:
    """Admits in the order of the waiting queue; preempts the lowest priority first, and among equals the youngest."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        # Read by others, changed by the scheduler alone.
        self.pool = BlockPool(config.num_blocks, config.block_size, share_prefixes=config.prefix_cache)
        self._tables = BlockTables(config, self.pool)
        self._windowed = any(config.windows)
        self._lengths = LengthEstimator()
        self._waiting = WaitingQueue(self._lengths, self._keeping)
        self._running: list[Sequence] = []  # the highest priority first, then the oldest
        self._passed: list[Sequence] = []  # windows may have passed several of their tokens in the last step
        self._rows = list(reversed(range(config.max_rows)))
        self._groups = PrefixGroups(config.group_rows, config.block_size, len(config.windows))
        self._states = KeptStates(range(config.max_rows + 1, config.state_slots))
        self.adapters = AdapterSlots(config.adapter_slots)
        self._refused: Sequence | None = None  # had no room, and nothing was released since
        self._interactive = 0  # running interactive sequences
        self._batch_budget = 0  # tokens left for batch prompts in the planned step
        self._planned_tokens = 0  # of the step that was planned last, without drafts
        self._prompts_follow = False  # whether that step leaves parts of its prompts to later ones
        self.token_budget = config.token_budget  # the next step's; the core lowers it when memory is short
        self.preemptions = 0

    @property
    def waiting(self) -> int:
        """Number of sequences without a row: not admitted yet, or preempted."""
        return len(self._waiting) + self.adapters.waiting

    @property
    def running(self) -> int:
        """Number of sequences with a row."""
        return len(self._running)

    @property
    def stats(self) -> SchedulerStats:
        return SchedulerStats(self.running, self.waiting, self.preemptions)

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence, or let it wait for its adapter. Whether it can ever fit was checked at submission."""
        if sequence.adapter is None or self.adapters.enter(sequence, sequence.adapter):
            self._waiting.add(sequence)

    def schedule(self, drafter: Drafter | None = None) -> ScheduledStep | None:
        """The next step, which must be launched before another one is planned; None if nothing can run now.

        With a `drafter`, which requires that all steps are read, a step can have drafts.
        """
        self._states.begin_step()
        self._waiting.begin_step()
        self._prompts_follow = False
        for sequence in self._passed:  # first, so that nobody is preempted for lack of these blocks
            if sequence.row != NO_ROW and self._tables.release_unread(sequence):
                self._refused = None
        self._passed.clear()
        builder, running = StepBuilder(), tuple(self._running)
        self._batch_budget = max(1, self.token_budget // _BATCH_SHARE)
        budget = self._admit_urgent(self.token_budget, builder)
        for sequence in running:
            if budget and sequence.row != NO_ROW:
                budget -= self._decode(sequence, builder) or self._advance(sequence, budget, builder)
        self._admit(budget, builder)
        if self._place_adapters() and not builder.has_members:
            self._admit(self.token_budget, builder)  # nothing runs meanwhile that could hide their copies
        self._planned_tokens = builder.num_tokens
        if not builder.has_members:
            return None
        if drafter is not None:
            self._add_drafts(drafter, builder)
        graph_rows = self._config.max_rows if self._config.graphs else 0
        return builder.build(self._groups, graph_rows, self.adapters.take_copies())

    @property
    def draft_places(self) -> int:
        """An estimate of how many drafts fit into the next step: while prompts follow, they take as many tokens as in
        the last one.
        """
        tokens = max(self.running, self._planned_tokens if self._waiting or self._prompts_follow else 0)
        return max(0, self._config.max_rows - tokens)

    def _place_adapters(self) -> bool:
        """Give free slots to waiting adapters and queue their sequences; returns whether any were queued."""
        if not self.adapters.waiting:
            return False
        for sequence in self.adapters.reclaim():
            self._waiting.remove(sequence)
            self._refused = None
        entered = self.adapters.assign()
        for sequence in entered:
            self._waiting.add(sequence)
        return bool(entered)

    def retire(self, sequence: Sequence) -> None:
        """Remove a finished sequence that is in no unread step, and release what it holds."""
        queued = sequence.adapter is None or self.adapters.leave(sequence, sequence.adapter)
        if sequence.row == NO_ROW:
            if queued:
                self._waiting.remove(sequence)
            self._refused = None
        else:
            if sequence.broken:
                # Any of its blocks may hold numbers that are not finite, even before the broken token (a masked key
                # times NaN is NaN), and including blocks that it released.
                self._tables.forget(sequence)
            self._running.remove(sequence)
            self._vacate(sequence)
        if sequence.finish_reason is not FinishReason.ABORTED:
            self._lengths.observe(sequence.request.profile, sequence.output_tokens, sequence.max_tokens)

    def check(self) -> None:
        """Raise RuntimeError unless the blocks in use are exactly those that running sequences hold."""
        held = len({block for sequence in self._running for block in sequence.held})
        self.pool.check(held=held)

    def _decode(self, sequence: Sequence, builder: StepBuilder) -> bool:
        """Add a running sequence's next token, if it is an output token within its last block; returns whether it was
        added. `_advance` would do the same, in 2.3 us instead of 1.7: this is most of what a step plans.
        """
        computed, pending = sequence.computed, sequence.pending
        known = len(sequence.tokens) + pending
        end = computed + 1
        if (
            known != end
            or computed < sequence.prompt_tokens
            or known - sequence.prompt_tokens >= sequence.max_tokens
            or end >= (sequence.registered + 1) * self._config.block_size
            or end > sequence.num_blocks * self._config.block_size
            or sequence.finish_reason is not None
            or not self._groups.has(sequence)  # nor has one with a budget joined any
        ):
            return False
        sequence.computed = end
        sequence.pending = pending + 1
        builder.add(sequence, computed, 1, samples=True)
        return True

    def _advance(self, sequence: Sequence, budget: int, builder: StepBuilder) -> int:
        """Add a running sequence's next tokens, at most `budget`, to the step; returns their number.

        While too few blocks are free, the last running sequence is preempted, if need be this one. Sequences are
        planned in order, so that a preempted one is never a member of this step already.
        """
        known, computed = sequence.known, sequence.computed
        count = min(known - computed, budget)
        if count > 1:
            count = min(count, self._allowed(sequence, budget))
        if count <= 0 or sequence.ending:
            return 0
        if sequence.budget is not None and (places := sequence.budget.drop_at(computed)):
            self._tables.drop(sequence, places)
            self._refused = None
        end = sequence.until(computed + count)
        if end - sequence.dropped > sequence.num_blocks * self._config.block_size:
            if self._windowed and self._tables.release_unread(sequence):
                self._refused = None
            missing = self.pool.blocks_for(end - sequence.dropped) - sequence.num_blocks
            while missing * self._tables.groups > self.pool.available:
                victim = self._running[-1]
                self._preempt(victim, sequence)
                if victim is sequence:
                    return 0
            self._tables.extend(sequence, missing)
        self._take(sequence, end, builder, samples=end == known)
        return end - computed

    def _admit_urgent(self, budget: int, builder: StepBuilder) -> int:
        """Admit sequences of a higher priority than the lowest running one; returns the rest of the budget.

        This happens before running sequences are planned, so that preempted ones are not members of this step yet.
        Running sequences of at least the same priority keep their reserved blocks and their part of the budget.
        Planning them therefore preempts no sequence admitted here, and no later prompt overtakes one already begun.
        """
        while budget and self._running:
            sequence = self._waiting.first_above(self._running[-1].priority)
            if sequence is None or not self._may_start(sequence) or self._states.promised_to(sequence):
                break
            kept = bisect(self._running, _order(sequence), key=_order)
            before = self._running[:kept]
            room = budget - sum(each.known - each.computed for each in before)
            if room <= 0:
                break
            allowed = self._allowed(sequence, room)
            if not self._start(sequence, allowed, self._expected_growth(before), kept):
                self._refused = sequence
                break
            budget -= self._begin(sequence, allowed, builder)
        return budget

    def _admit(self, budget: int, builder: StepBuilder) -> None:
        """Admit waiting sequences into free rows and blocks."""
        growth: int | None = None
        while budget and self._rows and self._waiting:
            sequence = self._waiting.first()
            if sequence is None or not self._may_start(sequence):
                break
            if promised := self._states.promised_to(sequence):
                # Others that began now would keep states as well. With too few slots, these would replace each other.
                if self._states.promises >= self._config.kept_states // 2 or not self._waiting.hold(sequence, promised):
                    break
                continue
            growth = self._expected_growth(self._running) if growth is None else growth
            allowed = self._allowed(sequence, budget)
            if not self._start(sequence, allowed, growth, len(self._running)):
                self._refused = sequence
                break
            growth += self._expected_blocks(sequence, sequence.computed) - sequence.num_held
            budget -= self._begin(sequence, allowed, builder)

    def _may_start(self, sequence: Sequence) -> bool:
        """Whether the sequence may get a row in this step, if there is room."""
        if sequence is self._refused or sequence.pending or sequence.ending:
            return False
        return self._allowed(sequence, self.token_budget) > 0

    def _allowed(self, sequence: Sequence, budget: int) -> int:
        """How many of the sequence's tokens the step may compute within `budget`.

        A new request waits for the running step and for the one after it, so it is served sooner if steps have few
        tokens. While interactive sequences run, batch prompts therefore get only a part of the budget, less the tokens
        of interactive prompts. The drain loses little by it: from a few hundred tokens on, a step's time is
        proportional to its tokens.
        """
        prompt_read = sequence.computed >= sequence.prompt_tokens
        if prompt_read or not self._interactive or sequence.interactive:
            return budget
        return min(budget, self._batch_budget)

    def _begin(self, sequence: Sequence, budget: int, builder: StepBuilder) -> int:
        """Add a sequence that got a row to the running ones and to the step; returns its number of tokens in it."""
        self._waiting.remove(sequence)
        if sequence.displaced >= _MAX_DISPLACED:
            sequence.priority = MAX_PRIORITY  # otherwise bursts of urgent requests could starve it
        insort(self._running, sequence, key=_order)
        self._interactive += sequence.interactive
        builder.admit(sequence)
        if sequence.restored is not None:
            builder.restore(sequence.row, sequence.restored)
        known, computed = sequence.known, sequence.computed
        end = sequence.until(min(known, computed + budget))
        self._take(sequence, end, builder, samples=end == known)
        return end - computed

    def _add_drafts(self, drafter: Drafter, builder: StepBuilder) -> None:
        """Add drafts to sequences that draw a token and have no budget. Each drafted token is a member of the step.

        Drafts use only free blocks, at most one per sequence.
        """
        places = self._config.max_rows - builder.num_tokens
        drawing = [sequence for sequence in builder.drawing if sequence.budget is None]
        if places <= 0 or not drawing:
            return
        size = self._config.block_size
        spare = size if len(drawing) * self._tables.groups <= self.pool.available else 0
        rooms = []
        for sequence in drawing:
            held = sequence.num_blocks * size + spare - sequence.computed
            # The last draft is followed by a draw.
            left = min(
                sequence.max_tokens - sequence.output_tokens - 1, self._config.max_sequence_tokens - sequence.known
            )
            rooms.append(DraftRoom(sequence, max(0, min(held, left, places))))
        for sequence, draft in drafter.choose(rooms, builder.num_tokens, places).items():
            missing = self.pool.blocks_for(draft.end) - sequence.num_blocks
            if missing > 0:
                self._tables.extend(sequence, missing)
                if self._windowed:
                    self._passed.append(sequence)
            builder.draft(sequence, draft)

    def _start(self, sequence: Sequence, budget: int, growth: int, kept: int) -> bool:
        """Give a waiting sequence its cached prefix, its first blocks and a row; False if there is no room.

        `growth`: blocks that the first `kept` running sequences are expected to need in addition to their own. The
        other running sequences have a lower priority; as many of the last ones are preempted as the first blocks need.
        """
        prefix = self._tables.find(sequence, sequence.known - 1)
        cached = self._depth(prefix) * self._config.block_size
        self._tables.begin(sequence, prefix, cached)
        target = cached + min(sequence.known - cached, budget)
        if sequence.budget is not None:
            target = sequence.until(target)
        count = max(0, self.pool.blocks_for(target) - sequence.num_blocks)
        first = count * self._tables.groups
        reserve = growth + self._expected_blocks(sequence, cached) - sequence.num_held if kept else first
        if max(first, reserve) > self.pool.available + self._held_after(kept, sequence):
            self._tables.release(sequence)
            return False
        while first > self.pool.available or not self._rows:
            self._preempt(self._running[-1], sequence)
        self._tables.extend(sequence, count)
        sequence.computed, sequence.registered, sequence.chain = cached, len(prefix.blocks), prefix.chain
        if not sequence.preemptions:
            sequence.cached_tokens = min(cached, sequence.prompt_tokens)  # forced tokens can be cached as well
        sequence.row = self._rows.pop()
        if self._config.recurrent:
            sequence.restored = self._states.use(self._chain_at(sequence, cached)) if cached else None
            sequence.borders = self._borders(sequence, len(prefix.blocks))
            self._states.promise(sequence)
        return True

    def _depth(self, prefix: FoundTables) -> int:
        """Blocks of a found prefix that need not be computed: in a recurrent model, those before the last kept state.
        Later blocks are written again, with the same keys and values.
        """
        if not self._config.recurrent:
            return len(prefix.blocks)
        chains = map(self.pool.chain_of, prefix.blocks)
        return max((depth for depth, chain in enumerate(chains, 1) if chain in self._states), default=0)

    def _chain_at(self, sequence: Sequence, tokens: int) -> Chain:
        """The chain of the sequence's first `tokens` tokens, which end with a registered block."""
        blocks = tokens // self._config.block_size
        return sequence.chain if sequence.registered == blocks else self.pool.chain_of(sequence.tables[0][blocks - 1])

    def _borders(self, sequence: Sequence, found: int) -> list[int]:
        """Where a starting sequence keeps its states: at the points where other prompts diverge from its own. Earlier
        sequences share its first `found` blocks; the others are still waiting.
        """
        if not (self._config.prefix_cache and self._config.kept_states):
            return []
        size, last = self._config.block_size, sequence.computed
        borders = []
        for shared in sorted({found * size, *self._waiting.shared(sequence)}):
            border = min(shared, sequence.prompt_tokens - 1) // size * size
            if border > last:
                borders.append(border)
                last = border
        return borders

    def _keeping(self, priority: int) -> int:
        """How many running sequences of at least this priority keep their prompts in the prefix cache: none with a KV
        budget, and none of a model with windows or recurrent states.
        """
        if self._windowed or self._config.recurrent or not self._config.prefix_cache:
            return 0
        kept = bisect(self._running, -priority, key=_order)
        return sum(sequence.budget is None for sequence in self._running[:kept])

    def _held_after(self, kept: int, beginning: Sequence) -> int:
        """Blocks held only by running sequences after the first `kept`, and not by the starting one."""
        held = {block for sequence in self._running[kept:] for block in sequence.held}
        if held:
            held.difference_update(*(sequence.held for sequence in (beginning, *self._running[:kept])))
        return len(held)

    def _expected_growth(self, sequences: Iterable[Sequence]) -> int:
        """Blocks that running sequences are expected to need in addition to their own."""
        return sum(self._expected_blocks(sequence, sequence.computed) - sequence.num_held for sequence in sequences)

    def _expected_blocks(self, sequence: Sequence, computed: int) -> int:
        """The most blocks that a sequence is expected to hold at once, but at least those for one token more than it
        has; without a window, it holds the most at its end. `computed`: tokens with KV, in its blocks or in the prefix
        cache.
        """
        output = self._lengths.reserved(sequence.request.profile, sequence.max_tokens)
        length = max(sequence.prompt_tokens + output, min(sequence.known + 1, self._config.max_sequence_tokens))
        if sequence.budget is not None:
            length = min(length, sequence.budget.most)
        if not self._windowed:
            return max(self.pool.blocks_for(length), sequence.num_blocks)
        count = max(1, min(sequence.known - computed, self.token_budget))
        return max(self._config.most_blocks(length, count), sequence.num_held)

    def _take(self, sequence: Sequence, end: int, builder: StepBuilder, *, samples: bool) -> None:
        """Add the sequence's tokens up to `end` to the step, as several members if it keeps its state on the way, and
        count them as computed for later steps.
        """
        start = sequence.computed
        count = end - start
        if start < sequence.prompt_tokens:
            least = max(1, self.token_budget // _LEAST_BATCH_SHARE) if sequence.interactive else 0
            self._batch_budget = max(self._batch_budget - count, min(self._batch_budget, least))
        sequence.computed = end
        self._prompts_follow |= not samples
        sequence.pending += samples
        while sequence.borders and (border := sequence.borders[0]) <= end:
            self._tables.register(sequence, border)
            slot = self._states.keep(sequence, self._chain_at(sequence, border))
            if slot is None:
                continue
            builder.keep(sequence.row, border, slot)
            if border < end:
                builder.add(sequence, start, border - start, samples=False)
                start = border
        if (kept := sequence.budget) is not None:
            if end % kept.stride == 0:
                numbers, last = kept.fill(end), (end - sequence.dropped) // self._config.block_size
                builder.weigh(kept, numbers, sequence.tables[0][last - len(numbers) : last])
        elif end >= (sequence.registered + 1) * self._config.block_size:
            self._tables.register(sequence, end)
        if count > 1 and self._windowed:
            self._passed.append(sequence)
        if count == 1 and start >= sequence.prompt_tokens and sequence.budget is None:
            self._groups.join(sequence)
        builder.add(sequence, start, end - start, samples=samples)

    def _preempt(self, sequence: Sequence, other: Sequence) -> None:
        """Release a running sequence's blocks and row for `other`, and put it first in the queue to start again."""
        self._running.remove(sequence)
        self._vacate(sequence)
        sequence.computed, sequence.registered, sequence.dropped = 0, 0, 0
        if sequence.budget is not None:
            sequence.budget.restart()
        sequence.preemptions += 1
        self.preemptions += 1
        sequence.displaced += other.priority > sequence.priority
        self._waiting.push_front(sequence)

    def _vacate(self, sequence: Sequence) -> None:
        self._refused = None
        self._interactive -= sequence.interactive
        self._groups.leave(sequence)
        self._states.withdraw(sequence)
        self._tables.release(sequence)
        self._rows.append(sequence.row)
        sequence.row = NO_ROW


def _order(sequence: Sequence) -> int:
    """The order in which running sequences are planned; they are preempted in reverse."""
    return -sequence.priority
