"""A step as data: what scheduling sends to execution, and what comes back.

Everything is plain columns (numpy arrays that nobody changes), so that a step can be sent to another process or another
GPU. Scheduling builds steps from sequences; warm-up and padding build them directly. Execution does not know sequences
or requests.

Shapes: N members of the step, G groups, A rows that start over, K updates of V values in all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from thothy_ai.engine.api.sampling import SamplingParams, TokenLogprob

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

_MAX_TOP_K = 2**31 - 1  # no vocabulary is larger


class Start(NamedTuple):
    """A sequence that gets a row. The seed in its sampling parameters, which can be None, is ignored.

    `end_tokens` end its output; they are banned until it has `min_tokens`.
    """

    row: int
    sampling: SamplingParams
    seed: int
    prompt_tokens: int = 0
    end_tokens: Collection[int] = ()


class StartedRows(NamedTuple):
    """Rows that start over, whose earlier contents are stale. Each [A], with the new sequences' sampling parameters.

    `logprobs`: how many of the likeliest tokens get log-probabilities in addition to the drawn one; -1: none at all.
    """

    rows: Int64
    seeds: Int64
    top_ks: Int64
    prompt_tokens: Int64
    logprobs: Int64
    temperatures: Float64
    top_ps: Float64
    min_ps: Float64
    repetition_penalties: Float64
    frequency_penalties: Float64
    presence_penalties: Float64

    @classmethod
    def of(cls, started: Iterable[Start]) -> StartedRows:
        """The columns of these rows."""
        rows: list[tuple[float, ...]] = []
        for row, p, seed, prompt_tokens, _ in started:
            counts = (row, seed, min(p.top_k, _MAX_TOP_K), prompt_tokens, -1 if p.logprobs is None else p.logprobs)
            penalties = (p.repetition_penalty, p.frequency_penalty, p.presence_penalty)
            rows.append((*counts, p.temperature, p.top_p, p.min_p, *penalties))
        if not rows:
            return NO_ROWS
        columns = zip(zip(*rows, strict=True), _STARTED_TYPES, strict=True)
        return cls(*(np.array(values, dtype) for values, dtype in columns))


class RowBiases(NamedTuple):
    """Biases of single tokens' scores in rows that start over: each [E]; they apply to positions before `untils`.

    The value BANNED bans a token: end tokens are banned until an output has its minimum number of tokens.
    """

    rows: Int64
    tokens: Int64
    untils: Int64
    values: Float64

    @classmethod
    def of(cls, started: Iterable[Start]) -> RowBiases:
        """The biases of these rows, and bans of their end tokens where outputs have a minimum."""
        entries: list[tuple[int, int, int, float]] = []
        for row, sampling, _, prompt_tokens, end_tokens in started:
            entries += [(row, bias.token, FOREVER, bias.value) for bias in sampling.logit_bias]
            if sampling.min_tokens:
                until = prompt_tokens + sampling.min_tokens
                entries += [(row, token, until, BANNED) for token in sorted(end_tokens)]
        if not entries:
            return NO_BIASES
        columns = zip(zip(*entries, strict=True), _BIAS_TYPES, strict=True)
        return cls(*(np.array(values, dtype) for values, dtype in columns))


class Groups(NamedTuple):
    """Runs of single-token members whose first tokens lie in the same KV blocks. Each [G]: the first member, the
    number of members, the number of shared tokens (whole blocks).
    """

    firsts: Int32
    sizes: Int32
    shared: Int32


class RowUpdates(NamedTuple):
    """Values that rows on the device lack. Update k goes to row `rows[k]` from place `firsts[k]` on.

    `rows`, `firsts` and `counts` are [K]; `values` [V] concatenates the values of all updates.
    """

    rows: Int32
    firsts: Int32
    counts: Int32
    values: Int32


class StateCopies(NamedTuple):
    """Copies of recurrent layers' states from slots `sources` to `targets`, each [C], with distinct targets. A row's
    slot has the row's number; the slots after the rows' keep states for other sequences.
    """

    sources: Int32
    targets: Int32

    @classmethod
    def of(cls, by_target: Mapping[int, int]) -> StateCopies:
        """The copies to these targets, each with its source."""
        if not by_target:
            return NO_COPIES
        return cls(np.array([*by_target.values()], np.int32), np.array([*by_target], np.int32))


class AdapterCopies(NamedTuple):
    """Adapters, by their `numbers` [C], that are copied from host memory to `slots` [C] of the device."""

    numbers: Int32
    slots: Int32

    @classmethod
    def of(cls, by_slot: Mapping[int, int]) -> AdapterCopies:
        """The copies to these slots, each with its adapter."""
        if not by_slot:
            return NO_ADAPTERS
        return cls(np.array([*by_slot.values()], np.int32), np.array([*by_slot], np.int32))


FOREVER = 2**31 - 1  # a position that no token has
BANNED = -1e4  # far below any score, but finite: if a schema allows nothing else, the token is still drawn
_STARTED_TYPES = "qqqqqdddddd"
_BIAS_TYPES = "qqqd"
_COLUMN_TYPES = (
    _STARTED_TYPES + _BIAS_TYPES + "iii" + 2 * "iiii" + 2 * "ii" + "iiiiiii?"
)  # in a step's bytes; the widest come first, so that all are aligned

NO_ROWS = StartedRows(*(np.array((), dtype) for dtype in _STARTED_TYPES))
NO_LOGPROBS: Mapping[int, TokenLogprob] = MappingProxyType({})
NO_BIASES = RowBiases(*(np.array((), dtype) for dtype in _BIAS_TYPES))
NO_GROUPS = Groups(*(np.zeros(0, np.int32) for _ in Groups._fields))
NO_UPDATES = RowUpdates(*(np.zeros(0, np.int32) for _ in RowUpdates._fields))
NO_COPIES = StateCopies(*(np.zeros(0, np.int32) for _ in StateCopies._fields))
NO_ADAPTERS = AdapterCopies(*(np.zeros(0, np.int32) for _ in AdapterCopies._fields))
NO_ADAPTER = -1
NOT_KEPT = -1


@dataclass(frozen=True, eq=False)
class Step:
    """One forward pass over N members; members with a single token come first.

    A member computes tokens `starts` to `starts + counts` of its row. If it `samples`, it then draws the next token,
    which the device writes to the row. `new_tokens` and `new_blocks` are written to the rows before the pass; with G
    groups of layers, row r has the block tables r * G to r * G + G - 1.
    States are `restored` before the pass. If any state is kept, `keeps` has for each member the slot that receives the
    state after its tokens, or NOT_KEPT; otherwise it is empty. A row's tokens can then be several consecutive members,
    of at least two tokens each. If any member has an adapter, `adapters` has each member's slot or NO_ADAPTER;
    otherwise it is empty. `placed` adapters are copied to their slots before the pass.
    `dropped`: how many tokens of a member's row were in blocks that its tables no longer have; a token's place in the
    tables is its position less these. Empty if no row has dropped any. The importance of the `weighed` blocks, which
    are full after the pass, is returned with the result.
    Grammar masks are not part of a step: they are filled while its forward pass runs, and `Runner.sample` gets them as
    `StepMasks`.
    """

    rows: Int32  # [N]
    starts: Int32  # [N], positions
    counts: Int32  # [N], tokens
    samples: NDArray[np.bool_]  # [N]
    groups: Groups = NO_GROUPS
    started: StartedRows = NO_ROWS
    new_tokens: RowUpdates = NO_UPDATES
    new_blocks: RowUpdates = NO_UPDATES
    biases: RowBiases = NO_BIASES  # of the rows in `started`
    restored: StateCopies = NO_COPIES
    placed: AdapterCopies = NO_ADAPTERS
    keeps: Int32 = field(default_factory=lambda: NO_UPDATES.rows)  # [N], or empty
    adapters: Int32 = field(default_factory=lambda: NO_UPDATES.rows)  # [N], or empty
    dropped: Int32 = field(default_factory=lambda: NO_UPDATES.rows)  # [N], or empty
    weighed: Int32 = field(default_factory=lambda: NO_UPDATES.rows)  # block ids

    @classmethod
    def of_padding(cls, row: int, counts: Sequence[int]) -> Step:
        """Members with these numbers of tokens in the padding row, which no sequence has; none of them samples."""
        members = len(counts)
        rows, starts = np.full(members, row, np.int32), np.zeros(members, np.int32)
        return cls(rows, starts, np.array(counts, np.int32), np.zeros(members, np.bool_))

    def padded_to(self, members: int, row: int) -> Step:
        """The same step with single-token members in the padding row added at its end."""
        added = members - self.num_members
        if not added:
            return self
        padding = Step.of_padding(row, [1] * added)
        return replace(
            self,
            rows=np.concatenate((self.rows, padding.rows)),
            starts=np.concatenate((self.starts, padding.starts)),
            counts=np.concatenate((self.counts, padding.counts)),
            samples=np.concatenate((self.samples, padding.samples)),
            keeps=np.pad(self.keeps, (0, added), constant_values=NOT_KEPT) if len(self.keeps) else self.keeps,
            adapters=np.pad(self.adapters, (0, added), constant_values=NO_ADAPTER) if self.adapted else self.adapters,
            dropped=np.pad(self.dropped, (0, added)) if len(self.dropped) else self.dropped,
        )

    @property
    def adapted(self) -> bool:
        """Whether some members have an adapter."""
        return len(self.adapters) > 0

    @property
    def num_members(self) -> int:
        """The number of members, N."""
        return len(self.rows)

    @cached_property
    def num_tokens(self) -> int:
        """Tokens that the step computes."""
        return int(self.counts.sum())

    @cached_property
    def ends(self) -> Int32:
        """Position after each member's last computed token [N]; a sampled token goes there."""
        return self.starts + self.counts

    @cached_property
    def places(self) -> Int32:
        """The place of each member's first token in its row's block tables [N]."""
        return self.starts - self.dropped if len(self.dropped) else self.starts

    @property
    def kept_after(self) -> StateCopies:
        """The states to copy after the pass, which are those of single-token members. For longer members, layers store
        the state themselves, because more tokens of the row may follow in the step.
        """
        if not len(self.keeps):
            return NO_COPIES
        chosen = (self.keeps != NOT_KEPT) & (self.counts == 1)
        return StateCopies(self.rows[chosen], self.keeps[chosen])

    @cached_property
    def num_sampling(self) -> int:
        """The number of members that sample, R."""
        return int(self.samples.sum())

    def to_bytes(self) -> bytes:
        """The columns' lengths and the columns, in this machine's byte order."""
        optional = (self.keeps, self.adapters, self.dropped, self.weighed)
        members = (*optional, self.rows, self.starts, self.counts, self.samples)
        updates = (*self.new_tokens, *self.new_blocks, *self.restored, *self.placed)
        columns = (*self.started, *self.biases, *self.groups, *updates, *members)
        lengths = np.array([len(column) for column in columns], np.int64)
        return b"".join(column.tobytes() for column in (lengths, *columns))

    @classmethod
    def from_bytes(cls, data: bytes) -> Step:
        """A step from `to_bytes`; its columns are views of the data. ValueError if the data is too short."""
        lengths = np.frombuffer(data, np.int64, len(_COLUMN_TYPES))
        columns: list[NDArray[Any]] = []
        offset = lengths.nbytes
        for dtype, length in zip(_COLUMN_TYPES, lengths.tolist(), strict=True):
            columns.append(np.frombuffer(data, dtype, length, offset))
            offset += columns[-1].nbytes
        left = iter(columns)
        started = StartedRows(*islice(left, len(StartedRows._fields)))
        biases = RowBiases(*islice(left, len(RowBiases._fields)))
        groups = Groups(*islice(left, len(Groups._fields)))
        tokens, blocks = (RowUpdates(*islice(left, len(RowUpdates._fields))) for _ in range(2))
        restored = StateCopies(*islice(left, len(StateCopies._fields)))
        placed = AdapterCopies(*islice(left, len(AdapterCopies._fields)))
        keeps, adapters, dropped, weighed, rows, starts, counts, samples = left
        return cls(
            rows, starts, counts, samples, groups, started, tokens, blocks, biases, restored, placed, keeps,
            adapters, dropped, weighed,
        )  # fmt: skip


