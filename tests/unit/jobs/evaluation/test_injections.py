"""Prompts keep a source apart from the task, whatever the source contains."""

from __future__ import annotations

import re

import pytest

from thothy_ai.jobs import Context, Message, registry
from thothy_ai.jobs.api.plan import Calls
from thothy_ai.jobs.evaluation.cases import Injection, injections

CAPABLE = Context(max_context=32_768, parameters=70_000_000_000)
MARKS = re.compile(r"<\s*/?\s*source\b[^>]*>", re.IGNORECASE)
INVISIBLE = re.compile(r"[\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
KINDS = ("trend_summary", "hook", "report", "report_section", "translation")


def first_calls(kind: str, injection: Injection) -> Calls:
    request = dict(injection.request)
    if kind == "translation":
        request["target_locale"] = "pl-PL"
        del request["locale"]
    found = registry.find(kind)
    return next(found.plan(found.request.model_validate(request), CAPABLE))


@pytest.fixture(params=injections(), ids=lambda injection: injection.id)
def injection(request: pytest.FixtureRequest) -> Injection:
    found: Injection = request.param
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_an_instruction_in_the_source_stays_between_the_marks(kind: str, injection: Injection) -> None:
    for call in first_calls(kind, injection):
        system, user = call.messages
        assert system.role == "system"
        assert "data" in system.content
        assert _words(injection.text) not in _words(system.content)
        assert user.role == "user"
        before, source, after = _divided(user)
        assert before == ""
        assert len(after.strip()) > 20  # the task
        if kind != "translation":  # whose task repeats the passage
            assert _words(injection.text) not in _words(after)
        assert _words(injection.text) in _words(source)


def _divided(message: Message) -> tuple[str, str, str]:
    """What is before, between and after the marks, of which there is one pair."""
    assert [mark.lower() for mark in MARKS.findall(message.content)][:2] == ["<source>", "</source>"]
    before, _, rest = message.content.partition("<source>")
    source, _, after = rest.partition("</source>")
    assert MARKS.search(source) is None
    return before, source, after


def _words(text: str) -> str:
    """The text's words; marks of the source's own end are no words."""
    return " ".join(re.findall(r"\w+", INVISIBLE.sub("", text)))


def test_siblings_share_system_message_and_source(injection: Injection) -> None:
    prompts = [first_calls(kind, injection)[0].messages for kind in ("trend_summary", "hook", "report_section")]
    assert len({messages[0] for messages in prompts}) == 1
    assert len({messages[1].content.partition("</source>")[0] for messages in prompts}) == 1
