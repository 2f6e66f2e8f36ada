"""Hooks: variants within the limits of a channel, and which of them are written again."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from pydantic import ValidationError

from tests.support.plans import PLAIN, first_calls, verdict_on
from thothy_ai.jobs import Call, Context, Hook, Output, RejectionReason
from thothy_ai.jobs.api.plan import run
from thothy_ai.jobs.channels import FORMS
from thothy_ai.jobs.kinds.hook import KIND

SOURCE = """When the second car has two wheels

In the Freiburg district of Vauban, the bakery run and the school run now happen in the same vehicle: an electric
bicycle with a wooden box in front. The local dealer Radhaus Sonne sold 418 cargo bikes last year. In 2019 it sold 73.
"People come in to replace the second car," says its manager, Katrin Vogel. What holds the trend back is space: most
cargo bikes do not go down cellar stairs."""


def variants(*texts: str) -> dict[str, Any]:
    angles = ("a question", "a figure", "a contrast", "the people", "an obstacle")
    return {"variants": [{"angle": angle, "text": text} for angle, text in zip(angles, texts, strict=False)]}


GOOD = {
    "newsletter": ("Would you swap your second car for a box on wheels?", "418 cargo bikes, one small dealer"),
    "social post": (
        "Two kids, a crate of water, no car… The cargo bike is Freiburg's new family vehicle. #cargobikes #Freiburg",
        'Not faster. Not cheaper. "People come in to replace the second car," a dealer in Vauban says.',
    ),
    "video": ("The car that fits in a box", "No room for a cargo bike"),
    "podcast": (
        "Imagine doing the school run without a car. In one part of Freiburg, families do. What do they miss?",
        "Last year a small dealer sold 418 cargo bikes. So where do people park them?",
    ),
    "landing page": ("The second car now has two wheels and a wooden box", "Where will your cargo bike sleep?"),
}
GOOD |= {"x": GOOD["social post"], "linkedin": GOOD["podcast"], "meta description": GOOD["podcast"]}
GOOD |= {"push": GOOD["newsletter"], "subject line": GOOD["newsletter"], "meta title": GOOD["landing page"]}


@pytest.mark.parametrize("channel", FORMS)
def test_good_hooks_are_accepted_in_one_call(channel: str) -> None:
    request = Hook(source=SOURCE, channel=channel, variants=2)  # type: ignore[arg-type]
    verdict, asked = verdict_on(request, variants(*GOOD[channel]))
    assert verdict.accepted, verdict.detail
    assert asked.steps == ["write"]


@pytest.mark.parametrize("channel", FORMS)
def test_the_prompt_names_the_channel_s_limit_and_the_grammar_keeps_it(channel: str) -> None:
    (call,) = first_calls(Hook(source=SOURCE, channel=channel, variants=2))  # type: ignore[arg-type]
    items = call.schema["properties"]["variants"]
    assert FORMS[channel].description in call.messages[-1].content
    assert items["items"]["properties"]["text"]["pattern"].endswith(f",{FORMS[channel].max_chars}}}$")
    assert (items["minItems"], items["maxItems"]) == (2, 2)


@pytest.mark.parametrize(
    ("channel", "text", "reason"),
    [
        ("newsletter", "A subject line that is far too long to be shown whole in any mailbox", "too_long"),
        ("video", "More words than a thumbnail can have on it", "too_long"),
        ("podcast", "Families in Vauban are giving up the second car and", "truncated"),
        ("newsletter", "Why one Jonathan Berkeley sold the family car", "name_not_in_source"),
        ("newsletter", "Warum Familien ihr zweites Auto abschaffen", "wrong_language"),
        ("newsletter", "The dream of cheap flights to Mars", "off_topic"),
        (
            "social post",
            "What holds the trend back is space: most cargo bikes do not go down cellar stairs.",
            "copied_from_source",
        ),
        ("landing page", "Click <a href='x'>here</a> for bikes", "off_schema"),
    ],
)
def test_bad_hooks_are_rejected(channel: str, text: str, reason: str) -> None:
    verdict, asked = verdict_on(Hook(source=SOURCE, channel=channel, variants=1), variants(text))  # type: ignore[arg-type]
    assert verdict.reason == reason, verdict
    assert asked.steps == ["write", "repair"]


def test_too_many_sentences_are_written_again_then_left_to_a_person() -> None:
    text = "Bikes. Cars. Boxes. Stairs. Cellars sell bikes."
    verdict, asked = verdict_on(Hook(source=SOURCE, channel="podcast", variants=1), variants(text))
    assert (verdict.accepted, asked.steps) == (True, ["write", "repair"])
    assert [(each.reason, each.place and each.place.part) for each in verdict.findings] == [
        (RejectionReason.TOO_MANY_SENTENCES, "variants.0.text")
    ]


def test_only_a_bad_variant_is_written_again() -> None:
    first, second = GOOD["newsletter"]
    request = Hook(source=SOURCE, variants=2)
    again = {"variants_2": {"angle": "a figure", "text": second}}
    verdict, asked = verdict_on(request, variants(first, "Why 9,000 families gave up a car"), again)
    assert verdict.accepted
    assert verdict.artifact is not None
    assert [variant["text"] for variant in verdict.artifact.model_dump()["variants"]] == [first, second]
    assert list(asked.calls[1].schema["properties"]) == ["variants_2"]


def test_two_variants_may_not_say_the_same() -> None:
    text = GOOD["newsletter"][0]
    verdict, _ = verdict_on(Hook(source=SOURCE, variants=2), variants(text, text))
    assert verdict.reason is RejectionReason.NEAR_DUPLICATE


def test_the_number_of_variants_is_the_requested_one() -> None:
    verdict, _ = verdict_on(Hook(source=SOURCE, variants=3), variants(*GOOD["newsletter"]))
    assert (verdict.reason, verdict.detail) == (RejectionReason.TOO_SHORT, "2 variants, fewer than 3")


@pytest.mark.parametrize("count", [1, 2])
def test_a_small_model_writes_each_variant_by_itself(count: int) -> None:
    request = Hook(source=SOURCE, variants=count, channel="podcast")
    answers = [
        {f"variants_{number}": {"text": text, "angle": "the news"}}
        for number, text in enumerate(GOOD["podcast"][:count], start=1)
    ]
    verdict, asked = verdict_on(request, *answers, context=PLAIN)
    assert verdict.accepted, verdict.detail
    assert [list(call.schema["properties"]) for call in asked.calls] == [["variants_1"], ["variants_2"]][:count]
    assert len({call.messages for call in asked.calls}) == count


def test_what_a_small_model_cannot_write_first_ends_the_attempt_once_it_is_repaired_in_vain() -> None:
    request = Hook(source=SOURCE, variants=5, channel="podcast")
    bad = {"variants_1": {"text": "Why families of one Jonathan Berkeley gave up a car.", "angle": "the news"}}
    verdict, asked = verdict_on(request, bad, context=PLAIN)
    assert (verdict.accepted, verdict.reason) == (False, RejectionReason.NAME_NOT_IN_SOURCE)
    assert len(asked.calls) == 2
    (first,) = first_calls(request, PLAIN)
    assert list(first.schema["properties"]) == ["variants_1"]


@pytest.mark.parametrize("channel", ["newsletter", "video", "landing page"])
def test_a_small_model_s_headline_has_fewer_words_than_its_channel_has_room_for(channel: str) -> None:
    (call,) = first_calls(Hook(source=SOURCE, variants=1, channel=channel), PLAIN)  # type: ignore[arg-type]
    pattern = call.schema["properties"]["variants_1"]["properties"]["text"]["pattern"]
    words = FORMS[channel].max_chars // 8
    assert re.fullmatch(pattern, " ".join(["Families"] * (words - 1) + ["bicycle"]))
    assert not re.fullmatch(pattern, " ".join(["Families"] * words + ["bicycle"]))


@pytest.mark.parametrize("number", [0, 6])
def test_one_to_five_variants_are_possible(number: int) -> None:
    with pytest.raises(ValidationError, match="variants"):
        Hook(source=SOURCE, variants=number)


def test_each_channel_and_number_has_one_schema() -> None:
    requests = [
        Hook(source=f"{SOURCE} {place}", channel=channel, variants=number, audience=f"readers {place}")  # type: ignore[arg-type]
        for place in range(3)
        for channel in FORMS
        for number in (1, 3)
    ]
    schemas = {repr(first_calls(request, Context())[0].schema) for request in requests}
    assert len(schemas) == 2 * len({form.max_chars for form in FORMS.values()})


@pytest.mark.parametrize(
    ("angle", "reason"),
    [
        ("I'm sorry, but I can't help with that.", "refusal"),
        ("Here is a hook for your newsletter", "meta_talk"),
        ("<script>alert(1)</script>", "unsafe_markup"),
    ],
)
def test_an_angle_is_judged_too(angle: str, reason: str) -> None:
    request = Hook(source=SOURCE, channel="landing page", variants=1)
    bad = {"variants": [{"angle": angle, "text": GOOD["landing page"][0]}]}
    assert verdict_on(request, bad)[0].reason == reason


def test_a_small_model_writes_variant_after_variant_and_another_task_where_one_fails() -> None:
    texts = {
        "What is changing": "In Freiburg, families swap the second car for a bicycle.",
        "bad": "In Freiburg 9,000 families swap the second car for a bicycle.",
    }
    asked: list[str] = []

    def answer(call: Call) -> Output:
        (name,) = call.schema["properties"]
        angle = call.schema["properties"][name]["properties"]["angle"]["const"]
        asked.append(angle)
        text = texts["bad"] if len(asked) == 1 else f"{texts['What is changing'][:-1]}, says {len(asked) * 'so '}Vogel."
        return Output(json.dumps({name: {"text": text, "angle": angle}}))

    request = Hook(source=SOURCE, channel="social post", variants=2)
    run(KIND.plan(request, PLAIN), answer)
    assert asked[:3] == ["the news", "a question", "the reason"]


def test_a_small_model_writes_the_first_variant_about_a_passage_and_the_others_about_the_source() -> None:
    _, asked = verdict_on(
        Hook(source=SOURCE, channel="social post"),
        *({f"variants_{number}": {"text": f"{who} ride cargo bikes in Freiburg.", "angle": "x"}} for number, who in
          enumerate(("Families", "Neighbours of ours", "The bakers there"), start=1)),
        context=PLAIN,
    )  # fmt: skip
    first, *others = (call.messages[-1].content for call in asked.calls[:3])
    assert SOURCE not in first
    assert all(SOURCE in shown for shown in others)
