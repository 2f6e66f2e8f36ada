"""Chooses drafts: which tokens probably come next, and how many of them are worth their place in a step.

Drafts need all results before the next step is planned: without them, the host's work is hidden behind the device's.
Whether that pays, too, is arithmetic, by what drafts gave in the last steps that had the choice.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from thothy_ai.engine.api.errors import GrammarError
from thothy_ai.engine.drafting.budget import affordable
from thothy_ai.engine.drafting.chances import Chances, Class
from thothy_ai.engine.drafting.matching import LONGEST, Match, Tokens
from thothy_ai.engine.drafting.step_times import Mean, StepTimes
from thothy_ai.engine.grammar.json_schema import JsonGrammar
from thothy_ai.engine.scheduling.drafts import DraftedTokens, DraftRoom, DraftSpan
from thothy_ai.engine.scheduling.sequence import Sequence

_MAX_DRAFTED = 16  # drafted tokens of a sequence in a step
_LOOKED_AT = 4  # guesses for each place of a step, after which no further sequence is looked at
_MIN_CHANCE = 0.1  # beyond which no more are looked for
_PROFILES, _PROFILE_TOKENS = 64, 1 << 15  # texts that are kept, the last used ones, and their length
_FRACTIONS = 8  # of the drafts found, at which what they give is remembered
_FIRST_GAINS = (0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # before any were looked for
_FIRST_DRAFTS = 3.0
_PROBE = 512  # steps after which they are looked for again, as if they never had been


class _Guess(NamedTuple):
    span: DraftSpan
    chance: float  # that it is right, and all before it
    class_: Class


@dataclass(eq=False, slots=True)
class _Text:
    """A running sequence's tokens as an array, and the guesses of its last step that are to be judged."""

    tokens: Tokens
    guesses: list[_Guess] = field(default_factory=list)
    start: int = 0
    sent: int = 0


