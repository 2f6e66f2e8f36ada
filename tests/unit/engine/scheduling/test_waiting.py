"""The waiting queue: priorities, deadlines, long outputs first, siblings together, and none starves."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import chain, count, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thothy_ai.engine.api import SamplingParams
from thothy_ai.engine.api.core import CoreRequest
from thothy_ai.engine.scheduling import prompt_order
from thothy_ai.engine.scheduling import waiting as waiting_module
from thothy_ai.engine.scheduling.admission import LengthEstimator
from thothy_ai.engine.scheduling.prefix_groups import common_length
from thothy_ai.engine.scheduling.sequence import Sequence
from thothy_ai.engine.scheduling.waiting import WaitingQueue

NOW = 1_000_000.0
PATIENCE, FAMILY = 16, 32
LENGTHS = {"hook": 60, "translation": 300, "report": 900}  # max_tokens; half of that is expected
_own = count(1000)


def tokens(name: object, number: int) -> tuple[int, ...]:
    draw = random.Random(str(name))
    return tuple(draw.choices(range(1000), k=number))


def job(
    profile: str = "hook",
    *beginnings: tuple[object, int],
    priority: int = 0,
    deadline: float | None = None,
    salt: str = "",
    max_tokens: int | None = None,
) -> Sequence:
    """A prompt that begins with parts by name and length, and ends with 40 tokens of its own."""
    prompt = sum((tokens(*part) for part in (*beginnings, (next(_own), 40))), ())
    request = CoreRequest("", prompt, SamplingParams(), profile, salt, priority, deadline)
    return Sequence(request, max_tokens=max_tokens or LENGTHS.get(profile, 8))


def queue_of(
    *sequences: Sequence, lengths: LengthEstimator | None = None, keeping: Callable[[int], int] = lambda _: 0
) -> WaitingQueue:
    made = WaitingQueue(lengths or LengthEstimator(), keeping, clock=lambda: NOW)
    for sequence in sequences:
        made.add(sequence)
    return made


def admitted(waiting: WaitingQueue, most: int | None = None) -> list[Sequence]:
    order = []
    while waiting and len(order) != most:
        order.append(waiting.first())
        waiting.remove(order[-1])
    return order


def test_long_outputs_go_first_and_equals_as_they_came() -> None:
    jobs = [job(profile) for profile in ("hook", "report", "translation", "report", "hook")]
    assert admitted(queue_of(*jobs)) == [jobs[place] for place in (1, 3, 2, 0, 4)]


def test_within_a_profile_the_longer_job_goes_first() -> None:
    jobs = [job("translation", max_tokens=most) for most in (100, 700, 300)]
    assert [each.max_tokens for each in admitted(queue_of(*jobs))] == [700, 300, 100]


def test_what_is_learnt_while_they_wait_counts() -> None:
    lengths = LengthEstimator()
    waiting = queue_of(job("hook", max_tokens=500), job("report", max_tokens=400), lengths=lengths)
    assert waiting.first().request.profile == "hook"
    lengths.observe("hook", 5, 500)
    waiting.add(job("other", max_tokens=1))
    assert waiting.first().request.profile == "report"


@pytest.mark.parametrize("house", [0, 96, 300, 2000])
@pytest.mark.parametrize("instructed_first", [False, True])
def test_siblings_are_together_whatever_begins_all_prompts_and_in_any_order(house: int, instructed_first: bool) -> None:
    """A house prompt, then perhaps the kind's instructions, then the source."""
    sources = 40
    jobs = []
    for source in range(sources):
        for kind in LENGTHS:
            parts = [("house", house), (kind, 150)] if instructed_first else [("house", house)]
            jobs += [job(kind, *parts, (("source", source, kind if instructed_first else ""), 400)) for _ in range(2)]
    random.Random(3).shuffle(jobs)
    shared = house + (150 if instructed_first else 0) + 400
    order = [each.request.prompt[:shared] for each in admitted(queue_of(*jobs))]
    runs = 1 + sum(one != other for one, other in pairwise(order))
    families = len(set(order))
    assert families == sources * (3 if instructed_first else 1)
    assert runs <= families + len(jobs) // PATIENCE  # the one that waited longest may have come before its siblings


