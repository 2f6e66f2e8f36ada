"""`thothy briefs` against a real Postgres, and requests that name a stored brief."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import UUID

import pytest

from tests.support.command_line import SOURCE, Run, one_line
from thothy_ai.errors import IdempotencyConflictError, InvalidJobError
from thothy_ai.jobs import Hook, TrendSummary
from thothy_ai.jobs.api.brief import Brief
from thothy_ai.producer import AsyncProducer, EnqueueOptions, Producer, drafts
from thothy_ai.producer.operations import with_stored_briefs
from thothy_ai.settings import Settings

SPRING = 'angle = "who buys"\nmust_mention = ["crocks"]\nlimits = {x = 200}\n'
DOSSIER = {
    "sources": [{"title": "One", "date": "2026-11-02", "text": "Crocks are back."}, {"title": "Two", "text": "So."}]
}


@pytest.fixture
def save(run: Run, tmp_path: Path) -> Any:
    def saved(name: str, text: str, exit_code: int = 0) -> Any:
        (tmp_path / "brief").write_text(text)
        return run("briefs", "save", name, tmp_path / "brief", "--by", "Ann", exit_code=exit_code)

    return saved


def request_of(run: Run, job_id: str) -> Any:
    return json.loads(run("jobs", "show", job_id, "--json").stdout)["request"]


def test_a_brief_has_versions_that_never_change(run: Run, save: Any) -> None:
    assert save("spring", SPRING).stdout == "spring: version 1 is stored.\n"
    assert save("spring", SPRING).stdout == "spring: the newest version says the same.\n"
    assert save("spring", '{"angle": "who makes them"}').stdout == "spring: version 2 is stored.\n"
    first = json.loads(run("briefs", "show", "spring", "--version", "1").stdout)
    assert first == {"angle": "who buys", "must_mention": ["crocks"], "limits": {"x": 200}}
    (listed,) = json.loads(run("briefs", "list", "--json").stdout)
    assert (listed["name"], listed["version"], listed["saved_by"]) == ("spring", 2, "Ann")
    assert "who makes them" in run("briefs", "list").stdout
    run("briefs", "remove", "spring", "--yes")
    assert run("briefs", "list").stdout == "No briefs.\n"
    assert "no brief is stored under 'spring'" in one_line(run("briefs", "remove", "spring", "--yes", exit_code=1))
    assert save("spring", SPRING).stdout == "spring: version 4 is stored.\n", "no number is used twice"


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        (
            "spring",
            '{"must_mention": ["a b"], "must_avoid": ["b"]}',
            "must_avoid: forbids 'b', which must_mention",
        ),
        ("spring", "angle = 3", "angle: must be text"),
        ("spring", "angle", "neither JSON nor TOML"),
        ("spring", "{}", "says nothing"),
        ("spring", '{"name": "other"}', "given when the brief is saved"),
        ("../spring", SPRING, "at most 60 letters"),
    ],
)
def test_what_is_no_brief_is_refused(save: Any, name: str, text: str, words: str) -> None:
    assert words in one_line(save(name, text, exit_code=2))


def test_a_request_names_a_brief_and_keeps_the_version_it_got(run: Run, save: Any) -> None:
    save("spring", SPRING)
    job_id = run("enqueue", "hook", "--source", SOURCE, "--brief", "spring", "--key", "k").stdout.strip()
    save("spring", '{"angle": "who makes them"}')
    brief = request_of(run, job_id)["brief"]
    assert (brief["name"], brief["version"], brief["angle"]) == ("spring", 1, "who buys")
    second = run("enqueue", "hook", "--source", SOURCE, "--brief", '{"name": "spring", "version": 1}', "--key", "k")
    assert second.stdout.strip() == job_id, "it is the same request"
    newest = run("enqueue", "hook", "--source", SOURCE, "--brief", "spring").stdout.strip()
    assert request_of(run, newest)["brief"]["angle"] == "who makes them"


def test_a_stored_brief_may_bring_the_sources(run: Run, save: Any) -> None:
    save("dossier", json.dumps(DOSSIER))
    job_id = run("enqueue", "trend_summary", "--brief", "dossier").stdout.strip()
    asked = request_of(run, job_id)
    assert asked["source"] == "# One\n\n2026-11-02\n\nCrocks are back.\n\n# Two\n\nSo."
    assert [source["begins"] for source in asked["brief"]["sources"]] == [0, 37]
    save("spring", SPRING)
    refused = one_line(run("enqueue", "hook", "--brief", "spring", exit_code=2))
    assert "source: is missing: the brief 'spring' has no sources" in refused


def test_a_request_that_is_sent_again_is_the_same_job_whatever_was_stored_since(
    run: Run, save: Any, settings: Settings
) -> None:
    save("spring", SPRING)
    save("dossier", json.dumps(DOSSIER))
    spring, dossier = Brief(name="spring"), TrendSummary(brief=Brief(name="dossier"))
    with Producer(settings) as producer:
        first = producer.enqueue(Hook(source=SOURCE, brief=spring), idempotency_key="k")
        whole = producer.enqueue(dossier, idempotency_key="d")
        save("spring", '{"angle": "who makes them"}')
        save("dossier", '{"angle": "no sources"}')
        again = producer.enqueue(Hook(source=SOURCE, brief=spring), idempotency_key="k")
        assert (again.id, again.existed) == (first.id, True)
        other, once_more = producer.enqueue_many(
            [
                Hook(source=SOURCE, brief=spring),
                (Hook(source=SOURCE, brief=spring), EnqueueOptions(idempotency_key="k")),
            ]
        )
        assert (once_more.id, other.existed) == (first.id, False)
        assert request_of(run, str(other.id))["brief"]["version"] == 2
        run("briefs", "remove", "spring", "--yes")
        assert producer.enqueue(Hook(source=SOURCE, brief=spring), idempotency_key="k").id == first.id
        assert producer.enqueue(dossier, idempotency_key="d").id == whole.id
        for changed in (
            Hook(source=SOURCE, brief=spring, audience="founders"),
            Hook(source=SOURCE, brief=Brief(name="dossier")),
        ):
            with pytest.raises(IdempotencyConflictError):
                producer.enqueue(changed, idempotency_key="k")


def test_a_version_that_is_stored_while_two_send_a_request_changes_nothing(
    run: Run, save: Any, settings: Settings
) -> None:
    save("spring", SPRING)
    request, entered = Hook(source=SOURCE, brief=Brief(name="spring")), []
    insertion = drafts.insertion

    def late(*args: Any) -> Any:
        """Between the look at what is stored and the insertion, another producer is faster."""
        if not entered:
            entered.append(True)
            with Producer(settings) as other:
                entered.append(other.enqueue(request, idempotency_key="k").id)
        return insertion(*args)

    def found(*args: Any) -> Any:
        save("spring", '{"angle": "who makes them"}') if entered == [True] else None
        return with_stored_briefs(*args)

    with (
        patch("thothy_ai.producer.operations.insertion", late),
        patch("thothy_ai.producer.operations.with_stored_briefs", found),
        Producer(settings) as producer,
    ):
        assert producer.enqueue(request, idempotency_key="k").id == entered[1]


def test_a_brief_that_is_not_stored_is_refused_with_its_entry(run: Run, save: Any, settings: Settings) -> None:
    save("spring", SPRING)
    refused = one_line(run("enqueue", "hook", "--source", SOURCE, "--brief", "fall", exit_code=2))
    assert "no brief is stored under 'fall'" in refused
    with Producer(settings) as producer:
        good, bad = (Hook(source=SOURCE, brief=Brief(name="spring", version=version)) for version in (1, 7))
        with pytest.raises(InvalidJobError, match="no version 7 is stored under 'spring'") as unknown:
            producer.enqueue_many([good, bad])
        assert unknown.value.entry == 1
        with pytest.raises(InvalidJobError, match="must_mention has 'crocks', and banned_phrases"):
            producer.enqueue(Hook(source=SOURCE, brief=Brief(name="spring"), banned_phrases=("crocks",)))
        theirs = producer.of_tenant("acme")
        with pytest.raises(InvalidJobError, match="no version 1 is stored"):
            theirs.enqueue(good)


def test_the_asynchronous_producer_finds_it_too(save: Any, run: Run, settings: Settings) -> None:
    save("spring", SPRING)

    async def enqueued() -> UUID:
        async with AsyncProducer(settings) as producer:
            return (await producer.enqueue(Hook(source=SOURCE, brief=Brief(name="spring")))).id

    assert request_of(run, str(asyncio.run(enqueued())))["brief"]["version"] == 1
