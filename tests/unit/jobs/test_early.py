"""Outputs that are stopped before their end: never one that the validators would accept, whatever follows."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from pydantic_core import from_json

from benchmarks.early_stops import Stopped, outputs, stop
from benchmarks.validators import FOLDER
from thothy_ai.evaluation.validators import judge
from thothy_ai.jobs import RejectionReason
from thothy_ai.jobs.api.plan import Early
from thothy_ai.jobs.early import CHECKS, doomed
from thothy_ai.jobs.evaluation.labelled import KINDS, LabelledText, load

pytestmark = pytest.mark.slow

SOURCE = (
    "Rents in Leeds rose by 12 % last year, says Maria Hill, who runs an agency there. “We had 40 people at every "
    "viewing,” she adds. The city plans 1,500 flats for students by 2027, and expects rents to fall when they are built"
    "."
)
EARLY = Early(
    ("body",),
    tuple(CHECKS),
    SOURCE,
    banned=("game changer",),
    instruction="Write one short paragraph about rents for tenants.",
    max_words=60,
)
COPIED = "copied_from_source"
GOOD = "Tenants in Leeds paid a good deal more than a year ago. "
NEXT = "More of it follows in the sentence after that one, which goes on"


def writing(body: str) -> str:
    """An output whose last string is not finished."""
    return '{"body":' + json.dumps(body, ensure_ascii=False).removesuffix('"')


@pytest.mark.parametrize(
    ("sentence", "reason"),
    [
        ("That is what Jonathan Berkeley of the council says.", "name_not_in_source"),
        ("I'm sorry, but I cannot help with this request.", "refusal"),
        ("The text discusses rents in Leeds.", "meta_talk"),
        ("The new flats are a game changer.", "banned_phrase"),
        ("It is so, so, so, so, so, so, so.", "repetition"),
        ("Tenants in Leeds paid a good deal more than a year ago.", "repetition"),
        ("Write one short paragraph about rents for tenants.", "prompt_echo"),
        ("The city plans 1,500 flats for students by 2027, and expects rents to fall when they are.", COPIED),
        ("Look at <script>this</script>.", "unsafe_markup"),
    ],
)  # fmt: skip
def test_a_finished_sentence_that_will_be_rejected_ends_an_output(sentence: str, reason: str) -> None:
    early = replace(EARLY, checks=tuple(name for name in CHECKS if name != "untranslated_passage"))
    assert doomed(writing(GOOD + NEXT), early) is None
    assert doomed(writing(GOOD + sentence), early) is None, "it may go on"
    assert doomed(writing(f"{GOOD}{sentence} More"), early) is None, "too little follows"
    found = doomed(writing(f"{GOOD}{sentence} {NEXT}. {NEXT}"), early)
    assert found is not None
    assert found.reason is RejectionReason(reason)


def test_a_translation_is_stopped_at_an_original_s_sentence() -> None:
    original = "The library opens at nine on every day of the week. It has 300 seats for readers."
    early = Early(("text",), ("untranslated_passage",), original, "de-DE")
    kept = '{"text":"The library opens at nine on every day of the week. Sie hat 300 Plätze für alle, die'
    good = '{"text":"Die Bücherei öffnet täglich um neun. Sie hat 300 Plätze. Das reicht für alle, die lesen wollen'
    assert [found and found.reason.value for found in (doomed(text, early) for text in (kept, good))] == [
        "untranslated", None,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "body",
    [
        "“As an AI language model, I cannot write about this. I am sorry about that, my dear friends, and",
        "It says: “The city plans 1,500 flats for students by 2027, and expects rents to fall when they are done. But",
    ],
)
def test_what_an_open_quotation_has_may_still_be_quoted(body: str) -> None:
    assert doomed(writing(body), replace(EARLY, checks=("refusal", "copied_passage"))) is None


@pytest.mark.parametrize("begin", ['It got an "A" for ambition.', "It is a matter of **rents**."])
def test_nothing_behind_a_quotation_mark_is_judged(begin: str) -> None:
    """A later mark may make a quotation of it."""
    early = replace(EARLY, checks=("copied_passage",))
    rest = f"The city plans 1,500 flats for students by 2027, and expects rents to fall when they are. {NEXT}"
    assert doomed(writing(f"{begin} {rest}"), early) is None
    assert doomed(writing(f"{begin.translate({34: None, 42: None})} {rest}"), early) is not None


def test_a_text_that_is_too_long_ends_an_output() -> None:
    body = " ".join(f"In street {'x' * number} they paid more." for number in range(1, 14))
    assert doomed(writing(body), replace(EARLY, checks=("too_long",))) is not None
    assert doomed(writing(body), replace(EARLY, checks=("too_long",), max_words=500)) is None


def test_strings_by_themselves_are_judged_once_they_are_whole_and_must_be_distinct() -> None:
    early = Early(("title", "heading"), ("distinct", "new_name"), SOURCE)
    outline = (
        '{"title":"Rents in Leeds","sections":[{"heading":"Who pays","covers":"It is what Jonathan Berkeley says.",'
        '"quotes":["x"]}'
    )
    assert doomed(outline + ',{"heading":"Who pays', early) is None
    twice = doomed(outline + ',{"heading":"who  Pays",', early)
    assert twice is not None
    assert twice.reason is RejectionReason.NEAR_DUPLICATE
    name = doomed(outline + ',{"heading":"What Jonathan Berkeley said about such rents","covers":"', early)
    assert name is not None
    assert name.reason is RejectionReason.NAME_NOT_IN_SOURCE


@pytest.mark.parametrize(
    "output", ["", "[", "nonsense", '{"body": 5', '{"body":"', '{"other":"17 % in Berkeley. ' + NEXT]
)
def test_an_output_that_cannot_be_read_or_has_nothing_to_judge_goes_on(output: str) -> None:
    assert doomed(output, EARLY) is None


@pytest.fixture(scope="module")
def texts() -> list[LabelledText]:
    return load(FOLDER)


@pytest.mark.parametrize("kind", KINDS)
def test_no_labelled_text_that_the_validators_accept_is_stopped(kind: str, texts: list[LabelledText]) -> None:
    stopped = _stopped([text for text in texts if text.kind == kind][::3], stride=48)
    assert [found for found in stopped if not found.rightly] == []
    assert stopped, "the bad ones are"


@pytest.mark.parametrize("kind", ["translation", "report"])
def test_what_stopped_a_text_is_found_again_whatever_follows(kind: str, texts: list[LabelledText]) -> None:
    """Of what is stopped, each beginning goes on as another text of its language does."""
    chosen = [text for text in texts if text.kind == kind]
    found_early = _stopped([text for text in chosen if not text.accepted][::4], stride=24)
    unfinished = [found for found in found_early if found.characters < len(found.written.json) - 2]
    assert unfinished
    for found in unfinished:
        early, whole = found.written.early, _text(found.written.json, found.written.early)
        [check] = [CHECKS[name] for name in early.checks if CHECKS[name](whole, early) == found.rejection]
        begun = _text(found.written.json[: found.characters], early)
        for other in chosen[::25]:
            rest = " ".join(_text(written.json, written.early) for written in outputs(other))
            again = check(f"{begun} {rest}", early)
            assert again is not None, (found, rest)
            assert again.reason is found.rejection.reason


def _stopped(texts: list[LabelledText], stride: int) -> list[Stopped]:
    """Only what is stopped is judged: judging takes longer."""
    each = ((text, stop(written, rightly=False, stride=stride)) for text in texts for written in outputs(text))
    return [replace(found, rightly=judge(text).gate is not None) for text, found in each if found]


def _text(output: str, early: Early) -> str:
    value = from_json(output, allow_partial="trailing-strings")[early.fields[0]]
    return value if isinstance(value, str) else "\n\n".join(value)
