"""The kind `translation`, with scripted answers: what is asked, what comes together, and what is rejected."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping

import pytest
from pydantic import ValidationError

from tests.support.verifying import labelling
from thothy_ai.jobs import Translation, TranslationArtifact, Verdict, registry
from thothy_ai.jobs.api.plan import Call, Context, End, Output, Previous, run
from thothy_ai.jobs.api.verdict import RejectionReason
from thothy_ai.jobs.problems import first_problem

SOURCE = """# Night trains

The operator **Nordstern** carried 1.9 million passengers last year, see [its report](https://x.org/r).
Its manager says that the trains are full.

- Prices have risen by 28 percent since the spring.
- A bed costs `from` 89 euros for members of the club.
"""
GERMAN = {
    "Night trains": "Nachtzüge",
    "The operator **Nordstern** carried 1.9 million passengers last year, see [its report]{1}. Its manager says that "
    "the trains are full.": "Der Betreiber **Nordstern** beförderte im vergangenen Jahr 1,9 Millionen Fahrgäste, siehe "
    "[seinen Bericht]{1}. Sein Leiter sagt, dass die Züge voll sind.",
    "Prices have risen by 28 percent since the spring.": "Die Preise sind seit dem Frühjahr um 28 Prozent gestiegen.",
    "A bed costs {1} 89 euros for members of the club.": "Ein Bett kostet für Mitglieder des Klubs {1} 89 Euro.",
}
TRANSLATED = """# Nachtzüge

Der Betreiber **Nordstern** beförderte im vergangenen Jahr 1,9 Millionen Fahrgäste,
siehe [seinen Bericht](https://x.org/r). Sein Leiter sagt, dass die Züge voll sind.

- Die Preise sind seit dem Frühjahr um 28 Prozent gestiegen.
- Ein Bett kostet für Mitglieder des Klubs `from` 89 Euro.
"""
REQUEST = Translation(source=SOURCE)
KIND = registry.find("translation")


def passage(call: Call) -> str:
    content = call.messages[-1].content
    found = re.search(r"<passage>\n(.*)\n</passage>", content, re.DOTALL)
    return found[1] if found else content.rpartition("\n\n")[2]


def scripted(answers: Mapping[str, str], repaired: Mapping[str, str] | None = None) -> Callable[[Call], Output]:
    def answer(call: Call) -> Output:
        texts = repaired if call.step == "repair" and repaired is not None else answers
        return Output(json.dumps({"text": texts[passage(call)]}))

    return answer


def judged(request: Translation, answer: Callable[[Call], Output], context: Context | None = None) -> Verdict:
    return run(KIND.plan(request, context or Context()), answer)


def test_a_document_is_translated_unit_by_unit_and_keeps_its_structure() -> None:
    verdict = judged(REQUEST, scripted(GERMAN))
    assert verdict == Verdict.accept(TranslationArtifact(text=TRANSLATED.strip()))


def test_each_call_shares_the_source_and_names_the_languages() -> None:
    (calls, *_) = [next(KIND.plan(REQUEST, Context()))]
    assert [passage(call) for call in calls] == list(GERMAN)
    beginnings = {call.messages[-1].content.partition("</source>")[0] for call in calls}
    assert len(beginnings) == 1
    assert "Nordstern" in beginnings.pop()
    for call in calls:
        assert "from English into German" in call.messages[-1].content
        assert (call.step, call.locale) == ("translate", "de")
        assert call.sampling.temperature > 0


def test_a_small_model_gets_a_plain_prompt_and_the_passage_once() -> None:
    call = next(KIND.plan(REQUEST, Context(parameters=135_000_000)))[0]
    (message,) = call.messages
    assert message.content == "Translate this passage into German:\n\nNight trains"


def test_the_budget_follows_from_the_schema_and_the_schema_from_the_passage() -> None:
    short, long = next(KIND.plan(REQUEST, Context()))[:2]
    assert short.sampling.max_tokens < long.sampling.max_tokens
    for call in (short, long):
        pattern = call.schema["properties"]["text"]["pattern"]
        most = int(pattern.rpartition(",")[2].rstrip("}$"))
        assert 2 * len(passage(call)) < most <= 1.25 * (2 * len(passage(call)) + 60)


def test_passages_of_similar_length_share_a_schema() -> None:
    requests = [Translation(source="A text. " * 4, passage="é" * length) for length in range(1, 900)]
    schemas = {json.dumps(next(KIND.plan(request, Context()))[0].schema) for request in requests}
    assert len(schemas) <= 25


def test_equal_passages_are_translated_once() -> None:
    table = "| Is it full? | Is it late? |\n|---|---|\n" + "| yes | no |\n" * 20
    calls = next(KIND.plan(Translation(source=table), Context()))
    assert [passage(call) for call in calls] == ["Is it full?", "Is it late?", "yes", "no"]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("A bed costs {1} 89 euros for members of the club.", "untranslated"),
        ("Ein Bett kostet für Mitglieder des Klubs 89 Euro.", "placeholder_lost"),
        ("Un lit coûte {1} 89 euros pour tous les membres du club, et rien de plus.", "wrong_language"),
        ("Ein Bett kostet für Mitglieder des Klubs {1} 89 Euro und", "truncated"),
        ("...", "placeholder_lost"),
    ],
)
def test_a_bad_passage_is_repaired_or_rejects_the_translation(bad: str, reason: str) -> None:
    last = "A bed costs {1} 89 euros for members of the club."
    remarks: list[str] = []

    def answer(call: Call) -> Output:
        if call.step == "repair":
            remarks.append(call.messages[-1].content)
        return scripted(GERMAN | {last: bad}, GERMAN)(call)

    assert judged(REQUEST, answer).accepted
    (remark,) = remarks
    assert "An earlier draft was rejected:" in remark
    verdict = judged(REQUEST, scripted(GERMAN | {last: bad}))
    assert (verdict.accepted, verdict.reason) == (False, reason)


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (Output(""), "off_schema"),
        (Output('{"text":"Ein', End.TOKEN_LIMIT), "truncated"),
        (Output('{"text":7}'), "off_schema"),
        (Output("null"), "off_schema"),
        (Output("", End.REPETITION), "repetition"),
        (Output("", End.WRONG_LANGUAGE), "wrong_language"),
        (Output("", End.PROMPT_TOO_LONG), "prompt_too_long"),
        (Output('{"text":" "}'), "empty"),
    ],
)
def test_whatever_comes_back_the_plan_ends_with_a_reason(output: Output, reason: str) -> None:
    verdict = judged(REQUEST, lambda _: output)
    assert (verdict.accepted, verdict.reason) == (False, reason)


def test_after_a_rejection_only_the_bad_units_are_translated_again() -> None:
    bad = GERMAN | {
        "Prices have risen by 28 percent since the spring.": "Prices have risen by 28 percent since the spring."
    }
    rejected = judged(REQUEST, scripted(bad))
    assert rejected.artifact is not None
    previous = Previous(rejected.reason or RejectionReason.EMPTY, rejected.detail, rejected.artifact.model_dump())
    asked: list[str] = []

    def answer(call: Call) -> Output:
        asked.append(passage(call))
        return scripted(GERMAN)(call)

    verdict = judged(REQUEST, answer, Context(previous=previous))
    assert verdict.accepted
    assert asked == ["Prices have risen by 28 percent since the spring."]


@pytest.mark.parametrize("artifact", [None, {}, {"text": 7}, {"text": "# Andere\n\nStruktur"}, {"text": TRANSLATED}])
def test_an_attempt_of_which_nothing_can_be_kept_is_made_anew(artifact: dict[str, object] | None) -> None:
    context = Context(previous=Previous(RejectionReason.NEAR_DUPLICATE, "", artifact))
    assert len(next(KIND.plan(REQUEST, context))) == 4


def test_a_source_that_is_too_long_is_replaced_by_what_stands_around() -> None:
    source = SOURCE + "".join(
        f"\n## Chapter {number}\n\nNothing else happens here at all.\n" for number in range(3_000)
    )
    call = next(KIND.plan(Translation(source=source), Context()))[1]
    shown = call.messages[-1].content.partition("</source>")[0]
    assert "Prices have risen" in shown
    assert "Chapter 2999" not in shown


def test_a_refused_prompt_is_asked_again_with_less_around_it() -> None:
    source = SOURCE + "\n\n" + "An unrelated remark about the weather of that week follows here. " * 40

    def answer(call: Call) -> Output:
        if len(call.messages[-1].content) > 2_500:
            return Output("", End.PROMPT_TOO_LONG)
        return scripted(GERMAN)(call)

    assert judged(Translation(source=source, passage=SOURCE), answer).accepted


@pytest.mark.parametrize(
    "text", ["| 1 | 2 |\n|---|---|\n| 3,5 | 4 % |", "<https://example.org/page>", "{name} %s", "```\nonly code\n```"]
)
def test_a_text_without_words_is_its_own_translation_and_costs_nothing(text: str) -> None:
    verdict = judged(Translation(source=SOURCE, passage=text), lambda _: pytest.fail("called"))
    assert verdict == Verdict.accept(TranslationArtifact(text=text))


def test_a_text_in_the_target_language_is_rejected_without_a_call() -> None:
    verdict = judged(Translation(source=SOURCE, target_locale="en-GB"), lambda _: pytest.fail("called"))
    assert (verdict.reason, verdict.artifact) == (RejectionReason.UNTRANSLATED, None)
    assert verdict.detail == "the text is in British English already; name its region in source_locale to adapt it"


def test_a_text_is_adapted_to_another_region_if_its_locale_is_given() -> None:
    british = "The colour of the lift is grey, and its programme of repairs has been cancelled for this year."
    american = "The color of the elevator is gray, and its program of repairs has been canceled for this year."
    request = Translation(source=british, source_locale="en-GB", target_locale="en-US")
    call = next(KIND.plan(request, Context()))[0]
    assert "in American English" in call.messages[-1].content
    assert judged(request, scripted({british: american})).accepted


def test_terms_are_named_where_they_apply_and_checked() -> None:
    request = Translation(
        source="The second car is a cargo bike by Radhaus. Nobody needs a car in this town any more.",
        glossary={"car": "Auto", "second car": "Zweitwagen", "ferry": "Fähre"},
        keep=("Radhaus",),
    )
    (call,) = next(KIND.plan(request, Context()))
    assert (
        'Translate "second car" as "Zweitwagen", "car" as "Auto". Do not translate "Radhaus".'
        in call.messages[-1].content
    )
    original = passage(call)
    good = "Der Zweitwagen ist ein Lastenrad von Radhaus. Ein Auto braucht in dieser Stadt niemand mehr."
    assert judged(request, scripted({original: good})).accepted
    bad = "Das zweite Fahrzeug ist ein Lastenrad von Radhaus. Ein Auto braucht in dieser Stadt niemand mehr."
    assert judged(request, scripted({original: bad})).reason is RejectionReason.GLOSSARY


@pytest.mark.parametrize(("term", "accepted"), [({"Bicycle Works": "株式会社自転車"}, True), ({}, False)], ids=str)
def test_letters_of_another_script_are_those_of_terms(term: dict[str, str], *, accepted: bool) -> None:
    source = "The second car is a cargo bike by Bicycle Works. Nobody needs a car in this town any more."
    text = "Das zweite Auto ist ein Lastenrad von 株式会社自転車. Ein Auto braucht in dieser Stadt niemand mehr."
    request = Translation(source=source, target_locale="de", glossary=term)
    (call,) = next(KIND.plan(request, Context()))
    assert judged(request, scripted({passage(call): text})).accepted == accepted


@pytest.mark.parametrize(("formality", "said"), [("formal", "formally"), ("informal", "informally"), ("neutral", "")])
def test_the_register_is_requested(formality: str, said: str) -> None:
    request = Translation.model_validate({"source": SOURCE, "register": formality})
    assert request.formality == formality
    content = next(KIND.plan(request, Context()))[0].messages[-1].content
    assert f"Address the reader {said}" in content if said else "Address the reader" not in content


@pytest.mark.parametrize(
    ("fields", "field", "said"),
    [
        ({"glossary": {"Car": "Auto", "car": "Wagen"}}, "keep", "'car' is translated as 'Auto' and as 'Wagen'"),
        ({"glossary": {"Apple pie": "Apfelkuchen"}, "keep": ["Apple"]}, "keep", "'Apple' is to be kept"),
        ({"glossary": {"": "x"}}, "glossary", "is empty"),
        ({"glossary": {f"term {number}": "x" for number in range(101)}}, "glossary", "at most 100"),
        ({"keep": ["Foo", "foo"]}, "keep", "another spelling"),
        ({"source_locale": "de-AT"}, "source_locale", "is that of the translation"),
        ({"source_locale": "tlh"}, "source_locale", "not a supported locale"),
        ({"passage": "word " * 41_000}, "passage", "at most 200,000 characters; a job cannot translate 205,000"),
        ({"source": "word " * 41_000}, "passage", "at most 200,000 characters"),
        ({"source": "x" * 1_048_577}, "source", "the limit is 1,048,576"),
    ],
)
def test_a_request_that_cannot_be_honoured_is_refused(fields: dict[str, object], field: str, said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Translation.model_validate({"source": SOURCE} | fields)
    where, message = first_problem(caught.value)
    assert where.startswith(field)
    assert said in message


def test_a_megabyte_may_be_the_source_of_a_passage() -> None:
    request = Translation(source=SOURCE + "More of it. " * 87_000, passage="Night trains")
    assert judged(request, scripted(GERMAN)).accepted


def test_the_checks_judge_a_whole_translation() -> None:
    def reason(text: str) -> str | None:
        found = next(filter(None, KIND.plan.checks(REQUEST, TranslationArtifact(text=text))), None)  # type: ignore[attr-defined]
        return found.reason if found else None

    assert reason(TRANSLATED) is None
    assert reason(TRANSLATED.replace("1,9", "19")) == "number_not_in_source"
    assert reason(TRANSLATED.replace("(https://x.org/r)", "(https://evil.org)")) == "placeholder_lost"
    assert reason(SOURCE) in {"untranslated", "wrong_language"}
    assert reason("I'm sorry, but as an AI I cannot translate this.") is not None


VERIFIED = REQUEST.model_copy(update={"verification": True})


def verifying(doubted: str, answers: Mapping[str, str], repaired: Mapping[str, str]) -> Callable[[Call], Output]:
    def answer(call: Call) -> Output:
        if call.step == "verify":
            return labelling(call, {doubted: "C"})
        again = "An earlier draft was rejected" in call.messages[-1].content
        return scripted(repaired if again else answers)(call)

    return answer


def test_each_sentence_of_a_translation_is_held_against_its_original() -> None:
    verdict = judged(VERIFIED, verifying("nothing", GERMAN, GERMAN))
    assert (verdict.accepted, verdict.findings) == (True, ()), verdict
    assert verdict.verification is not None
    assert {claim.label for claim in verdict.verification.claims} == {"supported"}
    assert ("Night trains", "Nachtzüge") in [(claim.evidence, claim.claim) for claim in verdict.verification.claims]


@pytest.mark.parametrize("better", [True, False])
def test_a_unit_in_doubt_is_translated_again_and_a_doubt_that_stays_is_located(better: bool) -> None:
    original = "Prices have risen by 28 percent since the spring."
    wrong = "Die Preise werden ab dem Frühjahr um 28 Prozent steigen."
    right = "Die Preise sind seit dem Frühjahr um 28 Prozent gestiegen."
    bad = GERMAN | {original: wrong}
    verdict = judged(VERIFIED, verifying("werden ab", bad, GERMAN if better else bad))
    assert isinstance(verdict.artifact, TranslationArtifact)
    assert ((right if better else wrong) in verdict.artifact.text, verdict.accepted) == (True, True)
    if not better:
        (finding,) = verdict.findings
        assert finding.place is not None
        assert verdict.artifact.text[slice(*finding.place[1:])] == wrong
        assert finding.source is not None
        assert SOURCE[slice(*finding.source)] == original
