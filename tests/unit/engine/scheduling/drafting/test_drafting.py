"""Where the longest suffix of a text stands in a text, how guesses are learnt from, and how many a step can afford."""

from __future__ import annotations

import random
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thothy_ai.engine.scheduling.drafting.budget import affordable
from thothy_ai.engine.scheduling.drafting.chances import Chances, classes
from thothy_ai.engine.scheduling.drafting.drafter import AutomaticDrafter
from thothy_ai.engine.scheduling.drafting.drafts import DraftedTokens, DraftRoom
from thothy_ai.engine.scheduling.drafting.matching import AHEAD, LONGEST, NONE, Texts
from thothy_ai.engine.scheduling.drafting.step_times import Line, StepTimes

FEW = st.lists(st.integers(0, 3), max_size=60)


@given(st.lists(st.tuples(FEW, FEW), min_size=1, max_size=4))
def test_what_follows_the_longest_suffix_is_found_for_all_texts_at_once(
    pairs: list[tuple[list[int], list[int]]],
) -> None:
    texts = Texts(2 * len(pairs), 100)
    for number, (text, last) in enumerate(pairs):
        texts.add(2 * number, text)
        texts.add(2 * number + 1, last)
    evens = range(0, 2 * len(pairs), 2)
    found = texts.after([each + 1 for each in evens], [*evens])
    for number, (text, last) in enumerate(pairs):

        def places(length: int, text: list[int] = text, last: list[int] = last) -> list[int]:
            return [at for at in range(length, len(text)) if text[at - length : at] == last[len(last) - length :]]

        longest = max((length for length in range(1, min(len(last), LONGEST) + 1) if places(length)), default=0)
        assert found.lengths[number] == longest
        assert found.tokens[number].tolist() == (
            [*text[places(longest)[-1] :], *[NONE] * AHEAD][:AHEAD] if longest else [NONE] * AHEAD
        )
        if longest:
            following = [text[at] for at in places(longest)]
            assert found.shares[number, 0] == pytest.approx(following.count(following[-1]) / len(following))


