"""A brand's voice: which approved artifacts are shown to the model, where, and to whom."""

from __future__ import annotations

import pytest
from uuid_utils.compat import uuid7

from tests.support.decided import written
from tests.support.queue_bench import Queue, runner_bench
from thothy_ai.jobs import Hook, TrendSummary
from thothy_ai.worker.voices import Example, most_similar

SOURCE = "Bakers in Lyon let their dough rest for a night, and sell the bread in the morning. " * 3


def approved(queue: Queue, text: str, **decision: str) -> str:
    job_id = written(queue, body={"echo": text})
    queue.producer.job(job_id).artifact().decide("approve", by="Ann", **decision)
    return str(job_id)


def test_siblings_of_all_kinds_are_shown_the_same_examples_before_the_source(queue: Queue) -> None:
    shown = [approved(queue, f"Bread {number}: bakers in Lyon rest.", voice="acme") for number in range(3)]
    approved(queue, "Night trains are back in Vienna.", voice="acme")
    approved(queue, "Bakers in Lyon again.", voice="other")
    approved(queue, "Bakers in Lyon, of no voice.")
    queue.producer.enqueue_many(
        [Hook(source=SOURCE, voice="acme"), TrendSummary(source=SOURCE, voice="acme"), Hook(source=SOURCE)]
    )
    with runner_bench(queue, max_attempts=1) as bench:
        bench.settle()
        prompts = [request.messages[1].content for request in bench.client.submitted]
    with_voice = [prompt for prompt in prompts if "<example>" in prompt]
    beginnings = {prompt.partition("</source>")[0] for prompt in with_voice}
    assert len(beginnings) == 1
    [beginning] = beginnings
    assert {prompt.partition("\n")[0][:7] for prompt in prompts} == {"Editors", "<source"}
    assert beginning.count("<example>\n") == 3
    assert all(f"Bread {number}: bakers" in beginning for number in range(3))
    assert beginning.index("<example>") < beginning.index("<source>")
    [(examples,)] = queue.rows("SELECT DISTINCT provenance -> 'examples' FROM artifact WHERE provenance ? 'examples'")
    assert sorted(examples) == sorted(shown)


@pytest.mark.parametrize("later", ["reopen", "edit"])
def test_what_is_not_approved_any_more_is_no_example(queue: Queue, later: str) -> None:
    job_id = approved(queue, "Bread: bakers in Lyon rest.", voice="acme")
    wanted = {"tenant": "default", "voice": "acme", "language": "en", "limit": 50}
    assert [str(row.job_id) for row in queue.ask("worker/examples", **wanted)] == [job_id]
    assert not queue.ask("worker/examples", **wanted | {"tenant": "other"})
    assert not queue.ask("worker/examples", **wanted | {"language": "de"})
    artifact = queue.producer.job(job_id).artifact().decide("reopen", by="Ann")
    if later == "edit":
        artifact.decide("edit", by="Ann", body={"echo": "Other words."})
    assert not queue.ask("worker/examples", **wanted)


def test_three_of_the_most_similar_are_chosen_each_job_once() -> None:
    texts = ["Trains.", "Bread of Lyon.", "Bakers let dough rest.", "Bakers in Lyon let their dough rest for a night."]
    candidates = [Example(uuid7(), text) for text in texts]
    again = [*candidates, candidates[3], candidates[3]]
    assert [example.text for example in most_similar(again, SOURCE)] == texts[1:]
    assert most_similar([], SOURCE) == ()