@pytest.mark.parametrize(
    ("running", "own", "together"), [(0, 160, True), (10, 160, True), (40, 160, False), (40, 60, True)]
)
def test_those_of_which_one_always_runs_are_no_siblings(running: int, own: int, *, together: bool) -> None:
    """Twenty of a hundred share a prefix. If forty run, eight of these do, and the longest of all go first, unless more
    than half of the prompts is shared.
    """
    jobs = [
        job("report", (voice, 128), ((voice, place), own), max_tokens=10 * place + voice)
        for voice in range(5)
        for place in range(1, 21)
    ]
    waiting = queue_of(*jobs, keeping=lambda _: running)
    order = [each.max_tokens for each in admitted(waiting, PATIENCE)]
    if together:
        assert len({most % 10 for most in order}) == 1
    else:
        assert order == sorted((each.max_tokens for each in jobs), reverse=True)[:PATIENCE]


def test_siblings_of_the_one_that_waited_longest_let_as_many_others_go_first() -> None:
    """The first to come are the shortest, and have nine siblings each."""
    families = [[job("report", (name, 200), max_tokens=10 + name) for _ in range(10)] for name in range(60)]
    order = [each.max_tokens - 10 for each in admitted(queue_of(*chain(*families)), 400)]
    runs = [name for name, before in zip(order, [None, *order], strict=False) if name != before]
    aged = [place for place, name in enumerate(runs) if name < 20]
    assert [runs[place] for place in aged] == [*range(len(aged))]
    assert all(PATIENCE <= later - earlier <= PATIENCE + 1 for earlier, later in pairwise(aged))
    assert len(aged) == 3


def test_the_longest_of_a_family_leads_it() -> None:
    short = [job(profile, ("one", 100)) for profile in ("hook", "translation")]
    long = [job(profile, ("two", 100)) for profile in ("hook", "report", "hook")]
    others = [job("translation"), job("hook"), job("hook"), job("hook")]
    order = admitted(queue_of(short[0], long[0], *others, long[1], short[1], long[2]))
    assert order[:3] == [long[1], long[0], long[2]]
    assert order[3:6] in ([short[1], short[0], others[0]], [others[0], short[1], short[0]])


def test_the_closest_sibling_follows_first() -> None:
    shared = ("house", 64), ("source", 100)
    lead = job("report", *shared, ("instructions", 64))
    far, close = job("translation", *shared), job("hook", *shared, ("instructions", 64))
    others = [job("translation") for _ in range(6)]
    assert admitted(queue_of(*others, far, close, lead))[:3] == [lead, close, far]


def test_siblings_that_are_held_back_follow_in_the_next_step() -> None:
    """Others go on meanwhile, with families of their own. Of two kinds within a family, one can be held back alone."""
    one, other, third = (
        [job("hook", (name, 128), (f"{name} {kind}", 64)) for kind in (1, 1, 2)] for name in ("one", "other", "third")
    )
    waiting = queue_of(*one, *other, *third)
    order = []
    for _ in range(2):
        order += admitted(waiting, 1)
        assert waiting.hold(waiting.first(), 128)
    assert order == [one[0], other[0]]
    assert waiting.first() is third[0]
    waiting.begin_step()
    assert waiting.first() is one[1]
    assert waiting.hold(one[1], 192)
    assert admitted(waiting, 3) == [one[2], *other[1:]]


def test_all_can_be_held_back_and_only_siblings_are() -> None:
    """A sequence that shares only part of a family's prefix is no sibling: all that wait may share the house prompt."""
    family = [job("hook", ("house", 64), ("source", 64)) for _ in range(3)]
    others = [job("hook", ("house", 64), (name, 64)) for name in range(60)]
    waiting = queue_of(*family, *others)
    assert not waiting.hold(waiting.first(), 64), "it would lead a family"
    assert admitted(waiting, 1) == family[:1]
    assert waiting.hold(waiting.first(), 64)
    assert admitted(waiting, 60) == others
    assert waiting.first() is None
    waiting.begin_step()
    assert admitted(waiting) == family[1:]


def test_one_that_is_held_back_does_not_go_for_having_waited_longest() -> None:
    families = [[job("hook", (name, 128)) for _ in range(20)] for name in range(3)]
    waiting = queue_of(*chain(*families))
    assert admitted(waiting, 18) == families[0][:18]
    assert waiting.hold(waiting.first(), 128)
    assert waiting.first() is families[1][0]


def test_another_tenant_is_no_sibling() -> None:
    mine, theirs = job("report", ("source", 100)), job("hook", ("source", 100), salt="theirs")
    assert admitted(queue_of(theirs, job("translation"), mine, job("translation")))[-1] is theirs


