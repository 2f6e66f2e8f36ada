"""The four built-in kinds: prompts with a shared prefix, and verdicts on good and bad outputs."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thothy_ai.demo.plan import demo_jobs
from thothy_ai.jobs import (
    Context,
    End,
    Hook,
    HookArtifact,
    Output,
    RejectionReason,
    ReportSection,
    Request,
    Translation,
    TrendSummary,
    Verdict,
    registry,
)

SOURCE = """When the second car has two wheels

In Freiburg, the bakery run and the school run now happen in the same vehicle: an electric bicycle with a box in front.
The dealer Radhaus Sonne sold 418 cargo bikes last year. In 2019 it sold 73. "People come in to replace the second car,"
says its manager, Katrin Vogel. What holds the trend back is space: most cargo bikes do not go down cellar stairs."""

SIBLINGS: list[Request] = [
    TrendSummary(source=SOURCE, audience="city planners"),
    Hook(source=SOURCE, channel="podcast", tone="dry"),
    ReportSection(source=SOURCE, topic="where the bikes are parked"),
    Translation(source=SOURCE, passage="In 2019 it sold 73.", target_locale="fr"),
]
NAMES = {type(request): registry.kind_of(request).name for request in SIBLINGS}


def output_of(text: str, truncated: bool = False) -> Output:
    return Output(text, End.TOKEN_LIMIT if truncated else End.COMPLETE)


def judge(request: Request, truncated: bool = False, **output: object) -> Verdict:
    return registry.kind_of(request).plan.judge(request, output_of(json.dumps(output), truncated))


@pytest.mark.parametrize("request_", SIBLINGS, ids=NAMES.values())
def test_a_prompt_is_one_user_message_source_first(request_: Request) -> None:
    (message,) = registry.kind_of(request_).plan.prompt(request_, Context())
    assert message.role == "user"
    assert message.content.startswith(SOURCE + "\n\n")


def test_siblings_share_all_of_the_source_and_their_key() -> None:
    prompts = [registry.kind_of(request).plan.prompt(request, Context())[0].content for request in SIBLINGS]
    instructions = {prompt.removeprefix(SOURCE + "\n\n") for prompt in prompts}
    assert len(instructions) == len(prompts)
    assert not any(instruction.startswith(SOURCE[:20]) for instruction in instructions)
    assert len({registry.kind_of(request).source_key(request) for request in SIBLINGS}) == 1
    other = Hook(source=SOURCE + ".")
    assert registry.kind_of(other).source_key(other) != registry.kind_of(SIBLINGS[0]).source_key(SIBLINGS[0])


def test_translations_of_similar_length_have_one_schema_which_allows_what_the_validators_do() -> None:
    bounds = set()
    for length in range(1, 6001):
        request = Translation(source="é" * length)
        pattern = registry.kind_of(request).plan.schema(request)["properties"]["text"]["pattern"]
        bound = int(pattern.rpartition(",")[2].rstrip("}$"))
        needed = length * 3 // 2 + 40
        assert needed <= bound <= needed * 5 // 4
        bounds.add(bound)
    assert len(bounds) <= 35


def test_a_translation_within_the_schema_s_bound_may_still_be_too_long() -> None:
    request = Translation(source="Der Laden hat im vergangenen Jahr vier Räder verkauft.", target_locale="en")
    text = (
        "The shop sold four bicycles in the past year, which is what its manager says whenever somebody asks about it."
    )
    pattern = registry.kind_of(request).plan.schema(request)["properties"]["text"]["pattern"]
    assert re.fullmatch(pattern, text)
    assert judge(request, text=text).reason is RejectionReason.TOO_LONG


def test_the_request_s_fields_are_in_the_prompt() -> None:
    fields = [["city planners"], ["podcast", "dry"], ["where the bikes are parked"], ["French", "In 2019 it sold 73."]]
    for request, words in zip(SIBLINGS, fields, strict=True):
        instruction = registry.kind_of(request).plan.prompt(request, Context())[0].content.removeprefix(SOURCE)
        assert all(word in instruction for word in words)


def test_a_language_other_than_english_is_requested() -> None:
    german, english = (
        registry.find("trend_summary").plan.prompt(TrendSummary(source=SOURCE, locale=code), Context())
        for code in ("de", "en")
    )
    assert "Write in German." in german[0].content
    assert "Write in" not in english[0].content


@pytest.mark.parametrize("request_", demo_jobs())
def test_budgets_are_small_and_retries_differ(request_: Request) -> None:
    sampling = registry.kind_of(request_).plan.sampling(request_)
    assert 40 <= sampling.max_tokens <= 200
    assert sampling.temperature > 0, "a retry would repeat the rejected output"


SUMMARY = TrendSummary(source=SOURCE)
HOOK = Hook(source=SOURCE)
REPORT = ReportSection(source=SOURCE)
GERMAN = Translation(source=SOURCE, passage="What holds the trend back is space. In 2019 the dealer sold 73 bikes.")


@pytest.mark.parametrize(
    ("request_", "output"),
    [
        (
            SUMMARY,
            {"summary": "Families in Freiburg buy cargo bikes in place of a second car. 418 were sold last year."},
        ),
        (HOOK, {"hook": "Would you trade your second car for a box on two wheels?"}),
        (
            REPORT,
            {
                "body": "Cargo bikes sell because they replace a car. One dealer sold 418 last year, after 73 in 2019.",
                "heading": REPORT.heading,
            },
        ),
        (GERMAN, {"text": "Was den Trend bremst, ist der Platz. 2019 verkaufte der Händler 73 Räder."}),
        (
            TrendSummary(source=SOURCE, locale="de"),
            {"summary": "Familien in Freiburg kaufen Lastenräder an Stelle eines zweiten Autos, im letzten Jahr 418."},
        ),
    ],
)
def test_good_output_is_accepted(request_: Request, output: dict[str, object]) -> None:
    verdict = judge(request_, **output)
    assert verdict == Verdict.accept(registry.kind_of(request_).artifact.model_validate(output))


@pytest.mark.parametrize(
    ("request_", "output", "reason"),
    [
        (
            SUMMARY,
            {"summary": "Families buy cargo bikes, and 9,000 of them were sold last year."},
            "number_not_in_source",
        ),
        (
            SUMMARY,
            {"summary": "Familien kaufen Lastenräder an Stelle eines zweiten Autos, auch in Freiburg."},
            "wrong_language",
        ),
        (
            SUMMARY,
            {"summary": "The Amazon rainforest offers endless possibilities for curious travellers and scientists."},
            "off_topic",
        ),
        (SUMMARY, {"summary": "Bikes are sold by the dealer. Bikes are sold by the dealer."}, "repetition"),
        (SUMMARY, {"summary": "Bikes, bikes, cars."}, "too_short"),
        (SUMMARY, {"summary": "It has no end"}, "off_schema"),
        (SUMMARY, {"summary": "It has a length but does not have an end"}, "off_schema"),
        (HOOK, {"hook": "Summarize the text above in one go."}, "prompt_echo"),
        (SUMMARY, {"summary": ""}, "too_short"),
        (SUMMARY, {"summary": "A" * 1000 + "."}, "too_long"),
        (SUMMARY, {"title": "A summary that is no summary."}, "off_schema"),
        (
            HOOK,
            {"hook": "People come in to replace the second car, says its manager, Katrin Vogel."},
            "copied_from_source",
        ),
        (HOOK, {"hook": "\x00Would you trade your car for a bike?"}, "off_schema"),
        (HOOK, {"hook": "\ud800Would you trade your car for a bike?"}, "off_schema"),
        (GERMAN, {"text": GERMAN.passage}, "wrong_language"),
        (GERMAN, {"text": "Der Trend."}, "too_short"),
        (
            GERMAN,
            {"text": "Was den Trend bremst, ist der Platz. 2018 verkaufte der Händler 73 Räder."},
            "number_not_in_source",
        ),
        (GERMAN, {"text": "Was den Trend bremst, ist der Platz, und im Jahr 2019"}, "truncated"),
        (GERMAN, {"text": "..."}, "empty"),
    ],
)
def test_bad_output_is_rejected(request_: Request, output: dict[str, object], reason: str) -> None:
    verdict = judge(request_, **output)
    assert (verdict.accepted, verdict.reason) == (False, reason)
    assert verdict.detail
    assert verdict.detail.isprintable()


@pytest.mark.parametrize(
    ("text", "truncated", "reason"),
    [
        ("", False, "empty"),
        (" \n", True, "empty"),
        ('{"hook":"Would you', True, "truncated"),
        ('{"hook":"Would you', False, "off_schema"),
        ("Here is your hook!", False, "off_schema"),
        ("[" * 100_000, False, "off_schema"),
        ('{"hook":"\ud800"}', False, "off_schema"),
        ("null", False, "off_schema"),
    ],
)
def test_what_is_not_an_artifact_is_rejected(text: str, truncated: bool, reason: str) -> None:
    verdict = registry.find("hook").plan.judge(HOOK, output_of(text, truncated))
    assert (verdict.reason, verdict.artifact) == (reason, None)


def test_a_rejected_output_that_parsed_keeps_its_artifact() -> None:
    verdict = judge(HOOK, hook="Der Trend zum Lastenrad erreicht nun auch die Vorstädte.")
    assert verdict.reason is RejectionReason.WRONG_LANGUAGE
    assert verdict.artifact == HookArtifact(hook="Der Trend zum Lastenrad erreicht nun auch die Vorstädte.")


def test_an_output_complete_at_its_last_token_is_not_truncated() -> None:
    assert judge(HOOK, truncated=True, hook="Would you trade your second car for a box on two wheels?").accepted


@given(text=st.text(alphabet=st.characters(exclude_categories=()), max_size=200), truncated=st.booleans())
@settings(max_examples=60, deadline=None)
def test_judge_never_raises(text: str, truncated: bool) -> None:
    for request in SIBLINGS:
        kind = registry.kind_of(request)
        fields = kind.artifact.model_fields
        for output in (
            text,
            json.dumps(dict.fromkeys(fields, text)),
            json.dumps(dict.fromkeys(fields, f"The {text}.")),
        ):
            verdict = kind.plan.judge(request, output_of(output, truncated))
            assert verdict.accepted == (verdict.reason is None)


def test_an_accepted_summary_requests_its_translations() -> None:
    kind = registry.find("trend_summary")
    request = TrendSummary(source=SOURCE, translate_to=("de", "pt-BR"))
    artifact = kind.artifact(summary="Families in Freiburg buy cargo bikes in place of a second car.")
    german, portuguese = kind.follow_ups(request, artifact)
    assert german == Translation(source=SOURCE, passage=artifact.summary, target_locale="de")
    assert registry.kind_of(portuguese).locale(portuguese) == "pt-BR"
    assert kind.follow_ups(SUMMARY, artifact) == ()
