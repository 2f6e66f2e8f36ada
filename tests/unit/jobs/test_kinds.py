"""All built-in kinds: prompts with a shared prefix, budgets that follow from schemas, and verdicts on any output."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.plans import PLAIN, first_calls, verdict_on
from thothy_ai.demo.plan import demo_jobs
from thothy_ai.jobs import (
    Context,
    End,
    Hook,
    Output,
    RejectionReason,
    Request,
    Translation,
    TrendSummary,
    registry,
)
from thothy_ai.jobs.kinds.report import Report
from thothy_ai.jobs.kinds.report_section import ReportSection
from thothy_ai.jobs.prompts import SYSTEM

SOURCE = """When the second car has two wheels

In Freiburg, the bakery run and the school run now happen in the same vehicle: an electric bicycle with a box in front.
The dealer Radhaus Sonne sold 418 cargo bikes last year. In 2019 it sold 73. "People come in to replace the second car,"
says its manager, Katrin Vogel. What holds the trend back is space: most cargo bikes do not go down cellar stairs."""

SIBLINGS: list[Request] = [
    TrendSummary(source=SOURCE, audience="city planners"),
    Hook(source=SOURCE, channel="podcast", tone="dry"),
    Report(source=SOURCE, topic="where the bikes are parked"),
    ReportSection(source=SOURCE, topic="where the bikes are parked"),
    Translation(source=SOURCE, passage="In 2019 it sold 73.", target_locale="fr"),
]
NAMES = [registry.kind_of(request).name for request in SIBLINGS]


@pytest.mark.parametrize("request_", SIBLINGS, ids=NAMES)
def test_a_prompt_begins_with_the_system_message_and_the_source_between_marks(request_: Request) -> None:
    for call in first_calls(request_):
        system, user, *_ = call.messages
        assert (system.role, system.content, user.role) == ("system", SYSTEM, "user")
        assert user.content.startswith(f"<source>\n{SOURCE}\n</source>\n\n")


@pytest.mark.parametrize("request_", SIBLINGS, ids=NAMES)
def test_a_small_model_gets_a_text_and_a_short_instruction_in_one_message(request_: Request) -> None:
    for call in first_calls(request_, PLAIN):
        (message,) = call.messages
        assert message.role == "user"
        one, _, other = message.content.rpartition("\n\n")  # the source or a passage of it, after or before the task
        text, task = (other, one) if isinstance(request_, Translation) else (one, other)
        assert text in " ".join(SOURCE.split()) or text == SOURCE
        assert 0 < len(task) < 120


def test_siblings_have_one_key_and_others_have_another() -> None:
    assert len({registry.kind_of(request).source_key(request) for request in SIBLINGS}) == 1
    other = Hook(source=SOURCE + ".")
    assert registry.kind_of(other).source_key(other) != registry.kind_of(SIBLINGS[0]).source_key(SIBLINGS[0])


@pytest.mark.parametrize("context", [Context(), PLAIN], ids=["large", "small"])
@pytest.mark.parametrize("request_", [*SIBLINGS, *demo_jobs()[:5]])
def test_a_retry_can_differ_and_fits_the_context(request_: Request, context: Context) -> None:
    for call in first_calls(request_, context):
        assert call.sampling.temperature > 0 or call.step not in {"write", "translate"}
        assert call.sampling.max_tokens < context.max_context


@pytest.mark.parametrize("request_", SIBLINGS, ids=NAMES)
@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (Output("", End.PROMPT_TOO_LONG), RejectionReason.PROMPT_TOO_LONG),
        (Output('{"titl', End.REPETITION), RejectionReason.REPETITION),
        (Output('{"titl', End.WRONG_LANGUAGE), RejectionReason.WRONG_LANGUAGE),
    ],
)
def test_a_call_that_was_stopped_decides(request_: Request, output: Output, reason: RejectionReason) -> None:
    verdict, _ = verdict_on(request_, output)
    assert (verdict.accepted, verdict.reason) == (False, reason)


@given(text=st.text(alphabet=st.characters(exclude_categories=()), max_size=200), end=st.sampled_from(End))
@settings(max_examples=40)
def test_a_plan_never_raises(text: str, end: End) -> None:
    for request in SIBLINGS:
        for context in (Context(), PLAIN):
            for shape in (text, json.dumps(_filled(request, context, text))):
                verdict, _ = verdict_on(request, Output(shape, end), context=context)
                assert verdict.accepted == (verdict.reason is None)
                assert verdict.detail.isprintable()


def _filled(request: Request, context: Context, text: str) -> object:
    """An output of the shape that the first call asks for, with this text in all its strings."""
    return _instance(first_calls(request, context)[0].schema, text)


def _instance(schema: object, text: str) -> object:
    match schema:
        case {"enum": [first, *_]}:
            return first
        case {"const": value}:
            return value
        case {"type": "object", "properties": properties}:
            return {name: _instance(part, text) for name, part in properties.items()}
        case {"type": "array", "items": items}:
            return [_instance(items, text)] * schema.get("minItems", 1)
        case {"type": "integer"}:
            return 1
    return text