class AutomaticDrafter:
    """Implements `Drafter`. Owned by the core, used by its thread. `measured`: as that of `StepTimes`."""

    def __init__(self, measured: Mapping[int, float], longest: int) -> None:
        self.times = StepTimes(measured)
        self._longest = longest
        self._chances = Chances()
        self._texts: dict[Sequence, _Text] = {}
        self._profiles: OrderedDict[tuple[str, str], Tokens] = OrderedDict()
        self._gains = [*_FIRST_GAINS]  # draws saved, per row, by so many eighths of the drafts that are found
        self._drafts = _FIRST_DRAFTS  # found, per row
        self._hidden, self._exposed = Mean(), Mean()  # seconds of the host per row, with overlap and without
        self._idle = 0  # steps since drafts were looked for

    # ---- whether

    def observe_host(self, seconds: float, rows: int, *, exposed: bool) -> None:
        """Learn what the host took for a step, besides waiting for the device; `exposed`: while that had nothing."""
        (self._exposed if exposed else self._hidden).add(seconds / max(1, rows))

    def is_worthwhile(self, rows: int, places: int) -> bool:
        """Whether the next step should be planned with drafts, for so many rows and at most `places` drafts."""
        self._idle += 1
        plain = self._plain_rate(rows)
        if plain is None or not rows or places <= 0:
            return False
        curves = [(self._gains, self._drafts)]
        if self._idle >= _PROBE:
            self._exposed = Mean()
            curves.append(([*_FIRST_GAINS], _FIRST_DRAFTS))
        for gains, drafts in curves:
            for number, gain in enumerate(gains, 1):
                count = min(places, round(rows * drafts * number / _FRACTIONS))
                seconds = self._seconds(rows, count)
                if count and seconds is not None and (rows + rows * gain) / seconds > plain:
                    return True
        return False

    def _plain_rate(self, rows: int) -> float | None:
        """Tokens per second without drafts."""
        seconds = self.times.of(rows)
        return None if seconds is None else rows / max(seconds, rows * (self._hidden.value or 0.0), 1e-9)

    def _seconds(self, rows: int, drafts: int) -> float | None:
        """Seconds of a step with drafts, and of the host's work before it."""
        seconds = self.times.of(rows + drafts)
        host = self._hidden.value or 0.0 if self._exposed.value is None else self._exposed.value
        return None if seconds is None else seconds + rows * host

    # ---- which

    def choose(self, rooms: Seq[DraftRoom], tokens: int, places: int) -> Mapping[Sequence, DraftedTokens]:
        self._idle = 0
        found, looked_at = list[tuple[Sequence, list[_Guess]]](), 0
        for room in rooms:
            if looked_at >= _LOOKED_AT * places:
                break
            found.append((room.sequence, self._guess(room)))
            looked_at += len(found[-1][1])
        guessed = enumerate(guesses for _, guesses in found)
        ranked = sorted((-guess.chance, place, row) for row, guesses in guessed for place, guess in enumerate(guesses))[
            :places
        ]
        self._learn_gains(len(rooms), [-chance for chance, *_ in ranked])
        gains = [(-chance, 1.0) for chance, *_ in ranked]
        plain = self._plain_rate(tokens)
        lengths = np.cumsum([len(found[row][1][place].span.tokens) for _, place, row in ranked], dtype=np.int64)
        if plain is None or not len(lengths):
            return {}
        count = affordable(
            len(rooms), gains, lambda number: self._seconds(tokens, int(lengths[number - 1])) or np.inf, plain
        )
        count = min(count, int(np.searchsorted(lengths, places, side="right")))
        for _, place, row in ranked[:count]:
            text = self._texts[found[row][0]]
            text.sent = max(text.sent, place + 1)
        drafts = {}
        for sequence, guesses in found:
            text = self._texts[sequence]
            if text.sent:
                drafts[sequence] = DraftedTokens(text.start, [guess.span for guess in guesses[: text.sent]])
            # Judging needs no grammars, which are large.
            text.guesses = [each._replace(span=each.span._replace(grammar=None)) for each in guesses[: text.sent + 1]]
        return drafts

    def _learn_gains(self, rows: int, chances: Seq[float]) -> None:
        sums = np.cumsum(chances) / rows if chances else np.zeros(1)
        places = [max(0, len(sums) * number // _FRACTIONS - 1) for number in range(1, _FRACTIONS + 1)]
        self._gains = [
            before + (float(sums[place]) - before) / 8 for before, place in zip(self._gains, places, strict=True)
        ]
        self._drafts += (len(chances) / rows - self._drafts) / 8

    def _guess(self, room: DraftRoom) -> list[_Guess]:
        """Spans that may follow the sequence's tokens, each with the chance that it and all before it are right."""
        sequence = room.sequence
        text = self._judged(sequence)
        text.guesses, text.start, text.sent = [], len(sequence.tokens), 0
        if sequence.request.sampling.logprobs is not None or not isinstance(sequence.grammar, JsonGrammar | None):
            return []
        own = text.tokens.tokens
        last = own[-LONGEST - 1 :]
        matches = {"own": Match.of(own, last)}
        if (others := self._profiles.get(_profile(sequence))) is not None:
            matches["others"] = Match.of(others.tokens, last)
        grammar, chance, left = sequence.grammar, 1.0, min(_MAX_DRAFTED, room.tokens)
        while left > 0:
            best = self._likeliest(sequence.request.profile, matches)
            if best is None or chance * best[1] < _MIN_CHANCE:
                break
            token, own_chance, class_ = best
            span = _span(grammar, token, sequence)
            if span is None or len(span.tokens) > left:
                break
            chance *= own_chance
            text.guesses.append(_Guess(span, chance, class_))
            grammar, left = span.grammar, left - len(span.tokens)  # type: ignore[assignment]  # as the first one
            for each in span.tokens:
                matches = {source: match.after(each) for source, match in matches.items()}
        return text.guesses

    def _likeliest(self, profile: str, matches: Mapping[str, Match]) -> tuple[int, float, Class] | None:
        found = []
        for source, match in matches.items():
            if (predicted := match.predict()) is not None:
                class_ = Class.of(profile, source, match.length, predicted.share)
                found.append((predicted.token, self._chances.of(class_), class_))
        return max(found, key=lambda each: each[1], default=None)

    def _judged(self, sequence: Sequence) -> _Text:
        """The sequence's text with its newest tokens, after learning from what was guessed of them."""
        text = self._texts.get(sequence)
        if text is None:
            text = self._texts[sequence] = _Text(Tokens(self._longest + 1))
            text.tokens.add(sequence.tokens)
            return text
        place = text.start
        for number, guess in enumerate(text.guesses):
            if place >= len(sequence.tokens) or number > text.sent:
                break
            right = sequence.tokens[place] == guess.span.tokens[0]
            self._chances.learn(guess.class_, right=right)
            place += len(guess.span.tokens)
            if not right:
                break
        if len(sequence.tokens) > (known := len(text.tokens.tokens)):
            text.tokens.add(sequence.tokens[known:])
        return text

    # ---- what texts leave

    def leave(self, sequence: Sequence) -> None:
        """A sequence has ended: keep its output for others of its profile."""
        self._texts.pop(sequence, None)
        profile = _profile(sequence)
        kept = self._profiles.setdefault(profile, Tokens(_PROFILE_TOKENS))
        self._profiles.move_to_end(profile)
        if len(self._profiles) > _PROFILES:
            self._profiles.popitem(last=False)
        kept.end()
        kept.add(sequence.tokens[sequence.prompt_tokens :])


def _profile(sequence: Sequence) -> tuple[str, str]:
    """Whose outputs a sequence's may resemble: never those of another tenant."""
    return sequence.request.salt, sequence.request.profile


def _span(grammar: JsonGrammar | None, token: int, sequence: Sequence) -> DraftSpan | None:
    """A token and what is forced after it; None if it is not allowed there, or nothing is drawn after it."""
    if token in sequence.end_tokens:
        return None
    if grammar is None:
        return DraftSpan((token,), None)
    try:
        after = grammar.after(token)
    except GrammarError:
        return None
    if after is None or not sequence.end_tokens.isdisjoint(after[1]):
        return None
    return DraftSpan((token, *after[1]), after[0])