def test_a_sibling_that_comes_in_its_familys_turn_goes_with_it() -> None:
    lead = job("report", ("source", 100))
    waiting = queue_of(*(job("hook", ("source", 100)) for _ in range(3)), *(job("translation") for _ in range(6)), lead)
    assert admitted(waiting, 1) == [lead]
    late = job("hook", ("source", 100))
    waiting.add(late)
    assert late in admitted(waiting, 4)


@pytest.mark.parametrize("others", [0, 150])
def test_a_template_that_many_begin_with_leaves_the_order_to_lengths(others: int) -> None:
    """More than a family has, whether or not the rest of the queue begins so."""
    templated = [job("hook", ("template", 400), max_tokens=9 + 2 * index) for index in range(100)]
    jobs = [*templated, *(job("hook", max_tokens=10 + 2 * (index % 99)) for index in range(others))]
    lengths = sorted((each.max_tokens for each in jobs), reverse=True)
    random.Random(1).shuffle(jobs)
    order = admitted(queue_of(*jobs), PATIENCE)
    assert [each.max_tokens for each in order] == lengths[:PATIENCE]


def test_equal_prompts_are_no_family_that_never_ends() -> None:
    alike = tokens("alike", 96)
    jobs = [Sequence(CoreRequest("", alike, SamplingParams()), max_tokens=20) for _ in range(100)]
    longer = job("report")
    assert admitted(queue_of(*jobs, longer))[0] is longer


def test_a_family_that_never_ends_gives_way_after_a_turn() -> None:
    waiting = queue_of(job("report", ("source", 100)), *(job("translation") for _ in range(200)))
    profiles = []
    for _ in range(2 * FAMILY):
        profiles.append(admitted(waiting, 1)[0].request.profile)
        waiting.add(job("hook", ("source", 100)))
    assert "translation" in profiles
    assert profiles.count("hook") <= FAMILY + 2 * FAMILY // PATIENCE


def test_a_higher_priority_goes_first_and_breaks_into_a_family() -> None:
    siblings = [job("report", ("source", 100)) for _ in range(6)]
    waiting = queue_of(*siblings, *(job() for _ in range(10)))
    assert admitted(waiting, 1) == siblings[:1]
    urgent = job("hook", priority=1)
    waiting.add(urgent)
    assert waiting.first_above(0) is urgent
    assert waiting.first_above(1) is None
    assert admitted(waiting, 6) == [urgent, *siblings[1:]]


def test_preempted_ones_come_first_within_their_priority_the_last_of_them_before_all() -> None:
    waiting = queue_of()
    one, other, lower, higher = job(), job(), job("report", priority=-1), job("report", priority=1)
    for each in (one, other, lower):
        waiting.add(each)
        waiting.remove(each)
    late = job("report")
    waiting.add(late)
    waiting.add(higher)
    for each in (one, other, lower):
        waiting.push_front(each)
    assert len(waiting) == 5
    assert admitted(waiting) == [higher, other, one, late, lower]


def test_a_preempted_one_that_is_not_the_first_may_leave() -> None:
    one, other = job(), job()
    waiting = queue_of(one, other)
    for each in (one, other):
        waiting.remove(each)
        waiting.push_front(each)
    waiting.remove(one)
    assert admitted(waiting) == [other]


def test_a_deadline_goes_before_longer_ones_without_and_the_earlier_one_first() -> None:
    soon, later, never = job(deadline=NOW + 120), job(deadline=NOW + 1200), job("report")
    assert admitted(queue_of(never, later, soon)) == [soon, later, never]


def test_deadlines_that_differ_by_less_than_matters_leave_the_order_to_lengths() -> None:
    short, long = job("hook", deadline=NOW + 3600), job("report", deadline=NOW + 3605)
    assert admitted(queue_of(short, long)) == [long, short]


def test_siblings_follow_the_one_whose_deadline_is_nearest() -> None:
    siblings = [job("hook", ("source", 100), deadline=NOW + 100 * (1 + place)) for place in range(4)]
    others = [job("report", deadline=NOW + 150 + 10 * place) for place in range(6)]
    assert set(admitted(queue_of(*others, *siblings), 4)) == set(siblings)


