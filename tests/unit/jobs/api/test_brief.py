"""Briefs: what they refuse, how their sources become one source, and what becomes of them in prompts and checks."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from tests.support.plans import PLAIN, first_calls, verdict_on
from thothy_ai.errors import InvalidJobError
from thothy_ai.jobs import Hook, Rejection, RejectionReason, Report, ReportSection, TrendSummary, registry
from thothy_ai.jobs.api.brief import Brief, BriefSource
from thothy_ai.jobs.api.plan import Context
from thothy_ai.jobs.api.terms import contains
from thothy_ai.jobs.channels import FORMS
from thothy_ai.jobs.publishing.html import html
from thothy_ai.jobs.publishing.plain import evidence
from thothy_ai.producer.drafts import parse_request
from thothy_ai.queue.canonical import canonical

SOURCE = "Orders for clay crocks doubled within a year, says Odile Marchand of Lyon. Most buyers are under thirty."
OTHER = "A workshop in Ghent books out its courses on kimchi until spring."
SOURCES = (
    BriefSource(title="Crocks", url="https://a.example/x_(1)", author="Ann Lee", date=date(2026, 3, 1), text=SOURCE),
    BriefSource(title="Kimchi [sic]", text=OTHER),
)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"must_mention": ["clay crocks"], "must_avoid": ["Crocks"]}, ["brief.must_avoid", "must_mention", "'Crocks'"]),
        ({"must_mention": ["salt"]}, ["brief: must_mention has 'salt'", "banned_phrases of the request 'salt'"]),
        (
            {"must_mention": ["clay crocks"], "must_avoid": ["crock\u2060s"]},
            ["brief.must_avoid", "must_mention", "'clay crocks'"],
        ),
        (
            {"must_mention": ["new markets"], "must_avoid": ["market"]},
            ["brief: must_mention has 'new markets', and must_avoid 'market'; take it out of one of them"],
        ),
        (
            {"must_mention": ["as marketed"], "must_avoid": ["market"]},
            ["brief: must_mention has 'as marketed', and must_avoid 'market'; take it out of one of them"],
        ),
        (
            {"must_mention": ["pots"], "must_avoid": ["pot"]},
            ["brief: must_mention has 'pots', and must_avoid 'pot'; take it out of one of them"],
        ),
        (
            {"must_avoid": ["clay pot"]},
            ["brief: must_avoid has 'clay pot'", "brand_terms of the request 'Clay Pot Co'"],
        ),
        ({"must_mention": ["28 percent"]}, ["must_mention: '28 percent'", "the source does not have"]),
        ({"must_mention": ["word " * 15]}, ["does not fit the 60 characters of the channel 'newsletter'"]),
        ({"must_mention": [" "]}, ["is empty"]),
        ({"version": 2}, ["give its name, too"]),
        ({"name": "spring", "angle": "x"}, ["brief: angle: cannot be given with the name of a stored brief"]),
        ({"name": "../spring"}, ["brief.name", "at most 60 letters"]),
        ({"angel": "new"}, ["brief.angel", "is not a known field"]),
        ({"reading_level": "grade 8"}, ["brief.reading_level", "'easy', 'general' or 'expert'"]),
        ({"limits": {"fax": 30}}, ["brief.limits.fax", "'linkedin'"]),
        ({"limits": {"x": 3}}, ["brief.limits.x", "at least 10"]),
        ({"sources": [{"url": "https://a.example"}]}, ["brief.sources.0.title", "is missing"]),
        ({"sources": [{"title": "A", "url": "javascript:x"}]}, ["brief.sources.0.url", "must be a URL"]),
        ({"sources": [{"title": "A", "date": "yesterday"}]}, ["brief.sources.0.date", "must be a date"]),
        ({"sources": [{"title": "A"}, {"title": "B"}]}, ["brief: sources.0.text: is missing"]),
        ({"sources": [{"title": "A", "text": "Other words."}]}, ["has a source, and a brief whose sources have texts"]),
        (3, ["brief", "must be an object"]),
    ],
)
def test_a_brief_that_cannot_be_followed_is_refused_with_its_fields(given: object, words: list[str]) -> None:
    fields = {"source": SOURCE, "banned_phrases": ["salt"], "brand_terms": ["Clay Pot Co"], "brief": given}
    with pytest.raises(InvalidJobError) as refused:
        parse_request("hook", fields)
    assert all(word in str(refused.value) for word in words), str(refused.value)


def test_the_texts_of_sources_are_the_source_of_the_request() -> None:
    brief = Brief(sources=SOURCES)
    given = {"brief": brief.model_dump(mode="json")}
    request = parse_request("trend_summary", given)
    assert isinstance(request, TrendSummary)
    assert request.source == f"# Crocks\n\nAnn Lee, 2026-03-01\n\n{SOURCE}\n\n# Kimchi [sic]\n\n{OTHER}"
    assert request == TrendSummary(source=brief.text, brief=brief)
    assert type(request).model_validate_json(request.model_dump_json()) == request, "as the queue keeps it"
    assert OTHER not in str(request.model_dump(exclude={"source"})), "each text is stored once"
    found = request.origin_of("books out its   courses on kimchi")
    assert found is not None
    assert found.model_dump(mode="json") == {"title": "Kimchi [sic]"}
    assert request.origin_of("not there") is None


def test_a_single_source_may_be_described_without_its_text() -> None:
    request = parse_request("hook", {"source": SOURCE, "brief": {"sources": [{"title": "Crocks"}]}})
    assert isinstance(request, Hook)
    assert str(request.origin_of("clay crocks doubled")) == "title='Crocks' url=None author=None date=None"


def test_a_name_stands_for_a_stored_brief() -> None:
    for given in ("spring", {"name": "spring"}):
        request = parse_request("hook", {"source": SOURCE, "brief": given})
        assert isinstance(request, Hook)
        assert request.brief == Brief(name="spring")
        assert request.brief.is_reference
    assert not Brief(name="spring", version=1, angle="new").is_reference


BRIEF = Brief(angle="who buys", must_mention=("Odile Marchand",), must_avoid=("boom",), reading_level="easy")


@pytest.mark.parametrize("kind", [TrendSummary, Hook, Report, ReportSection])
@pytest.mark.parametrize("context", [Context(), PLAIN])
def test_the_brief_comes_after_the_source(kind: type[Any], context: Context) -> None:
    plain, briefed = (first_calls(kind(source=SOURCE, brief=brief), context) for brief in (None, BRIEF))
    for before, after in zip(plain, briefed, strict=True):
        old, new = before.messages[-1].content, after.messages[-1].content
        shared = old[: old.index("thirty.") + len("thirty.")] if "thirty." in old else old[:20]
        assert new.startswith(shared), "siblings share the KV of the source"
    if context is not PLAIN:
        asked = briefed[0].messages[-1].content.partition("</source>")[2]
        assert "Bring out: who buys." in asked
        assert 'Mention, word for word: "Odile Marchand".' in asked
        assert 'Never use: "boom".' in asked
        assert "readers of twelve" in asked


ARTIFACTS: dict[str, dict[str, Any]] = {
    "trend_summary": {
        "title": "Clay crocks are back",
        "standfirst": "Orders have doubled, and most of those who buy are young, says {name}.",
        "key_points": [
            {"point": "Orders are twice what they were.", "quote": "Orders for clay crocks doubled within a year"},
            {"point": "The young buy most.", "quote": "Most buyers are under thirty."},
        ],
        "why_it_matters": "Makers of crocks can plan for more{boom}.",
        "tags": ["crocks", "fermentation"],
        "confidence": "low",
    },
    "hook": {"variants": [{"angle": "the people", "text": "Who buys crocks? {name} knows{boom}"}]},
    "report_section": {
        "heading": "Who buys",
        "body": "Crocks sell twice as well as a year ago, and {name} sees young people buy most of them{boom}.",
        "citations": [{"quote": "Most buyers are under thirty."}],
    },
}


def filled(value: Any, **words: str) -> Any:
    match value:
        case str():
            return value.format(**words)
        case dict():
            return {name: filled(each, **words) for name, each in value.items()}
        case list():
            return [filled(each, **words) for each in value]
    return value


@pytest.mark.parametrize("name", ARTIFACTS)
def test_what_must_be_mentioned_and_avoided_is_checked(name: str) -> None:
    kind = registry.find(name)
    fields = {"variants": 1} if name == "hook" else {"length": "short"} if name == "trend_summary" else {}
    request = kind.request(source=SOURCE, brief=BRIEF, **fields)

    def reasons(**words: str) -> set[RejectionReason]:
        artifact = kind.artifact.model_validate(filled(ARTIFACTS[name], **words))
        found: list[Rejection | None] = list(kind.plan.checks(request, artifact))
        return {each.reason for each in found if each}

    assert RejectionReason.MUST_MENTION in reasons(name="a maker", boom="")
    assert RejectionReason.BANNED_PHRASE in reasons(name="Odile Marchand", boom=", a boom")
    mentioned = reasons(name="Odile Marchand", boom="")
    assert not mentioned & {RejectionReason.MUST_MENTION, RejectionReason.BANNED_PHRASE}


@pytest.mark.parametrize(
    ("text", "phrase", "found"),
    [
        ("Odile  MARCHAND says", "odile marchand", True),
        ("Marchandise", "Marchand", False),
        ("日本の漬物です", "漬物", True),
        ("C++ and C", "C++", True),
        ("ราคาข้าวขึ้น", "ข้าว", True),
        ("salt-free", "salt", True),
    ],
)
def test_a_phrase_is_found_as_whole_words(text: str, phrase: str, found: bool) -> None:
    assert contains(text, phrase) is found


@pytest.mark.parametrize(
    ("channel", "text", "length"),
    [
        ("x", "ab https://example.com/a/very/long/address", 26),
        ("x", "日本", 4),
        ("x", "a—b…", 5),
        ("linkedin", "日本", 2),
    ],
)
def test_a_channel_counts_characters_in_its_own_way(channel: str, text: str, length: int) -> None:
    assert FORMS[channel].length(text) == length


def test_a_brief_may_lower_a_channel_s_limit() -> None:
    request = Hook(source=SOURCE, channel="x", brief=Brief(limits={"x": 200}))
    (call,) = first_calls(request)
    assert "at most 200 characters" in call.messages[-1].content
    assert "{4,200}" in str(call.schema)
    assert Hook(source=SOURCE, channel="x", locale="ja").room == 140


def test_citations_name_their_source() -> None:
    artifact = filled(ARTIFACTS["trend_summary"], name="Odile Marchand", boom="")
    artifact["key_points"][1]["quote"] = "A workshop in Ghent books out its courses on kimchi until spring."
    artifact["key_points"][1]["point"] = "Courses on kimchi in Ghent are full until spring."
    brief = Brief(sources=SOURCES)
    verdict, _ = verdict_on(TrendSummary(source=brief.text, brief=brief, length="short"), artifact)
    assert verdict.accepted, verdict
    assert verdict.artifact is not None
    first, second = verdict.artifact.model_dump(mode="json")["key_points"]
    assert first["source"] == {
        "title": "Crocks", "url": "https://a.example/x_(1)", "author": "Ann Lee", "date": "2026-03-01",
    }  # fmt: skip
    assert second["source"] == {"title": "Kimchi [sic]"}
    assert verdict.artifact.markdown.endswith(
        "[^1]: “Orders for clay crocks doubled within a year” – [Crocks](<https://a.example/x_(1)>), Ann Lee,"
        f" 2026-03-01\n[^2]: “{OTHER}” – Kimchi \\[sic\\]\n"
    )
    piece = verdict.artifact.piece({})
    assert '– <cite><a href="https://a.example/x_(1)">Crocks</a></cite>, Ann Lee, 2026-03-01</span>' in html(piece)
    assert evidence(piece).endswith(f"[2] “{OTHER}” – Kimchi [sic]")


def test_a_name_that_nobody_has_looked_up_is_not_enqueued() -> None:
    with pytest.raises(InvalidJobError, match="'spring' is the name of a stored brief"):
        canonical(Hook(source=SOURCE, brief=Brief(name="spring")))
