"""Trend summaries: what is asked, what is accepted, what is rejected and why, and what is written again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import pytest

from tests.support.plans import PLAIN, first_calls, verdict_on
from thothy_ai.jobs import (
    Call,
    Context,
    End,
    Output,
    Previous,
    RejectionReason,
    SummaryTranslation,
    TrendSummary,
    Verdict,
    registry,
)
from thothy_ai.jobs.api.plan import run
from thothy_ai.jobs.api.verdict import Place
from thothy_ai.jobs.evidence import spans
from thothy_ai.jobs.kinds import trend_summary

SOURCE = """When the second car has two wheels

In the Freiburg district of Vauban, the bakery run and the school run now happen in the same vehicle: an electric
bicycle with a wooden box in front. The local dealer Radhaus Sonne sold 418 cargo bikes last year. In 2019 it sold 73.
"People come in to replace the second car," says its manager, Katrin Vogel. "Nobody asks about top speed."

What holds the trend back is space. Most of these bikes are 2.60 metres long and do not go down cellar stairs. In a poll
of 1,100 tenants by the housing association Wohnbau Elbe, lack of a safe place to park was the most common reason for
not buying one, named by 46 percent."""

GOOD: dict[str, Any] = {
    "title": "Cargo bikes take over from the family's second car",
    "standfirst": "In Freiburg, families are buying electric bicycles with a box where they once kept another car.",
    "key_points": [
        {
            "point": "One dealer's sales rose more than fivefold in a few years.",
            "quote": "The local dealer Radhaus Sonne sold 418 cargo bikes last year. In 2019 it sold 73.",
        },
        {
            "point": "Buyers want to do without a car, and speed is not what they look for.",
            "quote": "People come in to replace the second car",
        },
        {
            "point": "The main obstacle is parking: almost half of the tenants in a poll had no safe place for one.",
            "quote": "lack of a safe place to park was the most common reason for not buying one, named by 46 percent",
        },
    ],
    "why_it_matters": "Cities that want fewer cars will have to offer families a place to park their cargo bikes.",
    "tags": ["cargo bikes", "Freiburg", "parking"],
    "confidence": "high",
}
REQUEST = TrendSummary(source=SOURCE, audience="city planners")


def changed(part: str, value: object, number: int | None = None) -> dict[str, Any]:
    values = deepcopy(GOOD)
    if number is None:
        values[part] = value
    else:
        values["key_points"][number][part] = value
    return values


def test_a_good_summary_takes_one_call() -> None:
    verdict, asked = verdict_on(REQUEST, GOOD)
    assert (verdict.accepted, verdict.detail) == (True, "")
    assert asked.steps == ["write"]
    assert verdict.artifact == registry.find("trend_summary").artifact.model_validate(GOOD)


COPY = "Here, lack of a safe place to park was the most common reason for not buying one, named by 46 percent."
GERMAN = "Was den Trend zum Lastenrad bremst, ist der fehlende Platz in den Kellern der Häuser."


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (changed("title", "The cargo bikes of Jonathan Berkeley"), "name_not_in_source"),
        (changed("point", "A dealer, Jonathan Berkeley, sold many bikes.", 0), "name_not_in_source"),
        (changed("quote", "Every second family has one by now.", 0), "quote_not_in_source"),
        (changed("standfirst", "As an AI language model, I cannot summarize this text."), "refusal"),
        (changed("standfirst", "The text discusses cargo bikes and why families buy them."), "meta_talk"),
        (changed("standfirst", "Families are buying bicycles with a box in order to"), "truncated"),
        (changed("standfirst", GERMAN), "wrong_language"),
        (changed("point", COPY, 2), "copied_from_source"),
        (changed("why_it_matters", "So what."), "too_short"),
        (changed("tags", ["bikes", "Bikes"]), "too_short"),
    ],
)
def test_a_bad_part_is_written_again_then_rejected(values: dict[str, Any], reason: str) -> None:
    verdict, asked = verdict_on(REQUEST, values)
    assert (verdict.accepted, verdict.reason) == (False, reason)
    assert asked.steps == ["write", "repair"]
    assert verdict.artifact is not None


@pytest.mark.parametrize(
    ("values", "detail"),
    [
        (changed("why_it_matters", "So what."), "why it matters has 2 words, fewer than"),
        (changed("point", "They sell well.", 0), "a key point has 3 words, fewer than 4"),
    ],
)
def test_a_detail_names_a_field_in_words(values: dict[str, Any], detail: str) -> None:
    assert verdict_on(REQUEST, values)[0].detail.startswith(detail)


def test_a_summary_may_state_a_fact_as_the_source_does_but_not_most_of_them() -> None:
    fact = "The local dealer Radhaus Sonne sold 418 cargo bikes last year, a record."
    quote = "The local dealer Radhaus Sonne sold 418 cargo bikes last year."
    assert verdict_on(REQUEST, changed("point", fact, 0))[0].accepted
    copies = {
        "title": "When the second car has two wheels",
        "standfirst": "The bakery run and the school run now happen in the same vehicle.",
        "why_it_matters": "Most of these bikes do not go down cellar stairs.",
    }
    stairs = "Most of these bikes are 2.60 metres long and do not go down cellar stairs."
    points = [
        {"point": text, "quote": quote} for text in (fact, stairs, "Nobody asks about top speed, says the manager.")
    ]
    verdict, _ = verdict_on(REQUEST, GOOD | copies | {"key_points": points})
    assert verdict.reason is RejectionReason.COPIED_FROM_SOURCE


def test_only_the_bad_part_is_asked_for_again_and_the_rest_is_kept() -> None:
    bad = changed("quote", "Every second family has one by now.", 1)
    verdict, asked = verdict_on(REQUEST, bad, {"key_points_2": GOOD["key_points"][1]})
    assert verdict.artifact is not None
    assert verdict.artifact.model_dump(mode="json") == GOOD
    assert verdict.accepted
    first, repair = asked.calls
    assert list(repair.schema["properties"]) == ["key_points_2"]
    assert repair.messages[: len(first.messages)] == first.messages, "the KV of the prompt is found again"
    draft, order = repair.messages[len(first.messages) :]
    assert (draft.role, json.loads(draft.content)) == ("assistant", bad)
    assert "Every second family" in order.content
    assert repair.sampling.max_tokens < first.sampling.max_tokens / 2


def test_a_bad_key_point_is_left_out_where_enough_remain() -> None:
    values = deepcopy(GOOD)
    values["key_points"].insert(1, {"point": "It is known that 12 cities pay for them.", "quote": "Twelve cities pay."})
    verdict, asked = verdict_on(REQUEST, values)
    assert verdict.accepted
    assert asked.steps == ["write"]
    assert verdict.artifact is not None
    assert verdict.artifact.model_dump(mode="json") == GOOD


def test_an_output_that_was_cut_off_keeps_its_whole_fields() -> None:
    text = json.dumps(GOOD)
    cut = Output(text[: text.index('"why_it_matters"') + 40], End.TOKEN_LIMIT)
    rest = {name: GOOD[name] for name in ("why_it_matters", "tags", "confidence")}
    verdict, asked = verdict_on(REQUEST, cut, rest)
    assert verdict.accepted
    assert list(asked.calls[1].schema["properties"]) == list(rest)


def test_a_quotation_that_is_nearly_right_becomes_the_source_s() -> None:
    values = changed("quote", "The local dealer Radhaus Sonne sold 418 cargo-bikes in last year", 0)
    verdict, _ = verdict_on(REQUEST, values)
    assert verdict.accepted
    quote = verdict.artifact.model_dump()["key_points"][0]["quote"]  # type: ignore[union-attr]
    assert quote in " ".join(SOURCE.split())


def test_brand_terms_are_spelled_as_requested_and_may_be_new() -> None:
    request = TrendSummary(source=SOURCE, audience="city planners", brand_terms=("eVelo Haus",))
    values = changed(
        "why_it_matters", "Shops such as Evelo haus will need rooms in which families can park their bikes."
    )
    verdict, _ = verdict_on(request, values)
    assert verdict.accepted, verdict.detail
    assert "eVelo Haus" in str(verdict.artifact)


def test_a_sentence_in_two_scripts_is_written_again_unless_the_request_has_the_words() -> None:
    matters = f"{GOOD['why_it_matters']} Then 株式会社自転車 grows."
    verdict, asked = verdict_on(REQUEST, changed("why_it_matters", matters))
    assert verdict.reason is RejectionReason.WRONG_LANGUAGE
    assert len(asked.calls) == 2
    named = TrendSummary(source=SOURCE, audience="city planners", brand_terms=("株式会社自転車",))
    assert verdict_on(named, changed("why_it_matters", matters))[0].accepted


def test_banned_phrases_are_found_in_texts_and_tags() -> None:
    request = TrendSummary(source=SOURCE, banned_phrases=("second car", "freiburg"))
    verdict, asked = verdict_on(request, GOOD)
    assert verdict.reason is RejectionReason.BANNED_PHRASE
    assert "second car" in asked.calls[0].messages[-1].content
    assert {"title", "tags"} <= set(asked.calls[1].schema["properties"])


@pytest.mark.parametrize(
    "tags",
    [["Urban Mobility", "Sustainable Cities"], ["cargo bikes", "Urban Mobility"], ["Family Life", "Baden Region"]],
)
def test_tags_may_be_in_title_case(tags: list[str]) -> None:
    verdict, asked = verdict_on(REQUEST, changed("tags", tags))
    assert (verdict.accepted, verdict.findings) == (True, ())
    assert asked.steps == ["write"]


@pytest.mark.parametrize(
    ("tag", "name"), [("Jonathan Berkeley", "Berkeley"), ("Veloworks Ltd", "Veloworks"), ("bikes by Tesla", "Tesla")]
)
def test_an_unknown_name_in_a_tag_is_left_to_a_person_at_its_place(tag: str, name: str) -> None:
    verdict, asked = verdict_on(REQUEST, changed("tags", ["cargo bikes", tag]), {"tags": ["cargo bikes", tag]})
    assert verdict.accepted
    assert asked.steps == ["write", "repair"]
    (finding,) = verdict.findings
    start = tag.index(name)
    assert finding.place == Place("tags.1", start, start + len(name))
    assert f"{name!r} is not in the source" in finding.detail


def test_a_retry_writes_only_what_was_wrong() -> None:
    bad = changed("title", "The cargo bikes of Jonathan Berkeley")
    context = Context(previous=Previous(RejectionReason.NAME_NOT_IN_SOURCE, "'Jonathan' is not in the source", bad))
    verdict, asked = verdict_on(REQUEST, {"title": GOOD["title"]}, context=context)
    assert verdict.accepted
    assert [list(call.schema["properties"]) for call in asked.calls] == [["title"]]


def test_a_retry_without_a_known_fault_starts_anew_with_the_reason() -> None:
    detail = "nearly the same as another"
    context = Context(previous=Previous(RejectionReason.NEAR_DUPLICATE, detail, GOOD))
    verdict, asked = verdict_on(REQUEST, GOOD, context=context)
    assert verdict.accepted
    assert asked.steps == ["write"]
    assert detail in asked.calls[0].messages[-1].content


@pytest.mark.parametrize(("length", "bounds"), [("short", (1, 3)), ("standard", (3, 5)), ("long", (5, 7))])
def test_length_decides_the_number_of_key_points(length: str, bounds: tuple[int, int]) -> None:
    request = TrendSummary(source=SOURCE, length=length)  # type: ignore[arg-type]
    (call,) = first_calls(request)
    points = call.schema["properties"]["key_points"]
    assert (points["minItems"], points["maxItems"]) == bounds
    few = GOOD | {"key_points": GOOD["key_points"][:1]}
    assert verdict_on(request, few)[0].accepted == (length == "short")


POINT = {"point": "One dealer sold more cargo bikes last year than in all the years before."}


def test_a_small_model_writes_part_by_part_and_gets_the_same_shape() -> None:
    request = TrendSummary(source=SOURCE, length="short")
    verdict, calls = _written_plainly(request)
    assert verdict.accepted, verdict.detail
    assert [next(iter(call.schema["properties"])) for call in calls] == [
        "key_points_1", "standfirst", "title", "why_it_matters", "tags",
    ]  # fmt: skip
    assert verdict.artifact is not None
    values = verdict.artifact.model_dump()
    assert list(values) == list(GOOD)
    assert values["key_points"][0]["quote"] == "The local dealer Radhaus Sonne sold 418 cargo bikes last year."


def test_a_small_model_writes_as_many_key_points_as_the_length_asks_for() -> None:
    _, calls = _written_plainly(TrendSummary(source=SOURCE, length="standard"))
    points = [call for call in calls if "key_points" in next(iter(call.schema["properties"]))]
    assert len({call.messages for call in points}) == 3


def test_of_a_small_model_s_summary_nothing_follows_a_point_that_cannot_be_published() -> None:
    asked = _asked_until_rejected({"key_points_1": {"point": "In Freiburg a Jonathan Berkeley bought a cargo bike."}})
    assert asked == ["key_points_1", "key_points_1"]


def test_of_a_small_model_s_summary_only_points_precede_the_standfirst() -> None:
    standfirst = "In Freiburg a Jonathan Berkeley bought a cargo bike last year."
    asked = _asked_until_rejected({"key_points_1": POINT, "standfirst": standfirst})
    assert asked == ["key_points_1", "standfirst", "standfirst"]


def _asked_until_rejected(answers: Mapping[str, Any]) -> list[str]:
    asked: list[str] = []

    def answer(call: Call) -> Output:
        (name,) = call.schema["properties"]
        asked.append(name)
        return Output(json.dumps({name: answers[name]}))

    request = TrendSummary(source=SOURCE, length="short")
    verdict = run(registry.kind_of(request).plan(request, PLAIN), answer)
    assert (verdict.reason, verdict.artifact) == (RejectionReason.NAME_NOT_IN_SOURCE, None)
    return asked


def test_a_small_model_writes_a_point_about_a_passage_and_the_rest_about_the_source() -> None:
    _, calls = _written_plainly(TrendSummary(source=SOURCE, length="standard"))
    for call in calls:
        shown = call.messages[-1].content
        of_point = next(iter(call.schema["properties"])).startswith("key_points")
        assert (SOURCE.strip() in shown) is not of_point
        assert any(span in shown for span in spans(SOURCE, "en"))


def _written_plainly(request: TrendSummary) -> tuple[Verdict, list[Call]]:
    calls: list[Call] = []

    def answer(call: Call) -> Output:
        calls.append(call)
        return Output(json.dumps(_plain_answer(call.schema)))

    return run(registry.kind_of(request).plan(request, PLAIN), answer), calls


def _plain_answer(schema: Any) -> dict[str, Any]:
    """A point comes without its quotation, which is found for it."""
    return {name: POINT if name.startswith("key_points") else GOOD[name] for name in schema["properties"]}


def test_an_accepted_summary_asks_for_translations_of_all_of_it() -> None:
    kind = registry.find("trend_summary")
    request = TrendSummary(source=SOURCE, translate_to=("de", "pt-BR"), brand_terms=("Radhaus",))
    artifact = kind.artifact.model_validate(GOOD)
    german, portuguese = kind.follow_ups(request, artifact)
    assert isinstance(german, SummaryTranslation)
    assert german.summary == artifact
    assert german.keep == ("Radhaus",)
    assert registry.kind_of(portuguese).locale(portuguese) == "pt-BR"
    assert kind.follow_ups(REQUEST, artifact) == ()


@pytest.mark.parametrize(
    ("locale", "expected"), [("en", "English"), ("pt-BR", "Brazilian Portuguese"), ("zh-TW", "Traditional Chinese")]
)
def test_the_language_is_always_named(locale: str, expected: str) -> None:
    for context in (Context(), PLAIN) if locale != "en" else (Context(),):
        for call in first_calls(TrendSummary(source=SOURCE, locale=locale), context):
            assert expected in call.messages[-1].content
            assert call.locale == locale


def test_a_quotation_of_two_words_proves_nothing() -> None:
    verdict, _ = verdict_on(REQUEST, changed("quote", "cargo bikes", 0))
    assert verdict.reason == "quote_not_in_source"


def test_one_quotation_does_not_prove_all_points() -> None:
    quote = GOOD["key_points"][0]["quote"]
    same = {**GOOD, "key_points": [{**point, "quote": quote} for point in GOOD["key_points"]]}
    verdict, _ = verdict_on(REQUEST, same)
    assert (verdict.accepted, verdict.reason) == (False, "repetition")


@pytest.mark.parametrize(
    "values",
    [
        {"title": 5},
        {"title": None, "standfirst": ["x"]},
        {"key_points": "none"},
        {"key_points": ["a", 1]},
        {"key_points": [{"point": 7, "quote": {}}]},
        {"tags": [1, 2]},
        {"tags": {"a": "b"}},
        {"confidence": 3},
    ],
)
def test_outputs_of_other_types_are_off_schema(values: dict[str, Any]) -> None:
    verdict, asked = verdict_on(REQUEST, {**GOOD, **values})
    assert (verdict.accepted, verdict.reason) == (False, "off_schema")
    assert asked.steps == ["write", "repair"]


@pytest.mark.parametrize(
    ("tags", "said"),
    [(["beer"], "1 tag, fewer than 2"), (["beer", "Beer"], "the same tag twice: beer, Beer"), (["beer", "ale"], "")],
)
def test_an_edit_needs_two_different_tags(tags: list[str], said: str) -> None:
    found = [fault.rejection.detail for fault in trend_summary._faults(REQUEST, GOOD | {"tags": tags})]
    assert [each for each in found if "tag" in each] == ([said] if said else [])
