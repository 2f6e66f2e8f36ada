"""Workloads: what the shipped files hold, how jobs share tokens, in which order they come, and other draws of them."""

from __future__ import annotations

import json
from collections import Counter
from itertools import groupby
from pathlib import Path

import pytest

from thothy_ai.bench.draws import redraw
from thothy_ai.bench.workload import Order, TokenDraw, Workload, read_workload
from thothy_ai.engine.api.errors import InvalidRequestError

WORKLOADS = Path(__file__).parents[4] / "benchmarks" / "workloads"


def shipped(name: str) -> Workload:
    return read_workload(WORKLOADS / f"{name}.json")


def totals(workload: Workload) -> tuple[int, int, int]:
    jobs = workload.jobs
    return len(jobs), sum(job.prompt_tokens for job in jobs), sum(job.output_tokens for job in jobs)


@pytest.mark.parametrize(
    ("name", "expected"), [("templates", (1000, 1_226_778, 282_232)), ("siblings", (1500, 2_734_423, 285_351))]
)
def test_shipped_files_have_the_tokens_that_the_baselines_name(name: str, expected: tuple[int, int, int]) -> None:
    assert totals(shipped(name)) == expected


def test_siblings_share_style_and_source_and_jobs_of_a_kind_their_instructions() -> None:
    first, second, _, translation = shipped("siblings").jobs[:4]
    other = next(job for job in shipped("siblings").jobs if job.kind == first.kind and job.shared != first.shared)
    draw = TokenDraw(1000, "a")
    source = sum(part.tokens for part in first.shared)
    prompts = [draw.prompt(job) for job in (first, second, translation)]
    assert {prompt[:source] for prompt in prompts} == {prompts[0][:source]}
    assert len({prompt[source:] for prompt in prompts}) == 3
    assert draw.prompt(other)[:96] == prompts[0][:96]
    assert draw.prompt(other)[96:200] != prompts[0][96:200]
    instructions = first.parts[2].tokens
    assert draw.prompt(other)[-8 - instructions : -8] == prompts[0][-8 - instructions : -8]
    assert draw.prompt(other)[-8:] != prompts[0][-8:]


def test_tokens_depend_on_the_seed_alone() -> None:
    job = shipped("templates").jobs[0]
    prompt = TokenDraw(500, "a").prompt(job)
    assert prompt == TokenDraw(500, "a").prompt(job)
    assert prompt != TokenDraw(500, "b").prompt(job)
    assert len(prompt) == job.prompt_tokens
    assert 0 <= min(prompt) <= max(prompt) < 500


@pytest.mark.parametrize("name", ["templates", "siblings"])
def test_source_order_puts_siblings_side_by_side_and_loses_none(name: str) -> None:
    workload = shipped(name)
    shuffled, sorted_ = (workload.ordered(order) for order in (Order.SHUFFLED, Order.SOURCE))
    assert Counter(sorted_) == Counter(shuffled) == Counter(workload.jobs)
    assert len(list(groupby(sorted_, key=lambda job: job.shared))) == len({job.shared for job in workload.jobs})
    assert len(list(groupby(shuffled, key=lambda job: job.shared))) > 600


def test_siblings_arrive_as_their_file_says_and_templates_shuffle_by_the_seed() -> None:
    siblings, templates = shipped("siblings"), shipped("templates")
    arrival = json.loads((WORKLOADS / "siblings.json").read_text())["arrival"]
    assert siblings.ordered(Order.SHUFFLED, 1)[:3] == tuple(siblings.jobs[index] for index in arrival[:3])
    assert templates.ordered(Order.SHUFFLED, 1) == templates.ordered(Order.SHUFFLED, 1)
    assert templates.ordered(Order.SHUFFLED, 1) != templates.ordered(Order.SHUFFLED, 2)
    assert templates.ordered(Order.LISTED) == templates.jobs


@pytest.mark.parametrize("name", ["templates", "siblings"])
def test_another_draw_has_other_lengths_of_the_same_distributions(name: str) -> None:
    workload = shipped(name)
    drawn = redraw(workload, 3)
    assert drawn == redraw(workload, 3)
    assert drawn.jobs != redraw(workload, 4).jobs
    assert {job.kind for job in drawn.jobs} == {job.kind for job in workload.jobs}
    for ours, theirs in zip(totals(drawn), totals(workload), strict=True):
        assert ours == pytest.approx(theirs, rel=0.1)
    for kind in {job.kind for job in workload.jobs}:
        longest, drawn_longest = (
            max(job.output_tokens for job in of.jobs if job.kind == kind) for of in (workload, drawn)
        )
        assert drawn_longest == pytest.approx(longest, rel=0.1)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[1]", "not a workload"),
        ('{"jobs": [["hook", 1]]}', "job 0 is"),
        ('{"jobs": [[0, 10, "poem", 4]], "arrival": [0]}', "poem"),
        ('{"jobs": [[0, 10, "hook", 4]], "arrival": [0, 0]}', "each once"),
        ("{", "not JSON"),
    ],
)
def test_a_malformed_workload_file_is_refused(content: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "work.json"
    path.write_text(content)
    with pytest.raises(InvalidRequestError, match=words):
        read_workload(path)
    with pytest.raises(InvalidRequestError, match="No such file"):
        read_workload(tmp_path / "nowhere.json")
