"""Sequences in the order of their prompts, against what counting every prompt gives."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from thothy_ai.engine.api import SamplingParams
from thothy_ai.engine.api.core import CoreRequest
from thothy_ai.engine.scheduling.prompt_order import Path, PromptOrder, PromptPlace, path_of
from thothy_ai.engine.scheduling.sequence import Sequence

STRIDE = 32


def sequence(*parts: int, own: int = 0, salt: str = "") -> Sequence:
    """A prompt of a stride of each part's token, and tokens too few to count."""
    prompt = tuple(part for part in parts for _ in range(STRIDE)) + (99,) * own
    return Sequence(CoreRequest("", prompt or (1,), SamplingParams(), salt=salt), max_tokens=1)


def test_paths_begin_alike_exactly_as_far_as_prompts_do() -> None:
    one, other = path_of(sequence(1, 2, 3, own=31)), path_of(sequence(1, 2, 4))
    assert len(one) == len(other) == 3
    assert one[:2] == other[:2]
    assert one[2] != other[2]
    assert path_of(sequence(5, 2))[1] != one[1]  # the same tokens after others
    assert path_of(sequence(1, salt="tenant"))[0] != one[0]
    assert path_of(sequence(own=5)) == ()


def shortest_shared_by_at_most(paths: list[Path], path: Path, most: int) -> Path | None:
    for depth in range(len(path) + 1):
        if sum(other[:depth] == path[:depth] for other in paths) <= most:
            return path[:depth]
    return None


prompts = st.lists(st.lists(st.integers(1, 2), max_size=4), min_size=1, max_size=14)


@settings(max_examples=300)
@given(prompts, st.integers(0, 6), st.integers(0, 13), st.integers(0, 3))
def test_beginnings_are_those_that_counting_finds(parts: list[list[int]], most: int, chosen: int, removed: int) -> None:
    order = PromptOrder()
    places = []
    for arrival, prompt in enumerate(parts):
        made = sequence(*prompt)
        places.append(PromptPlace(path_of(made), arrival, made))
        order.add(places[-1])
    for place in places[len(places) - removed :] if removed < len(places) else []:
        order.remove(place)
        places.remove(place)
    assert len(order) == len(places)
    place = places[chosen % len(places)]
    paths = [other.path for other in places]
    assert order.prefix(place, most) == shortest_shared_by_at_most(paths, place.path, most)
    for depth in range(len(place.path) + 1):
        beginning = place.path[:depth]
        expected = [other for other in places if other.path[:depth] == beginning]
        assert sorted(order.sharing(beginning)) == sorted(expected)