@pytest.mark.parametrize("deadline", [NOW, NOW - 1e6, 0.0, -1e18, 1e300])
def test_a_deadline_that_has_passed_or_is_absurd_is_only_early_or_late(deadline: float) -> None:
    odd, soon = job(deadline=deadline), job(deadline=NOW + 5000)
    assert admitted(queue_of(soon, odd))[deadline > NOW] is odd


def passed_by(waiting: WaitingQueue, patient: Sequence, priority: int) -> int:
    """How many of a steady stream go before it."""
    passed = 0
    while True:
        for _ in range(2):
            waiting.add(job("report", priority=priority))
        if (chosen := waiting.first()) is patient:
            return passed
        waiting.remove(chosen)
        passed += 1
        assert passed < 1000


@pytest.mark.parametrize("priority", [0, 5])
def test_a_steady_stream_of_others_starves_none(priority: int) -> None:
    patient = job("hook", priority=0)
    waiting = queue_of(patient)
    assert passed_by(waiting, patient, priority) == PATIENCE


def test_a_preempted_one_does_not_starve_either() -> None:
    patient = job("hook")
    waiting = queue_of(patient)
    waiting.remove(patient)
    waiting.push_front(patient)
    assert passed_by(waiting, patient, 3) <= PATIENCE


def test_ageing_is_for_one_at_a_time_however_many_wait() -> None:
    """A thousand that have waited for long do not delay an urgent one."""
    waiting = queue_of(*(job() for _ in range(200)))
    for _ in range(10):
        for _ in range(PATIENCE + 1):
            waiting.add(job(priority=1))
        left = admitted(waiting, PATIENCE + 1)
        assert sum(each.request.priority for each in left) >= PATIENCE - 1


def test_each_of_thousands_of_long_prompts_is_compared_with_few_others(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = count()

    def counting(one: tuple[int, ...], other: tuple[int, ...]) -> int:
        next(compared)
        return common_length(one, other)

    for module in (prompt_order, waiting_module):
        monkeypatch.setattr(module, "common_length", counting)
    house = tokens("house", 2000)
    jobs = [
        Sequence(CoreRequest("", (*house, *tokens(index // 5, 500), index), SamplingParams()), max_tokens=8)
        for index in range(2000)
    ]
    random.Random(5).shuffle(jobs)
    assert len(admitted(queue_of(*jobs))) == 2000
    assert next(compared) < 2000 * FAMILY


moves = st.lists(
    st.one_of(
        st.tuples(
            st.just("add"),
            st.sampled_from([*LENGTHS, "new"]),
            st.integers(1, 4),
            st.sampled_from([-1, 0, 0, 0, 2]),
            st.sampled_from([None, None, NOW + 30, NOW + 9000]),
        ),
        st.just(("admit",)),
        st.just(("preempt",)),
        st.tuples(st.just("abort"), st.integers(0, 50)),
        st.tuples(st.just("learn"), st.sampled_from([*LENGTHS, "new"]), st.integers(1, 900)),
        st.tuples(st.just("run"), st.sampled_from([0, 1, 10, 500])),
    ),
    max_size=120,
)


@settings(max_examples=200)
@given(moves)
def test_each_leaves_once_the_highest_priority_first_and_the_oldest_is_passed_by_few(moves: list[tuple]) -> None:
    lengths = LengthEstimator()
    came: list[Sequence] = []
    gone: list[Sequence] = []
    running = passed = 0
    waiting = queue_of(lengths=lengths, keeping=lambda _: running)
    for move, *what in moves:
        if move == "add":
            profile, source, priority, deadline = what
            came.append(job(profile, ("house", 64), (source, 64), priority=priority, deadline=deadline))
            waiting.add(came[-1])
        elif move == "run":
            running = what[0]
        elif move == "learn":
            lengths.observe(what[0], what[1], 1000)
        elif move == "preempt" and gone:
            came.append(gone.pop())
            waiting.push_front(came[-1])
        elif move in {"admit", "abort"} and came:
            oldest = min(came, key=lambda sequence: sequence.arrival)
            left = waiting.first() if move == "admit" else came[what[0] % len(came)]
            if move == "admit":
                assert waiting.first() is left
                assert left.priority == max(sequence.priority for sequence in came)
                gone.append(left)
            passed = 0 if left is oldest else passed + 1
            waiting.remove(left)
            came.remove(left)
        assert len(waiting) == len(came)
        assert passed <= PATIENCE + FAMILY + len(gone)
    assert sorted(map(id, admitted(waiting))) == sorted(map(id, came))
