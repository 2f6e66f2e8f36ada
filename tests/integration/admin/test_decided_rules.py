"""How often rules were right by people's decisions, and gates that are wrong too often."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.command_line import typed
from tests.support.decided import FINDING, written
from tests.support.queue_bench import Queue, runner_bench
from thothy_ai.admin.decided_rules import MIN_DECISIONS, DecidedRule, counted_rules, decided_rules
from thothy_ai.db.states import ReviewState
from thothy_ai.jobs import RejectionReason
from thothy_ai.jobs.api.kind import Policy
from thothy_ai.jobs.checks.gates import leave_to_people

BODY = {"title": "Night trains", "echo": "The first words."}
DOUBT = FINDING  # in the field `echo`
GATE = {**FINDING, "reason": "banned_phrase", "part": "title"}
COPY = """
    INSERT INTO {table}
    SELECT (jsonb_populate_record(NULL::{table}, to_jsonb({table}) || jsonb_build_object('{key}', gen_id))).*
    FROM {table}, (SELECT CAST(lpad(to_hex(n), 32, '0') AS uuid) AS gen_id FROM generate_series(2, :copies) AS n) AS ids
"""


def row(action: str, *findings: dict[str, Any], **changed: str) -> dict[str, Any]:
    return {"locale": "en", "action": action, "findings": findings, "written": BODY, "decided": BODY | changed}


def test_a_rule_is_right_about_what_was_refused_or_changed() -> None:
    rows = [
        row("approve", DOUBT, GATE),
        row("approve", DOUBT, DOUBT, echo="Other words."),
        row("approve", {**DOUBT, "part": None}, title="Trains"),
        row("reject", DOUBT),
        row("send_back", GATE, {**DOUBT, "by": "verification"}),
        row("approve", {**DOUBT, "reason": "of_a_newer_version"}),
    ]
    assert counted_rules(rows) == [
        DecidedRule("banned_phrase", "rule", True, 1, 1),
        DecidedRule("number_not_in_source", "rule", False, 3, 1),
        DecidedRule("number_not_in_source", "verification", False, 1, 0),
        DecidedRule("of_a_newer_version", "rule", False, 0, 1),
    ]


@pytest.mark.parametrize(("point", "right"), [("B", 1), ("A", 0)])
def test_a_part_is_changed_when_a_field_below_it_is(point: str, right: int) -> None:
    """And a gate that rejected a text without naming a place is about all of it."""
    texts = [{"points": [{"point": each}], "echo": "E"} for each in ("A", point)]
    found = row("approve", {**DOUBT, "part": "points.0"}) | {"written": texts[0], "decided": texts[1]}
    gate = row("approve") | {"reason": "truncated", "written": texts[0], "decided": texts[1]}
    assert counted_rules([found, gate]) == [
        DecidedRule("truncated", "rule", True, right, 1 - right),
        DecidedRule("number_not_in_source", "rule", False, right, 1 - right),
    ]


def test_what_workers_wrote_and_people_decided_is_counted(queue: Queue) -> None:
    with runner_bench(queue, policies={"echo": Policy.REVIEW}) as bench:
        jobs = bench.work("retry a", "retry b", "doubt c", "doubt d", "ok e", max_attempts=1)
        bench.settle()
    first, second, third, fourth, fifth = (queue.producer.job(job_id).artifact() for job_id in jobs)
    first.decide("approve", by="Ann")
    second.decide("edit", by="Ann", body={"echo": "Other words."}).decide("approve", by="Ann")
    third.decide("approve", by="Ann").decide("reopen", by="Ann").decide("reject", by="Ann", note="no news")
    fourth.decide("send_back", by="Ann", note="Name it.")
    fifth.decide("approve", by="Ann")
    assert decided_rules(queue.engine) == [
        DecidedRule("repetition", "rule", True, 1, 1),
        DecidedRule("number_not_in_source", "rule", False, 2, 0),
    ]


def test_decisions_are_read_of_each_text_once(queue: Queue) -> None:
    approved, edited, sent, held, _ = (
        written(queue, review) for review in (*[ReviewState.NEEDS_REVIEW] * 3, *[ReviewState.NEEDS_EDIT] * 2)
    )
    artifacts = [queue.producer.job(job_id).artifact() for job_id in (approved, edited, sent, held)]
    artifacts[0].decide("hold", by="Ann")
    artifacts[0].decide("approve", by="Ann")
    artifacts[1].decide("edit", by="Ann", body={"echo": "Other words."}).decide("approve", by="Bo")
    artifacts[2].decide("send_back", by="Ann", note="Name it.")
    artifacts[3].decide("hold", by="Ann")
    assert decided_rules(queue.engine) == [DecidedRule("number_not_in_source", "rule", False, 2, 1)]
    assert decided_rules(queue.engine, tenant="other") == []


@pytest.mark.parametrize(("wrong", "code"), [(3, 1), (2, 0)])
def test_a_gate_that_is_wrong_too_often_is_reported_until_it_is_left_to_people(
    queue: Queue, wrong: int, code: int
) -> None:
    job_id = written(queue, findings=(GATE | {"part": None},))
    queue.producer.job(job_id).artifact().decide("reject", by="Ann", note="no news")
    for table, key in (("job", "id"), ("artifact", "job_id"), ("decision", "job_id")):
        queue.rows(COPY.format(table=table, key=key), copies=MIN_DECISIONS)
    queue.rows(
        f"UPDATE decision SET action = 'approve' WHERE job_id IN (SELECT job_id FROM decision ORDER BY 1 LIMIT {wrong})"
    )
    said = typed(queue.settings, "eval", "validators", "--decisions", exit_code=code).stdout
    assert ("THOTHY_GATES_AS_FINDINGS=banned_phrase" in said) is bool(code)
    [rule] = json.loads(typed(queue.settings, "eval", "validators", "--decisions", "--json", exit_code=code).stdout)
    assert (rule["right"], rule["wrong"], rule["gate"]) == (MIN_DECISIONS - wrong, wrong, True)
    allowed = queue.settings.model_copy(update={"gates_as_findings": ("banned_phrase",)})
    try:
        assert "finding" in typed(allowed, "eval", "validators", "--decisions").stdout
    finally:
        leave_to_people(())


def test_a_gate_that_is_left_to_people_makes_findings(queue: Queue) -> None:
    try:
        with runner_bench(
            queue, gates_as_findings=(RejectionReason.REPETITION,), policies={"echo": Policy.REVIEW}
        ) as bench:
            [job_id] = bench.work("retry it is")
            bench.settle()
    finally:
        leave_to_people(())
    assert (queue.job(job_id).review, queue.verdicts(job_id)) == ("needs_review", ["accepted"])


def test_the_declared_rules_are_printed(queue: Queue) -> None:
    assert "number_not_in_source" in typed(queue.settings, "eval", "validators").stdout