class StepMasks(NamedTuple):
    """The tokens that a step's R sampling members may draw, as masks in a table that the device keeps.

    `places` [R] are the places of the members' masks; the mask at place ANY allows everything. `new` [U, ceil(V / 32)]
    are the masks that this step adds, with a bit for each allowed token of a vocabulary of V, lowest first. They are
    written to the distinct places `targets` [U] before any is read. The table has places for `remembered_masks`,
    and after them one per row of the engine, for masks of a single step.
    """

    places: Int32
    new: Int32
    targets: Int32

    def of(self, members: Sequence[int]) -> StepMasks:
        """The masks of these sampling members, with all new masks, since later steps rely on them."""
        return self._replace(places=self.places[members])

    def to_bytes(self) -> bytes:
        """The columns' lengths and the columns, in this machine's byte order."""
        lengths = np.array([len(self.places), *self.new.shape], np.int64)
        return b"".join(column.tobytes() for column in (lengths, self.places, self.targets, self.new))

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> StepMasks:
        """Masks from `to_bytes`; their columns are views of the data. ValueError if the data is too short."""
        lengths = np.frombuffer(data, np.int64, 3)
        members, masks, words = lengths.tolist()
        columns = np.frombuffer(data, np.int32, members + masks * (1 + words), lengths.nbytes)
        places, targets, new = np.split(columns, (members, members + masks))
        return cls(places, new.reshape(masks, words), targets)


ANY = 0
MAX_NEW_MASKS = 2  # of a row in a step: one that is computed, and one of a forced token
_MAX_MASKS = 8_192
_MASK_BYTES = 1 << 27  # 16 KiB per mask of 131,072 tokens; pages that are never written cost a CPU nothing


def remembered_masks(vocab_size: int) -> int:
    """The number of masks that a device remembers, at places 1 to this number."""
    return min(_MAX_MASKS, max(1, _MASK_BYTES // (4 * -(-vocab_size // 32))))


class StepResult(NamedTuple):
    """The results of a step: a token for each member that sampled, in the step's order, and the device's seconds.

    `replayed`: its forward pass was replayed from a CUDA graph. `logprobs` has the rows that ask for them. `importance`
    has a number for each of the step's `weighed` blocks.
    """

    tokens: list[int]
    seconds: float
    replayed: bool = False
    logprobs: Mapping[int, TokenLogprob] = NO_LOGPROBS
    importance: Sequence[float] = ()
