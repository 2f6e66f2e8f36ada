"""Expected lengths are shares of max_tokens, by profile."""

from __future__ import annotations

import random

import pytest

from thothy_ai.engine.scheduling.admission import LengthEstimator


def test_half_is_expected_and_reserved_of_what_is_unknown() -> None:
    lengths = LengthEstimator()
    assert (lengths.expected("new", 80), lengths.reserved("new", 80)) == (40.0, 40)
    assert lengths.reserved("new", 1) == 1


def test_a_share_is_learnt_so_that_longer_jobs_of_a_profile_are_expected_to_be_longer() -> None:
    lengths, draw = LengthEstimator(), random.Random(1)
    for _ in range(300):
        most = draw.randint(100, 2000)
        lengths.observe("translation", round(most * draw.uniform(0.5, 0.7)), most)
    assert lengths.expected("translation", 1000) == pytest.approx(600, abs=40)
    assert lengths.expected("translation", 200) == pytest.approx(120, abs=8)
    assert 600 < lengths.reserved("translation", 1000) < 720
    assert lengths.expected("other", 1000) == 500


def test_reserves_stay_between_one_and_max_tokens() -> None:
    lengths = LengthEstimator()
    for output, most in ((0, 50), (50, 50), (0, 50), (50, 50)):
        lengths.observe("a", output, most)
        assert 1 <= lengths.reserved("a", 10) <= 10


def test_only_so_many_profiles_are_kept_the_least_recently_observed_go() -> None:
    lengths = LengthEstimator()
    lengths.observe("forgotten", 1, 100)
    for index in range(300):
        lengths.observe(str(index), 10, 100)
        lengths.observe("kept", 65, 100)
    assert lengths.expected("kept", 100) == pytest.approx(65)
    assert lengths.expected("299", 100) == pytest.approx(10)
    assert lengths.expected("forgotten", 100) == lengths.expected("0", 100) == 50
