"""Replays recorded outputs in batches, with drafts and without, and prices each step on an H200."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from benchmarks.device_model import COPY, DECODE, GEMM, STEP_SECONDS, Device
from benchmarks.drafts.recording import Recorded
from thothy_ai.engine.drafting.budget import affordable
from thothy_ai.engine.drafting.chances import Chances, Class
from thothy_ai.engine.drafting.matching import LONGEST, Match, Tokens
from thothy_ai.engine.execution.graphs import graph_sizes

MOST = 16  # drafts of a row in a step
MEMORY = 1 << 16  # tokens of a kind's outputs
BLOCK = 64  # tokens of a sequence's last block, which each of its members reads
SIZES = graph_sizes(512)


@dataclass(frozen=True)
class Costs:
    """Seconds of a step: matmuls of a captured size, the scores of all members, KV that is read, and the host's time,
    which a step with drafts does not hide: `host` and `host_row`.
    """

    device: Device
    host: float = 1e-3
    host_row: float = 30e-6

    def step(self, tokens: int, context: int) -> float:
        """Without drafts."""
        device, place = self.device, bisect_left(SIZES, tokens)
        size = SIZES[place] if place < len(SIZES) else tokens
        head = device.hidden * device.vocab * 2
        gemms = device.layers * device.gemms.seconds(size, device.layer_parameters)
        kv = context * device.kv_bytes / DECODE
        return gemms + max(size * head / GEMM, head / COPY) + kv + STEP_SECONDS

    def with_drafts(self, tokens: int, context: int, drafts: int, rows: int) -> float:
        if not drafts:
            return self.step(tokens, context)
        return self.step(tokens + drafts, context + drafts * BLOCK) + self.host + rows * self.host_row


class Guess(NamedTuple):
    """A drafted token; `class_` is None where the grammar forces it."""

    token: int
    chance: float
    class_: Class | None


@dataclass
class Memory:
    """What later outputs learn from those before them: texts by kind, and chances."""

    texts: dict[str, Tokens] = field(default_factory=lambda: defaultdict(lambda: Tokens(MEMORY)))
    chances: Chances = field(default_factory=Chances)


class Row:
    """An output that is being written: `place` of its tokens are known, `computed` of these have been computed."""

    def __init__(self, recorded: Recorded, memory: Memory, *, shared: bool) -> None:
        self.recorded, self._memory, self._shared = recorded, memory, shared
        self.tokens = [token for span in recorded.spans for token in span]
        self.drawn = [not index for span in recorded.spans for index in range(len(span))]
        self.place = self.computed = 0
        self.text = Tokens(1 << 20)
        self.text.add(list(recorded.prompt))

    @property
    def done(self) -> bool:
        return self.place == len(self.tokens)

    @property
    def context(self) -> int:
        return len(self.recorded.prompt) + self.place

    def guesses(self) -> list[Guess]:
        """What is drafted at most, likeliest first; after a wrong draw, nothing is known of what is forced."""
        own = self.text.tokens
        matches = {"own": Match.of(own, own[-LONGEST - 1 :])}
        if self._shared and len(others := self._memory.texts[self.recorded.kind].tokens):
            matches["kind"] = Match.of(others, own[-LONGEST - 1 :])
        found: list[Guess] = []
        chance, place, right = 1.0, self.place, True
        while len(found) < MOST and not (right and place == len(self.tokens)):
            if right and not self.drawn[place]:
                guess = Guess(self.tokens[place], chance, None)
            else:
                best = self._best(matches)
                if best is None or chance * best.chance < 0.02:
                    break
                chance *= best.chance
                guess = best._replace(chance=chance)
                right = right and guess.token == self.tokens[place]
            found.append(guess)
            place += 1
            matches = {source: match.after(guess.token) for source, match in matches.items()}
        return found

    def _best(self, matches: dict[str, Match]) -> Guess | None:
        found = []
        for source, match in matches.items():
            if (predicted := match.predict()) is not None:
                class_ = Class.of(self.recorded.kind, source, match.length, predicted.share)
                found.append(Guess(predicted.token, self._memory.chances.of(class_), class_))
        return max(found, key=lambda guess: guess.chance, default=None)

    def verify(self, guesses: Sequence[Guess], sent: int) -> int:
        """Learn from the guesses; take what a step gives to which so many of them were sent; returns how many are
        right.
        """
        place, right = self.place, 0
        for number, guess in enumerate(guesses):
            if place == len(self.tokens) or number > sent:
                break
            if guess.class_ is not None:
                is_right = guess.token == self.tokens[place]
                if number < sent or not number:
                    self._memory.chances.learn(guess.class_, right=is_right)
                if not is_right or number == sent:
                    break
            right += number < sent
            place += 1
        self.computed = place
        end = place + (place < len(self.tokens))
        while end < len(self.tokens) and not self.drawn[end]:
            end += 1
        self.text.add(self.tokens[self.place : end])
        self.place = end
        return right

    def finish(self) -> None:
        text = self._memory.texts[self.recorded.kind]
        text.end()
        text.add(self.tokens)


@dataclass
class Replayed:
    """Sums over a replay. `tried` and `right`: first guesses by kind and length of match."""

    steps: int = 0
    row_steps: int = 0
    seconds: float = 0.0
    tokens: int = 0
    drafted: int = 0
    accepted: int = 0
    tried: Counter[tuple[str, int]] = field(default_factory=Counter)
    right: Counter[tuple[str, int]] = field(default_factory=Counter)


def replay(records: Sequence[Recorded], rows: int, costs: Costs, *, drafts: bool, shared: bool = True) -> Replayed:
    """Run all outputs, so many at once, as a drain does."""
    memory, left, running, sums = Memory(), [each for each in records if each.spans][::-1], list[Row](), Replayed()
    while left or running:
        while left and len(running) < rows:
            running.append(Row(left.pop(), memory, shared=shared))
        _step(running, costs, sums, drafts=drafts)
        for row in running:
            if row.done:
                row.finish()
        running = [row for row in running if not row.done]
    return sums


def _step(running: list[Row], costs: Costs, sums: Replayed, *, drafts: bool) -> None:
    known = sum(max(1, row.place - row.computed) for row in running)
    context = sum(row.context for row in running)
    guessed = [row.guesses() if drafts else [] for row in running]
    ranked = sorted(
        ((guess.chance, -place, index) for index, each in enumerate(guessed) for place, guess in enumerate(each)),
        reverse=True,
    )
    gains = [(chance, float(guessed[index][-place].class_ is not None)) for chance, place, index in ranked]
    count = affordable(
        len(running),
        gains,
        lambda number: costs.with_drafts(known, context, number, len(running)),
        len(running) / costs.step(known, context),
    )
    sent = Counter(index for *_, index in ranked[:count])
    sums.steps += 1
    sums.row_steps += len(running)
    sums.seconds += costs.with_drafts(known, context, count, len(running))
    sums.drafted += count
    for index, (row, guesses) in enumerate(zip(running, guessed, strict=True)):
        if guesses and guesses[0].class_ is not None:
            key = row.recorded.kind, guesses[0].class_.length
            sums.tried[key] += 1
            sums.right[key] += guesses[0].token == row.tokens[row.place]
        before = row.place
        sums.accepted += row.verify(guesses, sent[index])
        sums.tokens += row.place - before
