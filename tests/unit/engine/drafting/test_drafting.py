"""Where the longest suffix of a text stands in a text, how guesses are learnt from, and how many a step can afford."""

from __future__ import annotations

import random
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thothy_ai.engine.drafting.budget import affordable
from thothy_ai.engine.drafting.chances import Chances, Class
from thothy_ai.engine.drafting.drafter import AutomaticDrafter
from thothy_ai.engine.drafting.matching import LONGEST, Match, Predicted, Tokens
from thothy_ai.engine.drafting.step_times import StepTimes
from thothy_ai.engine.scheduling.drafts import DraftRoom

FEW = st.lists(st.integers(0, 3), max_size=60)


@given(FEW, FEW)
def test_the_longest_suffix_is_found_wherever_it_stands(text: list[int], last: list[int]) -> None:
    match = Match.of(np.array(text, np.int32), np.array(last, np.int32))

    def places(length: int) -> list[int]:
        return [at for at in range(length, len(text)) if text[at - length : at] == last[len(last) - length :]]

    longest = max((length for length in range(1, min(len(last), LONGEST) + 1) if places(length)), default=0)
    assert match.length == longest
    assert match.places.tolist() == (places(longest) if longest else [])


@given(FEW, st.integers(0, 3))
def test_a_match_goes_on_where_the_text_does(text: list[int], token: int) -> None:
    array = np.array(text, np.int32)
    match = Match.of(array, array)
    after = match.after(token)
    assert after.places.tolist() == [at + 1 for at in match.places if text[at] == token and at + 1 < len(text)]


def test_the_commonest_token_is_predicted_and_of_several_the_last() -> None:
    def predicted(*text: int) -> Predicted | None:
        array = np.array(text, np.int32)
        return Match.of(array, array[-1:]).predict()

    assert predicted(1, 7, 1, 8, 1, 7, 1) == (7, pytest.approx(2 / 3))
    assert predicted(1, 7, 1, 8, 1) == (8, 0.5)
    assert predicted(1, 2, 3) is None


@given(st.lists(FEW, max_size=40), st.integers(8, 90))
def test_a_text_keeps_its_end_in_bounded_memory(pieces: list[list[int]], most: int) -> None:
    tokens, whole = Tokens(most), list[int]()
    for piece in pieces:
        tokens.add(piece)
        whole += piece
        kept = tokens.tokens.tolist()
        assert len(kept) <= most
        assert kept == whole[len(whole) - len(kept) :]
        assert len(kept) >= min(len(whole), most // 2)


def test_a_text_does_not_go_on_in_the_next() -> None:
    tokens = Tokens(100)
    tokens.add([1, 2, 3])
    tokens.end()
    tokens.add([4])
    assert Match.of(tokens.tokens, np.array([3], np.int32)).predict() is None


def test_chances_are_what_was_right_and_begin_with_those_of_other_profiles() -> None:
    chances, draw = Chances(), random.Random(1)
    often, seldom = Class.of("hook", "own", 9, 1.0), Class.of("hook", "own", 1, 0.3)
    for _ in range(3_000):
        chances.learn(often, right=draw.random() < 0.9)
        chances.learn(seldom, right=draw.random() < 0.2)
    assert chances.of(often) == pytest.approx(0.9, abs=0.05)
    assert chances.of(seldom) == pytest.approx(0.2, abs=0.05)
    assert chances.of(often._replace(profile="section")) == pytest.approx(chances.of(often), abs=0.05)


def test_as_many_drafts_are_sent_as_pay() -> None:
    """Up to the edge of a size where the next one costs more; none where each token costs its part."""

    def stairs(drafts: int) -> float:
        return 1.0 if drafts <= 8 else 1.5

    gains = [(0.5, 1.0)] * 20
    assert affordable(8, gains, stairs, otherwise=8.0) == 8
    assert affordable(8, gains, lambda drafts: 1.0 + drafts / 8, otherwise=8.0) == 0
    assert affordable(8, [(0.9, 0.0)] * 4, lambda drafts: 1.0 + drafts / 1e3, otherwise=8.0) == 0


def test_times_follow_the_captured_sizes_and_what_steps_took() -> None:
    times = StepTimes({1: 0.004, 8: 0.004, 16: 0.005, 32: 0.009})
    assert times.of(4) is None
    for _ in range(50):
        times.observe(5, 0.006, decodes=True)  # 2 ms for reading KV
        times.observe(900, 0.5, decodes=False)
    assert times.of(8) == pytest.approx(0.006)
    assert times.of(9) == pytest.approx(0.007)
    assert times.of(32) == pytest.approx(0.011)


@pytest.mark.parametrize("rows", [1, 4, 16])
def test_one_slow_turn_does_not_switch_drafts_off_for_good(rows: int) -> None:
    sizes = {1: 0.004, 16: 0.0043, 64: 0.0065, 512: 0.031}
    drafter = AutomaticDrafter(sizes, 8000)
    for _ in range(30):
        drafter.times.observe(rows, 0.005, decodes=True)
        drafter.observe_host(30e-6 * rows, rows, exposed=False)
    assert drafter.is_worthwhile(rows, 512 - rows)
    drafter.observe_host(0.5, rows, exposed=True)
    assert not drafter.is_worthwhile(rows, 512 - rows)
    assert any(drafter.is_worthwhile(rows, 512 - rows) for _ in range(600))


class Running(SimpleNamespace):
    """What a drafter sees of a sequence."""

    __hash__ = object.__hash__


def test_the_work_of_choosing_is_bounded_by_the_places_of_a_step() -> None:
    """Texts that repeat themselves, of which each could have 16 drafts."""
    drafter = AutomaticDrafter({64: 0.004, 128: 0.0041}, 8000)
    drafter.times.observe(60, 0.004, decodes=True)
    drafter.observe_host(1e-5, 60, exposed=False)
    request = SimpleNamespace(sampling=SimpleNamespace(logprobs=None), profile="p", salt="")
    rooms = [
        DraftRoom(
            Running(
                tokens=[*range(10, 30)] * 3, request=request, grammar=None, end_tokens=frozenset[int](), prompt_tokens=0
            ),  # type: ignore[arg-type]
            4,
        )
        for _ in range(60)
    ]
    drafts = drafter.choose(rooms, 60, 4)
    assert (
        len(drafter._texts) <= 16
    )  # of 60 sequences: four guesses for each place, and one at least for each looked at
    assert 0 < sum(len(draft.tokens) for draft in drafts.values()) <= 4
    assert all(draft.tokens == [*range(10, 30)][: len(draft.tokens)] for draft in drafts.values())


def test_without_captured_sizes_times_grow_with_the_tokens() -> None:
    times = StepTimes({})
    times.observe(4, 0.010, decodes=True)
    assert times.of(4) is None
    times.observe(104, 0.110, decodes=False)
    assert times.of(4) == pytest.approx(0.010)
    assert times.of(14) == pytest.approx(0.020)
