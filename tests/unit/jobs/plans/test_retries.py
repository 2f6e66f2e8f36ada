"""Retries: the prompt keeps its beginning, and every reason changes something."""

from __future__ import annotations

import pytest

from tests.support.plans import PLAIN
from thothy_ai.jobs import Call, Context, Message, Previous, RejectionReason, Sampling
from thothy_ai.jobs.plans.retries import MORE_BUDGET, adapted

CALL = Call((Message("system", "S"), Message("user", "The source.\n\nDo it.")), {}, Sampling(100, temperature=0.5))


def after(reason: RejectionReason, detail: str = "'9,000' is not in the source", locale: str = "de") -> Call:
    return adapted(CALL, Context(previous=Previous(reason, detail)), locale)


def test_a_first_attempt_is_not_changed() -> None:
    assert adapted(CALL, Context(), "de") is CALL


@pytest.mark.parametrize("reason", RejectionReason)
def test_every_reason_is_named_at_the_end_of_the_prompt(reason: RejectionReason) -> None:
    call = after(reason)
    assert call.messages[0] == CALL.messages[0]
    assert call.messages[1].content.startswith(CALL.messages[1].content + "\n\nAn earlier draft was rejected: ")
    assert "{" not in call.messages[1].content


@pytest.mark.parametrize("parameters", [0, PLAIN.parameters])
def test_an_editor_s_note_ends_the_prompt(parameters: int) -> None:
    artifact = {"text": "Der Fluss ist müde."}
    previous = Previous(RejectionReason.SENT_BACK, "", artifact, "Name the river.")
    said = adapted(CALL, Context(parameters=parameters, previous=previous), "de").messages[-1].content
    assert said.startswith(CALL.messages[-1].content)
    assert said.endswith("Name the river.")
    assert ("Der Fluss ist müde." in said) is (parameters == 0), "a small model would repeat it"
    assert previous.keepable is None


def test_a_long_draft_that_was_sent_back_is_not_shown() -> None:
    previous = Previous(RejectionReason.SENT_BACK, "", {"text": "x" * 10_000}, "Name the river.")
    assert len(adapted(CALL, Context(previous=previous), "de").messages[-1].content) < 200


def test_truncation_gets_more_budget() -> None:
    assert after(RejectionReason.TRUNCATED).sampling.max_tokens == 100 * MORE_BUDGET


@pytest.mark.parametrize("reason", [RejectionReason.REPETITION, RejectionReason.COPIED_FROM_SOURCE])
def test_a_loop_and_a_copy_get_a_penalty_and_a_higher_temperature(reason: RejectionReason) -> None:
    sampling = after(reason).sampling
    assert sampling.temperature > CALL.sampling.temperature
    assert sampling.repetition_penalty > CALL.sampling.repetition_penalty


@pytest.mark.parametrize(
    ("locale", "said"), [("de-AT", "ausschließlich auf Deutsch"), ("ja", "日本語だけ"), ("cy", "Write in Welsh")]
)
def test_a_wrong_language_is_asked_for_in_that_language(locale: str, said: str) -> None:
    assert said in after(RejectionReason.WRONG_LANGUAGE, locale=locale).messages[-1].content


def test_an_unsupported_sentence_is_named() -> None:
    said = after(RejectionReason.UNSUPPORTED, "'Sales tripled.': the source says doubled").messages[-1].content
    assert "Sales tripled." in said


def test_a_small_model_gets_no_advice() -> None:
    previous = Previous(RejectionReason.NUMBER_NOT_IN_SOURCE, "x")
    context = Context(parameters=PLAIN.parameters, previous=previous)
    assert adapted(CALL, context, "en").messages == CALL.messages


def test_what_a_small_model_has_not_translated_it_is_asked_for_in_the_language_and_under_other_sampling() -> None:
    context = Context(parameters=PLAIN.parameters, previous=Previous(RejectionReason.UNTRANSLATED, "x"))
    call = adapted(CALL, context, "de")
    assert call.messages[-1].content.endswith("ausschließlich auf Deutsch.")
    assert call.sampling.temperature > CALL.sampling.temperature
    assert call.sampling.repetition_penalty > CALL.sampling.repetition_penalty
    assert after(RejectionReason.UNTRANSLATED).sampling == CALL.sampling
