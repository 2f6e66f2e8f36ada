"""Chooses drafts: which tokens probably come next, and how many of them are worth their place in a step.

Drafts require that all results are read before the next step is planned, which costs overlap: without drafts, the
host's work is hidden behind the device's. Whether drafts still pay is computed from what they gained in the last steps
that looked for them. All rows of a step are handled together in a few array operations; only rows that get drafts are
handled one by one. What can wait until the step is launched is done then, by `learn`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from thothy_ai.engine.api.step import Float64, Int32, Int64
from thothy_ai.engine.grammar.json_schema import JsonGrammar
from thothy_ai.engine.scheduling.drafting.budget import affordable
from thothy_ai.engine.scheduling.drafting.chances import Chances, classes
from thothy_ai.engine.scheduling.drafting.drafts import DraftedTokens, DraftRoom
from thothy_ai.engine.scheduling.drafting.matching import AHEAD, NONE, Texts
from thothy_ai.engine.scheduling.drafting.step_times import Line, StepTimes
from thothy_ai.engine.scheduling.sequence import Sequence

_LOOKED_AT = 4  # sequences for which drafts are sought, per place of a step
_MIN_CHANCE = 0.1  # that a draft and all before it are right
_PROFILES, _MAX_TOKENS = 64, 1 << 14  # most recently used profiles that are kept; tokens per text
_FRACTIONS = np.arange(1, 9) / 8  # fractions of the drafts found for which the gain is remembered
_FIRST_GAINS = np.array((0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0))  # assumed before drafts were ever looked for
_FIRST_DRAFTS = 3.0
_REMEMBERED = 8  # looks for drafts, about
_FIRST_EXPECTED, _MOST_EXPECTED = 64.0, 1024.0  # right drafts; the newer half counts as much as all before
_ASKED = 4  # steps without drafts until it is computed again whether they pay
_FIRST_PAUSE, _LONGEST_PAUSE = 8, 512  # steps until drafts are tried again with the first gains


class _Guesses(NamedTuple):
    """Guesses for N sequences: tokens that may follow, their classes, and the chance that a token and all before it are
    right; each [N, AHEAD].
    """

    tokens: Int32
    classes: Int64
    chances: Float64


@dataclass(eq=False, slots=True)
class _Row:
    """The sequence in a row, how many of its tokens were added to its text, and the `guesses` for those after them: the
    drafts sent and one more, with their `classes`.
    """

    arrival: int = -1
    known: int = 0
    guesses: Seq[int] = ()
    classes: Seq[int] = ()


_Guessed = tuple[Seq[int], Seq[int], int, Seq[int]]  # guesses, their classes, the profile, the tokens that followed


class _Look(NamedTuple):
    """A look for drafts, from which nothing was learnt yet: the number of rows that draw, the descending `chances` of
    what was found for them, and what earlier looks had `guessed`.
    """

    rows: int
    chances: Float64
    guessed: Seq[_Guessed]


class AutomaticDrafter:
    """Implements `Drafter`. Owned by the core and used by its thread. `measured`: see `StepTimes`; `rows`: the engine's
    maximum.
    """

    def __init__(self, measured: Mapping[int, float], rows: int) -> None:
        self.times = StepTimes(measured)
        self._chances = Chances(_PROFILES)
        self._rows = [_Row() for _ in range(rows)]
        self._texts = Texts(rows + _PROFILES, _MAX_TOKENS)  # texts of the rows, then of the profiles
        self._profiles: OrderedDict[tuple[str, str], int] = OrderedDict()  # by salt and name, the last used one last
        self._expected = self._right = _FIRST_EXPECTED  # right drafts: by their chances, and in fact
        self._looks: list[_Look] = []
        self._ended: list[tuple[str, str, Seq[int]]] = []  # outputs to remember, with salt and profile
        self._gains = _FIRST_GAINS  # draws saved per row, by fraction of the drafts found
        self._drafts = _FIRST_DRAFTS  # drafts found per row
        self._seen = _REMEMBERED  # looks that these two are means of
        self._hidden, self._exposed = Line(), Line()  # the host's seconds by members: with overlap, and without
        self._idle, self._pause = 0, _FIRST_PAUSE  # steps since drafts were last looked for; steps to wait
        self._paid = True  # the last answer of `is_worthwhile`

    # ---- whether to draft

    def observe_host(self, seconds: float, members: int, *, exposed: bool) -> None:
        """Learn how long the host worked on a step, without its waits. `exposed`: the device was idle meanwhile."""
        (self._exposed if exposed else self._hidden).add(members, seconds)

    def is_worthwhile(self, rows: int, places: int) -> bool:
        """Whether to plan the next step with drafts, given its `rows` and at most `places` drafts."""
        self._idle += 1
        if rows and places > 0 and (self._paid or self._idle % _ASKED == 0):
            self._paid = self._pays(rows, places)
            return self._paid
        return False

    def _pays(self, rows: int, places: int) -> bool:
        """Whether some number of drafts would write more tokens per second than none."""
        plain = self._plain_rate(rows, rows)
        if plain is None:
            return False
        curves = [(self._gains, self._drafts)]
        if self._idle >= self._pause:  # one slow turn of the host can make drafts seem too costly
            self._exposed = Line()
            self._pause, self._seen = min(2 * self._pause, _LONGEST_PAUSE), 0  # the next look replaces old gains
            self._right += (self._expected - self._right) / _REMEMBERED  # texts may have changed
            curves.append((_FIRST_GAINS, _FIRST_DRAFTS))
        for gains, drafts in curves:
            counts = np.minimum(places, np.rint(rows * drafts * _FRACTIONS).astype(np.int64))
            rates = rows * (1 + gains) / self._seconds(rows + counts)
            if (rates[counts > 0] > plain).any():
                return True
        return False

    def _plain_rate(self, rows: int, tokens: int) -> float | None:
        """Tokens per second without drafts, in steps of this many rows and tokens."""
        seconds, host = self.times.of(np.array(tokens)), self._hidden.at(np.array(tokens))
        return None if seconds is None else rows / max(float(seconds), 0.0 if host is None else float(host), 1e-9)

    def _seconds(self, tokens: Int64) -> Float64:
        """Seconds of steps with these numbers of tokens, drafts included, and of the host's work before each. Until
        that was measured, it takes as long as with overlap.
        """
        seconds = self.times.of(tokens)
        if seconds is None:
            return np.full(tokens.shape, np.inf)
        host = next((found for line in (self._exposed, self._hidden) if (found := line.at(tokens)) is not None), 0.0)
        return seconds + host

    # ---- which drafts

    def choose(self, rooms: Seq[DraftRoom], tokens: int, places: int) -> Mapping[Sequence, DraftedTokens]:
        self._idle = 0
        looked_at = [room for room in rooms[: _LOOKED_AT * places] if _may_have_drafts(room.sequence)]
        if not looked_at:
            return {}
        sequences = [sequence for sequence, _ in looked_at]
        profiles = [self._profile(sequence.request.salt, sequence.request.profile) for sequence in sequences]
        guessed = self._extend_texts(sequences, profiles)
        guesses = self._guess([sequence.row for sequence in sequences], profiles)
        room = np.array([tokens for _, tokens in looked_at], np.int64)
        guesses.chances[(np.arange(AHEAD) >= room[:, None]) | (guesses.chances < _MIN_CHANCE)] = 0.0
        # Chances fall along a row: whatever stands before a chosen draft is chosen as well.
        ranked = (-guesses.chances).argsort(axis=None, kind="stable")[: min(places, np.count_nonzero(guesses.chances))]
        falling = guesses.chances.flat[ranked] * (self._right / self._expected)
        self._looks.append(_Look(len(rooms), falling, guessed))
        plain = self._plain_rate(len(rooms), tokens)
        if plain is None:
            return {}
        seconds = self._seconds(tokens + np.arange(1, len(ranked) + 1))
        chosen = ranked[: affordable(len(rooms), falling, seconds, plain)]
        self._expected += guesses.chances.flat[chosen].sum()
        counts = np.bincount(chosen // AHEAD, minlength=len(sequences)).tolist()
        drafts = dict[Sequence, DraftedTokens]()
        for sequence, count, found, classes_ in zip(
            sequences, counts, guesses.tokens.tolist(), guesses.classes.tolist(), strict=True
        ):
            row = self._rows[sequence.row]
            row.guesses, row.classes = found[: count + 1], classes_[: count + 1]
            sent = found[:count]
            if not sequence.end_tokens.isdisjoint(sent):
                del sent[next(place for place, token in enumerate(sent) if token in sequence.end_tokens) :]
            if sent:
                drafts[sequence] = DraftedTokens(len(sequence.tokens), sent)
        if drafts:
            self._pause = _FIRST_PAUSE
        return drafts

    def _guess(self, rows: Seq[int], profiles: Seq[int]) -> _Guesses:
        """Guess what follows the texts of N rows, by these texts or by other texts of their profiles."""
        found = self._texts.after([*rows, *rows], [*rows, *(len(self._rows) + profile for profile in profiles)])
        source = np.repeat((0, 1), len(rows))[:, None]  # the sequence's own text, or others
        guessed = classes(source, found.lengths[:, None] + np.arange(AHEAD), found.shares)
        chances = self._chances.of(np.array([*profiles, *profiles], np.int64), guessed)
        chances = np.where(found.tokens == NONE, 0.0, chances).cumprod(axis=1)
        best = chances.sum(axis=1).reshape(2, len(rows)).argmax(axis=0) * len(rows) + np.arange(len(rows))
        return _Guesses(found.tokens[best], guessed[best], chances[best])

    def _extend_texts(self, sequences: Seq[Sequence], profiles: Seq[int]) -> list[_Guessed]:
        """Add the sequences' new tokens to their texts; returns them with the earlier guesses."""
        guessed = list[_Guessed]()
        for sequence, profile in zip(sequences, profiles, strict=True):
            row, tokens = self._rows[sequence.row], sequence.tokens
            if row.arrival != sequence.arrival:
                self._texts.clear(sequence.row)
                row = self._rows[sequence.row] = _Row(sequence.arrival)
            new = tokens[row.known :]
            guessed.append((row.guesses, row.classes, profile, new))
            self._texts.add(sequence.row, new)
            row.known = len(tokens)
        return guessed

    # ---- what is learnt from the last step, while the device computes the next

    def learn(self) -> None:
        """Learn how often guesses were right, and remember the outputs that have ended."""
        looks, self._looks = self._looks, []
        for look in looks:
            self._learn_gains(look.rows, look.chances)
            self._learn_chances(look)
        ended, self._ended = self._ended, []
        for salt, profile, output in ended:
            self._texts.add(len(self._rows) + self._profile(salt, profile), [NONE, *output])

    def _learn_gains(self, rows: int, chances: Float64) -> None:
        sums = np.concatenate((np.zeros(1), chances.cumsum())) / rows
        self._seen = min(self._seen + 1, _REMEMBERED)
        self._gains = self._gains + (sums[(len(chances) * _FRACTIONS).astype(np.int64)] - self._gains) / self._seen
        self._drafts += (len(chances) / rows - self._drafts) / self._seen

    def _learn_chances(self, look: _Look) -> None:
        judged = list[tuple[int, int, bool]]()
        for guesses, guessed, profile, new in look.guessed:
            for number, (token, guess, class_) in enumerate(zip(new, guesses, guessed, strict=False), 1):
                if guess == NONE:
                    break
                judged.append((profile, class_, guess == token))
                if guess != token:
                    break
                self._right += number < len(guesses)  # the last guess was not sent
        if judged:
            self._chances.learn(*zip(*judged, strict=True))
        if self._expected > _MOST_EXPECTED:
            self._expected, self._right = self._expected / 2, self._right / 2

    # ---- texts of ended sequences

    def leave(self, sequence: Sequence) -> None:
        """Keep the output of an ended sequence for others of its profile, which find it once `learn` was called."""
        request = sequence.request
        self._ended.append((request.salt, request.profile, sequence.tokens[sequence.prompt_tokens :]))

    def _profile(self, salt: str, name: str) -> int:
        """The number of a profile, by salt and name: tenants never share one."""
        key = salt, name
        number = self._profiles.get(key)
        if number is None:
            number = len(self._profiles) if len(self._profiles) < _PROFILES else self._profiles.popitem(last=False)[1]
            self._texts.clear(len(self._rows) + number)
            self._chances.forget(number)
            self._profiles[key] = number
        self._profiles.move_to_end(key)
        return number


def _may_have_drafts(sequence: Sequence) -> bool:
    grammar = sequence.grammar
    if sequence.request.sampling.logprobs is not None:
        return False
    return grammar is None or (isinstance(grammar, JsonGrammar) and not grammar.closes)