@given(st.lists(FEW, max_size=40), st.integers(8, 90))
def test_a_text_keeps_its_end_in_bounded_memory(pieces: list[list[int]], most: int) -> None:
    texts, whole = Texts(2, most), list[int]()
    for piece in pieces:
        texts.add(1, piece)
        whole += piece
        kept = texts[1].tolist()
        assert len(kept) <= most
        assert kept == whole[len(whole) - len(kept) :]
        assert len(kept) >= min(len(whole), most // 2)


def test_a_text_does_not_go_on_in_the_next() -> None:
    texts = Texts(2, 100)
    texts.add(0, [1, 2, 3, NONE, 4])
    texts.add(1, [3])
    assert texts.after([1], [0]).tokens.tolist() == [[NONE, 4, *[NONE] * (AHEAD - 2)]]


def test_chances_are_what_was_right_and_begin_with_those_of_other_profiles() -> None:
    chances, draw = Chances(3), random.Random(1)
    often, seldom = (
        classes(np.array(0), np.array([9]), np.array([1.0])),
        classes(np.array(0), np.array([1]), np.array([0.3])),
    )
    for _ in range(3_000):
        chances.learn((0, 0), (*often.tolist(), *seldom.tolist()), (draw.random() < 0.9, draw.random() < 0.2))
    both = np.stack((often, seldom), axis=1)
    assert chances.of(np.array([0]), both)[0] == pytest.approx([0.9, 0.2], abs=0.05)
    assert chances.of(np.array([1]), both)[0] == pytest.approx([0.9, 0.2], abs=0.05)
    chances.learn([1] * 100, often.tolist() * 100, [False] * 100)
    assert chances.of(np.array([1]), both)[0, 0] < 0.1
    chances.forget(1)
    assert chances.of(np.array([1]), both)[0, 0] > 0.7


def test_as_many_drafts_are_sent_as_pay() -> None:
    """Up to the edge of a size where the next one costs more; none where each token costs its part."""
    drafts = np.arange(1, 21)
    assert affordable(8, np.full(20, 0.5), np.where(drafts <= 8, 1.0, 1.5), otherwise=8.0) == 8
    assert affordable(8, np.full(20, 0.5), 1.0 + drafts / 8, otherwise=8.0) == 0
    assert affordable(8, np.zeros(0), np.zeros(0), otherwise=8.0) == 0


def test_a_line_follows_what_each_further_token_costs() -> None:
    line = Line()
    assert line.at(np.array([5])) is None
    for number in range(200):
        line.add(16 + number % 7, 1e-3 + 1e-5 * (16 + number % 7))
    assert line.at(np.array([16, 64])) == pytest.approx([1.16e-3, 1.64e-3], rel=0.05)


def test_times_follow_the_captured_sizes_and_what_steps_took() -> None:
    times = StepTimes({1: 0.004, 8: 0.004, 16: 0.005, 32: 0.009})
    assert times.of(np.array(4)) is None
    for _ in range(50):
        times.observe(5, 0.006, decodes=True)  # 2 ms for reading KV
        times.observe(900, 0.5, decodes=False)
    assert times.of(np.array(8)) == pytest.approx(0.006)
    assert times.of(np.array(9)) == pytest.approx(0.007)
    assert times.of(np.array(32)) == pytest.approx(0.011)


@pytest.mark.parametrize("rows", [1, 4, 16])
def test_one_slow_turn_does_not_switch_drafts_off_for_good(rows: int) -> None:
    sizes = {1: 0.004, 16: 0.0043, 64: 0.0065, 512: 0.031}
    drafter = AutomaticDrafter(sizes, 512)
    for _ in range(30):
        drafter.times.observe(rows, 0.005, decodes=True)
        drafter.observe_host(30e-6 * rows, rows, exposed=False)
    assert drafter.is_worthwhile(rows, 512 - rows)
    drafter.observe_host(0.5, rows, exposed=True)
    assert not drafter.is_worthwhile(rows, 512 - rows)
    assert any(drafter.is_worthwhile(rows, 512 - rows) for _ in range(10))


@pytest.mark.parametrize("rows", [1, 4, 16])
def test_the_hosts_work_on_a_step_is_not_assumed_to_grow_with_its_drafts(rows: int) -> None:
    """Most of it is the same for one row as for many, so that a few rows are no measure of what each draft costs."""
    made = AutomaticDrafter({1: 0.004, 16: 0.0043, 64: 0.0065, 512: 0.031}, 512)
    for _ in range(30):
        made.times.observe(rows, 0.005, decodes=True)
        made.observe_host(1.5e-3 + 30e-6 * rows, rows, exposed=False)
    assert made.is_worthwhile(rows, 512 - rows)


def test_where_nothing_is_found_drafts_are_looked_for_ever_less_often() -> None:
    made, looks = drafter(), list[int]()
    for step in range(4_000):
        if made.is_worthwhile(60, 68):
            assert not made.choose([room(row, [step], 4) for row in range(60)], 60, 68)
            made.observe_host(1e-5, 60, exposed=True)
            made.learn()
            looks.append(step)
    assert len(looks) > 20  # until it has learned that they are not found
    assert max(later - step for step, later in pairwise(looks)) >= 500
    assert len([step for step in looks if step > 1_000]) < 10


def test_chances_that_are_too_high_are_corrected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random texts, whose guesses are right one time in five but counted on; drafts must gain a quarter of a token."""
    monkeypatch.setattr(Chances, "of", lambda _, __, guessed: np.full(guessed.shape, 0.9))
    made, draw = AutomaticDrafter({60: 0.004, 128: 0.005}, 128), random.Random(2)
    made.times.observe(60, 0.004, decodes=True)
    texts, sent = [[0, 1, 2, 3, 4] * 2 for _ in range(60)], list[int]()
    for _ in range(60):
        drafts = made.choose([room(row, text, 1) for row, text in enumerate(texts)], 60, 68)
        sent.append(len(drafts))
        for text in texts:
            text.append(draw.randrange(5))
        made.learn()
    assert sent[0] > 50
    assert not any(sent[30:])


def test_drafts_that_are_found_again_are_sent_from_then_on() -> None:
    """Texts that are new for long, and then repeat themselves; drafts must gain a quarter of a token per row."""
    made, texts, answers = AutomaticDrafter({60: 0.004, 128: 0.005}, 128), [[row] for row in range(60)], list[bool]()
    made.times.observe(60, 0.004, decodes=True)
    for step in range(2_000):
        looks = made.is_worthwhile(60, 68)
        for row, text in enumerate(texts):
            text.append(1_000 * row + (step if step < 1_000 else step % 10))
        if looks:
            made.choose([room(row, text, 4) for row, text in enumerate(texts)], 60, 68)
            made.observe_host(1e-5, 60, exposed=True)
            made.learn()
        answers.append(looks)
    first = 1_000 + answers[1_000:].index(True)
    assert not any(answers[900:1_000])
    assert all(answers[first + 30 :])


class Running(SimpleNamespace):
    """What a drafter sees of a sequence."""

    __hash__ = object.__hash__


def room(row: int, tokens: list[int], most: int, profile: str = "p", *, salt: str = "") -> DraftRoom:
    request = SimpleNamespace(sampling=SimpleNamespace(logprobs=None), profile=profile, salt=salt)
    running = Running(
        tokens=tokens, request=request, grammar=None, end_tokens=frozenset[int](), prompt_tokens=0, row=row, arrival=row
    )
    return DraftRoom(running, most)  # type: ignore[arg-type]


def drafter() -> AutomaticDrafter:
    made = AutomaticDrafter({64: 0.004, 128: 0.0041}, 128)
    made.times.observe(60, 0.004, decodes=True)
    made.observe_host(1e-5, 60, exposed=False)
    return made


def test_the_work_of_choosing_is_bounded_by_the_places_of_a_step() -> None:
    """Texts that repeat themselves, of which each could have 16 drafts."""
    made = drafter()
    rooms = [room(row, [*range(10, 30)] * 3, 4) for row in range(60)]
    drafts = made.choose(rooms, 60, 4)
    assert [len(made._texts[row]) for row in range(60)] == [60] * 16 + [0] * 44  # four sequences for each place
    assert 0 < sum(len(draft.tokens) for draft in drafts.values()) <= 4
    assert all(draft.tokens == [*range(10, 30)][: len(draft.tokens)] for draft in drafts.values())


def test_what_is_remembered_is_bounded_and_each_tenants_own() -> None:
    """More profiles, texts and rows than there is room for: the least recently used are forgotten."""
    made = drafter()
    for number in range(200):
        made.leave(room(0, [*range(100)] * 400, 0, f"{number}").sequence)
    made.learn()
    assert len(made._profiles) == 64
    assert made._texts._matrix.shape[0] == 128 + 64
    assert made._texts._matrix.shape[1] < (1 << 14) + 100
    assert made._chances._tried.shape[0] == 64 + 1

    def drafted(profile: str, salt: str, arrival: int) -> list[DraftedTokens]:
        return [*made.choose([room(arrival, [7, 8, 9], 4, profile, salt=salt)], 1, 4).values()]

    assert drafted("199", "", 1)[0].tokens[0] == 10
    assert not drafted("0", "", 2)  # forgotten
    assert not drafted("199", "another tenant", 3)


def test_without_captured_sizes_times_grow_with_the_tokens() -> None:
    times = StepTimes({})
    times.observe(4, 0.010, decodes=True)
    assert times.of(np.array(4)) is None
    times.observe(104, 0.110, decodes=False)
    assert times.of(np.array(4)) == pytest.approx(0.010)
    assert times.of(np.array(14)) == pytest.approx(0.020)
