"""The waiting queue: long outputs first, siblings together, preempted sequences before all, and none starves."""

from __future__ import annotations

from itertools import count
from math import inf

from hypothesis import given, settings
from hypothesis import strategies as st

from thothy_ai.engine.api import SamplingParams
from thothy_ai.engine.core_api import CoreRequest
from thothy_ai.engine.scheduling.admission import LengthEstimator
from thothy_ai.engine.scheduling.sequence import Sequence
from thothy_ai.engine.scheduling.waiting import WaitingQueue

OUTPUTS = {"hook": 50, "translation": 250, "report": 650}
BOUND = 5
_own = count(1000)


def learnt() -> LengthEstimator:
    lengths = LengthEstimator()
    for profile, tokens in OUTPUTS.items():
        lengths.observe(profile, tokens)
    return lengths


def job(profile: str, *, source: int | None = None, salt: str = "") -> Sequence:
    """A prompt of its own, or one that begins with its source."""
    beginning = next(_own) if source is None else source
    prompt = (*(beginning,) * 300, next(_own))
    return Sequence(CoreRequest("", prompt, SamplingParams(), profile=profile, salt=salt), max_tokens=8)


def queue_of(*sequences: Sequence, lengths: LengthEstimator | None = None, bound: int = 100) -> WaitingQueue:
    made = WaitingQueue(lengths or learnt(), bound)
    for sequence in sequences:
        made.add(sequence)
    return made


def admitted(waiting: WaitingQueue, most: int | None = None) -> list[Sequence]:
    order = []
    while waiting and len(order) != most:
        order.append(waiting.first())
        waiting.remove(order[-1])
    return order


def profiles(waiting: WaitingQueue) -> list[str]:
    return [sequence.request.profile for sequence in admitted(waiting)]


def test_long_outputs_go_first_and_equals_as_they_came() -> None:
    jobs = [job(profile) for profile in ("hook", "report", "translation", "report", "hook")]
    assert admitted(queue_of(*jobs)) == [jobs[place] for place in (1, 3, 2, 0, 4)]


def test_first_come_first_served_before_anything_is_learnt() -> None:
    jobs = [job(profile) for profile in ("hook", "report", "hook", "translation")]
    assert admitted(queue_of(*jobs, lengths=LengthEstimator())) == jobs


def test_what_has_finished_nothing_yet_may_be_the_longest() -> None:
    assert profiles(queue_of(job("report"), job("unheard of"))) == ["unheard of", "report"]


def test_siblings_stay_together_wherever_the_longest_of_them_stands() -> None:
    short = [job(profile, source=1) for profile in ("hook", "translation")]
    long = [job(profile, source=2) for profile in ("hook", "report", "hook")]
    between = [job("translation"), job("hook")]
    came = [short[0], long[0], between[0], long[1], short[1], between[1], long[2]]
    assert admitted(queue_of(*came)) == [*long, *short, *between]


def test_another_tenant_is_no_sibling() -> None:
    mine, theirs = job("report", source=1), job("hook", source=1, salt="theirs")
    assert admitted(queue_of(theirs, mine)) == [mine, theirs]


def test_a_sibling_that_comes_while_its_family_is_admitted_goes_with_it() -> None:
    waiting = queue_of(*(job("hook", source=1) for _ in range(2)), job("hook"))
    waiting.remove(waiting.first())
    late = job("hook", source=1)
    waiting.add(late)
    assert admitted(waiting)[1] is late


def test_a_family_of_a_long_template_gives_way_after_a_turn() -> None:
    waiting = queue_of(*(job("hook", source=1) for _ in range(100)))
    admitted(waiting, 3)
    for _ in range(4):
        waiting.add(job("report"))
    assert profiles(waiting) == ["hook"] * 13 + ["report"] * 4 + ["hook"] * 84


def test_what_is_learnt_during_a_turn_counts_after_it() -> None:
    lengths = LengthEstimator()
    waiting = queue_of(*(job(p, source=s) for s, p in ((1, "hook"), (2, "report")) for _ in range(40)), lengths=lengths)
    assert {sequence.request.profile for sequence in admitted(waiting, 16)} == {"hook"}
    for profile, tokens in OUTPUTS.items():
        lengths.observe(profile, tokens)
    assert profiles(waiting) == ["report"] * 40 + ["hook"] * 24


