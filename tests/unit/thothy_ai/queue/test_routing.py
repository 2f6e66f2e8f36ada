"""Where jobs go: model, room, source, load; planned order holds, and nothing blocks what is behind it."""

from __future__ import annotations

from collections import Counter
from uuid import UUID, uuid4

from hypothesis import given
from hypothesis import strategies as st

from thothy_ai.queue.hints import ListLengths
from thothy_ai.queue.routing import DueJob, EngineLoad, JobRouter, RoutedJobs, RunningEngine, Sources

EMPTY = ListLengths(0, 0)
MAX_URGENT = 4


def job(source: str = "s", model: str | None = None, priority: int = 0) -> DueJob:
    return DueJob(uuid4(), model, priority, source)


def engine(name: str, *serves: str, running: int = 0, lowest: int | None = None, capacity: int = 64) -> RunningEngine:
    return RunningEngine(name, frozenset(serves), capacity, running, lowest)


def loads(router: JobRouter, *engines: RunningEngine, depth: int = 0) -> dict[str, EngineLoad]:
    return router.loads(engines, {each.name: ListLengths(depth, 0) for each in engines}, MAX_URGENT)


def placed(routed: dict[str, RoutedJobs]) -> dict[UUID, str]:
    return {job_id: name for name, to in routed.items() for job_id in (*to.ordinary, *to.urgent)}


def test_a_job_goes_only_where_its_model_is_served_and_any_other_anywhere() -> None:
    router = JobRouter(min_depth=8)
    jobs = [job("a", "small"), job("b", "large"), job("c", "missing"), job("d")]
    where = placed(router.route(jobs, loads(router, engine("x", "small", "house"), engine("y", "large"))))
    assert [where.get(each.id) for each in jobs[:3]] == ["x", "y", None]
    assert jobs[3].id in where


def test_jobs_without_a_place_hold_up_none_behind_them() -> None:
    router = JobRouter(min_depth=2)
    jobs = [*(job(str(n), "busy") for n in range(50)), job("last", "free")]
    routed = router.route(jobs, loads(router, engine("x", "busy"), engine("y", "free")))
    assert routed["x"].ordinary == [each.id for each in jobs[:2]]  # the first in planned order
    assert routed["y"].ordinary == [jobs[-1].id]


def test_siblings_follow_their_source_and_sources_are_spread() -> None:
    router = JobRouter(min_depth=32)
    jobs = [job(f"source {n // 8}") for n in range(64)]
    where = placed(router.route(jobs, loads(router, engine("x"), engine("y"))))
    homes = {
        each.source_key: {where[other.id] for other in jobs if other.source_key == each.source_key} for each in jobs
    }
    assert all(len(engines) == 1 for engines in homes.values())
    assert Counter(where.values()) == {"x": 32, "y": 32}
    later = [job("source 0")]
    assert (
        placed(router.route(later, loads(router, engine("x", running=9), engine("y", running=9))))[later[0].id]
        in homes["source 0"]
    )


def test_a_source_with_very_many_jobs_exceeds_a_list_s_room_by_a_quarter_only() -> None:
    router = JobRouter(min_depth=32)
    jobs = [job("hot") for _ in range(64)]
    where = Counter(placed(router.route(jobs, loads(router, engine("x"), engine("y")))).values())
    assert sorted(where.values()) == [24, 40]


def test_one_engine_s_list_never_exceeds_its_room() -> None:
    router = JobRouter(min_depth=32)
    jobs = [job("hot") for _ in range(64)]
    assert len(placed(router.route(jobs, loads(router, engine("x"), depth=30)))) == 2


def test_of_two_engines_the_one_with_less_for_its_capacity_is_chosen() -> None:
    router = JobRouter(min_depth=256)
    jobs = [job(str(n)) for n in range(90)]
    where = placed(router.route(jobs, loads(router, engine("small", capacity=10), engine("large", capacity=20))))
    assert Counter(where.values()) == {"small": 30, "large": 60}


def test_a_job_is_urgent_only_where_one_of_lower_priority_waits_or_runs() -> None:
    router = JobRouter(min_depth=1)
    behind, free = engine("x", lowest=0, running=1), engine("y")
    jobs = [job(str(n), priority=1) for n in range(20)]
    routed = router.route(jobs, loads(router, behind, free, depth=0))
    assert (len(routed["x"].urgent), routed["x"].ordinary) == (MAX_URGENT, [])
    assert (routed["y"].urgent, len(routed["y"].ordinary)) == ([], 1)


def test_an_engine_that_is_not_ready_gets_nothing() -> None:
    router = JobRouter(min_depth=8)
    assert router.loads([RunningEngine("x", ready=False)], {"x": EMPTY}, MAX_URGENT) == {}


def test_the_sources_used_longest_ago_are_forgotten() -> None:
    sources = Sources(limit=2)
    for source in ("a", "b", "a", "c"):
        sources.remember(source, source.upper())
    assert [sources.engine(source) for source in "abc"] == ["A", None, "C"]


@given(
    st.lists(st.tuples(st.integers(0, 4), st.sampled_from([None, "m", "n", "o"]), st.integers(0, 2)), max_size=120),
    st.lists(st.tuples(st.sets(st.sampled_from("mn")), st.integers(0, 20), st.integers(0, 40)), min_size=1, max_size=3),
)
def test_whatever_comes_no_room_is_wasted_or_exceeded(
    wanted: list[tuple[int, str | None, int]], made: list[tuple[set[str], int, int]]
) -> None:
    """Each job once at most, where it may run, in order; a job is left out only where no engine had a place for it."""
    router = JobRouter(min_depth=8)
    engines = [engine(str(n), *serves, running=running) for n, (serves, running, _) in enumerate(made)]
    depths = {str(n): ListLengths(depth, 0) for n, (_, _, depth) in enumerate(made)}
    before = {name: load.places for name, load in router.loads(engines, depths, MAX_URGENT).items()}
    jobs = [job(str(source), model, priority) for source, model, priority in wanted]
    after = router.loads(engines, depths, MAX_URGENT)
    routed = router.route(jobs, after)
    where = placed(routed)
    order = {each.id: n for n, each in enumerate(jobs)}
    assert sum(len(to.ordinary) + len(to.urgent) for to in routed.values()) == len(where)
    for name, to in routed.items():
        assert [order[job_id] for job_id in to.ordinary] == sorted(order[job_id] for job_id in to.ordinary)
        assert len(to.ordinary) <= max(before[name], 0) + after[name].sibling_places
    for each in jobs:
        if each.id in where:
            assert after[where[each.id]].may_run(each)
        else:
            assert all(load.places <= 0 for load in after.values() if load.may_run(each))
