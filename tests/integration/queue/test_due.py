"""Which jobs of many models are due next: few of each are read, and they are those that reading all would give."""

from __future__ import annotations

import random

import pytest
from sqlalchemy import text

from tests.support.queue_bench import Queue
from thothy_ai.db.fragments import FRAGMENTS

FILL = """
    INSERT INTO job (id, tenant, kind, model, priority, deadline, enqueued_at, source_key, request_digest, max_attempts)
    SELECT uuidv7(), 'default', 'echo', model, priority, now() + slack * interval '1 minute',
        now() - age * interval '1 minute', source, 'd', 3
    FROM unnest(
        CAST(:models AS text[]), CAST(:priorities AS smallint[]), CAST(:slacks AS integer[]), CAST(:ages AS integer[]),
        CAST(:sources AS text[])
    ) AS made (model, priority, slack, age, source)
"""
NEXT = "SELECT id FROM job WHERE {due} AND model = ANY(:models) ORDER BY {planned_order} LIMIT :limit"
TEAMS = [[f"voice-{number}" for number in range(40)], ["one", "other"]]


@pytest.mark.parametrize("seed", range(6))
def test_the_next_of_many_models_are_those_of_all_in_planned_order(queue: Queue, seed: int) -> None:
    pick, jobs = random.Random(seed), 1_500
    weights = [pick.choice((0.0, 1.0, 1.0, 30.0)) for _ in TEAMS[0]]  # some have most of the next jobs, some have none
    weights[0] = 1.0
    named = [
        pick.choices(TEAMS[0], weights)[0] if pick.random() < 0.8 else pick.choice(["one", "other"])
        for _ in range(jobs)
    ]
    queue.rows(
        FILL,
        models=named,
        priorities=[pick.choice((0, 0, 0, 1)) for _ in named],
        slacks=[pick.choice((None, 600, 3_000)) for _ in named],
        ages=[pick.randrange(100) for _ in named],
        sources=[f"source {pick.randrange(50)}" for _ in named],
    )
    for limit in (1, 7, 64, 400):
        wanted = [(name, team, limit, None) for team, names in enumerate(TEAMS) for name in names]
        given = {key: [row[at] for row in wanted] for at, key in enumerate(("models", "teams", "limits", "floors"))}
        found = [row.id for row in queue.ask("queue/due", any_limit=0, **given)]
        with queue.engine.connect() as connection:
            query = text(NEXT.format(**FRAGMENTS))
            expected = [
                row.id for names in TEAMS for row in connection.execute(query, {"models": names, "limit": limit})
            ]
        assert len(found) == len(set(found))
        assert set(found) == set(expected)
