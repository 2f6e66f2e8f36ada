"""What is inserted of a request: one JSON parameter, and long texts apart."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest

from thothy_ai.jobs import Hook
from thothy_ai.producer.drafts import EnqueueOptions, draft, insertion
from thothy_ai.settings import Settings

NOW = datetime(2026, 1, 2, tzinfo=UTC)
LATER = datetime(2030, 1, 2, 3, 4, 5, 678, tzinfo=timezone(timedelta(hours=5, minutes=30)))


@pytest.mark.usefixtures("clean_environment")
def test_short_requests_take_the_statement_without_texts() -> None:
    options = EnqueueOptions(priority=-3, deadline=LATER, idempotency_key='“k” "q"', max_compute_seconds=0.1)
    drafts = [draft(Hook(source="Crocks ran out."), each, Settings(), NOW) for each in (EnqueueOptions(), options)]
    name, given = insertion(drafts, "t")
    assert (name, given["tenant"], given["batch_id"]) == ("producer/enqueue", "t", None)
    first, second = json.loads(given["jobs"])
    assert "deadline" not in first
    assert (second["priority"], second["max_compute_seconds"], second["idempotency_key"]) == (-3, 0.1, '“k” "q"')
    assert datetime.fromisoformat(second["deadline"]) == LATER
    assert json.loads(second["request"])["source"] == "Crocks ran out."


@pytest.mark.usefixtures("clean_environment")
def test_a_long_text_of_several_requests_is_sent_once() -> None:
    long = "Crocks ran out in “Crete”. " * 100
    drafts = [draft(Hook(source=source), EnqueueOptions(), Settings(), NOW) for source in (long, "short", long)]
    name, given = insertion(drafts, "t")
    [text] = json.loads(given["texts"])
    assert (name, text["content"]) == ("producer/enqueue_texts", long)
    digests = [row.get("text_digest") for row in json.loads(given["jobs"])]
    assert digests == [text["text_digest"], None, text["text_digest"]]