def test_a_sequence_that_has_left_no_longer_counts_for_its_family() -> None:
    hook, stranger, report = job("hook", source=1), job("unheard of", source=1), job("report")
    waiting = queue_of(hook, stranger, report)
    waiting.remove(stranger)
    assert admitted(waiting) == [report, hook]


def test_what_came_first_goes_first_among_equals_whenever_it_was_learnt_that_they_are() -> None:
    first, second = [job("report", source=2)], [job("hook", source=1), job("report", source=1)]
    came = [second[0], first[0], second[1]]
    assert admitted(queue_of(*came)) == [*second, *first]


def test_siblings_stay_together_though_a_longer_one_comes_in_their_turn() -> None:
    siblings = [job("hook", source=1) for _ in range(6)]
    waiting = queue_of(*siblings)
    admitted(waiting, 1)
    waiting.add(job("report"))
    assert admitted(waiting)[:5] == siblings[1:]


def test_choosing_looks_at_few_lanes_however_many_profiles_clients_make_up() -> None:
    class Counting(LengthEstimator):
        asked = 0

        def mean(self, profile: str | None) -> float:
            self.asked += 1
            return super().mean(profile)

    lengths = Counting()
    jobs = [job(f"made up {index}") for index in range(500)]
    waiting = queue_of(*jobs, lengths=lengths, bound=1000)
    lengths.asked = 0
    assert waiting.first() is jobs[0]
    assert lengths.asked < 5
    assert admitted(waiting) == jobs


def test_only_so_many_profiles_are_kept_the_least_recently_observed_go() -> None:
    lengths = learnt()
    for index in range(300):
        lengths.observe(str(index), 10)
        lengths.observe("report", 650)
    assert lengths.mean("report") == 650
    assert lengths.mean("hook") == lengths.mean("0") == inf
    assert lengths.mean("299") == 10
    assert lengths.longest(["299", "report"]) == "report"
    assert lengths.longest(["299", "hook"]) is None


def test_a_profile_that_is_forgotten_while_its_jobs_wait_counts_as_unknown() -> None:
    lengths = learnt()
    jobs = [job("hook"), job("report")]
    waiting = queue_of(*jobs, lengths=lengths)
    for index in range(256):
        lengths.observe(str(index), 10)
        lengths.observe("report", 650)
    assert admitted(waiting) == jobs


def test_preempted_ones_are_first_in_the_queue_the_last_of_them_before_all() -> None:
    waiting = queue_of(job("report"))
    one, other = job("hook"), job("hook")
    waiting.push_front(one)
    waiting.push_front(other)
    assert len(waiting) == 3
    assert admitted(waiting)[:2] == [other, one]


def test_a_preempted_one_that_is_not_the_first_may_leave() -> None:
    one, other = job("hook"), job("hook")
    waiting = queue_of()
    waiting.push_front(one)
    waiting.push_front(other)
    waiting.remove(one)
    assert admitted(waiting) == [other]


def test_a_steady_stream_of_long_ones_starves_no_short_one() -> None:
    short = job("hook")
    waiting = queue_of(short, bound=BOUND)
    overtook = 0
    while True:
        waiting.add(job("report"))
        if (chosen := waiting.first()) is short:
            break
        waiting.remove(chosen)
        overtook += 1
    assert overtook == BOUND


moves = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from([*OUTPUTS, "new"]), st.integers(1, 4)),
        st.just(("admit",)),
        st.tuples(st.just("abort"), st.integers(0, 50)),
        st.tuples(st.just("learn"), st.sampled_from([*OUTPUTS, "new"]), st.integers(1, 900)),
    ),
    max_size=80,
)


@settings(max_examples=200, deadline=None)
@given(moves)
def test_each_leaves_once_and_is_overtaken_at_most_so_often(moves: list[tuple]) -> None:
    lengths, came, overtaken = learnt(), [], {}
    waiting = queue_of(lengths=lengths, bound=BOUND)
    for move, *what in moves:
        if move == "add":
            came.append(job(what[0], source=what[1]))
            overtaken[came[-1]] = 0
            waiting.add(came[-1])
        elif move == "learn":
            lengths.observe(*what)
        elif came:
            left = waiting.first() if move == "admit" else came[what[0] % len(came)]
            for earlier in came[: came.index(left)]:
                overtaken[earlier] += move == "admit"
            waiting.remove(left)
            came.remove(left)
        assert len(waiting) == len(came)
    assert max(overtaken.values(), default=0) <= BOUND
    assert sorted(map(id, admitted(waiting))) == sorted(map(id, came))
