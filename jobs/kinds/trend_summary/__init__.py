"""The kind `trend_summary`: what is changing, with key points that the source supports, and why it matters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, Final

from thothy_ai.jobs import checks
from thothy_ai.jobs.api.kind import JobKind
from thothy_ai.jobs.api.verdict import Rejection, RejectionReason
from thothy_ai.jobs.evidence import restored
from thothy_ai.jobs.kinds.trend_summary import small
from thothy_ai.jobs.kinds.trend_summary.values import KeyPoint, SummaryTranslation, TrendSummary, TrendSummaryArtifact
from thothy_ai.jobs.plans.by_size import BySize
from thothy_ai.jobs.plans.parts import InParts, Part, PartCall, PartFault, Values, Writing
from thothy_ai.jobs.plans.verification import ArtifactClaim, claims_of
from thothy_ai.jobs.plans.writing import copied, foreign, off_topic, repair, spelled, text_faults, whole
from thothy_ai.jobs.schema import grammar_schema

__all__ = ["KIND", "KeyPoint", "TrendSummary", "TrendSummaryArtifact"]

MIN_SHARE_OF_SOURCE = 0.25  # of the longer words
MIN_QUOTED_WORDS = 3
MIN_TAGS = 2
MAX_COPIED = 0.5  # of all words
LIMITS: Final[Mapping[Part, tuple[int, int]]] = {  # of words, for English
    ("title",): (2, 18),
    ("standfirst",): (6, 80),
    ("key_points",): (4, 60),
    ("why_it_matters",): (5, 80),
}


_SCHEMA: Final = grammar_schema(TrendSummaryArtifact)
_TEXTS: Final = ("title", "standfirst", "why_it_matters")
_FREE: Final = (("title",), ("why_it_matters",))  # parts that may go beyond the source, but not contradict it


def _instruction(request: TrendSummary) -> str:
    least, most = request.points
    extent = request.per_length("one sentence", "one or two sentences", "two or three sentences")
    return (
        f"Write a trend summary for {request.audience}.\n"
        "title: a headline of at most 12 words that names the development.\n"
        f"standfirst: {extent} on what is changing, for whom and how far.\n"
        f"key_points: {least} to {most}. point: one sentence in your own words. quote: the passage of the source that "
        "proves it, 5 to 30 words, copied letter by letter.\n"
        f"why_it_matters: {extent} on what follows from it for these readers, as far as the source supports it.\n"
        "tags: 2 to 6 subjects, one to three words each.\n"
        "confidence: low if the source is one voice or opinion, medium if it reports observations, high if it has "
        "figures and says where they are from."
    )


def _write(writing: Writing[TrendSummary]) -> Sequence[PartCall]:
    request, schema = writing.request, deepcopy(_SCHEMA)
    schema["properties"]["tags"]["minItems"] = MIN_TAGS
    schema["properties"]["key_points"] |= dict(zip(("minItems", "maxItems"), request.points, strict=True))
    return (whole(writing, _instruction(request), schema),)


def _texts(values: Values) -> dict[Part, str]:
    texts: dict[Part, str] = {(name,): values[name] for name in _TEXTS if name in values}
    return texts | {("key_points", number): point["point"] for number, point in enumerate(values.get("key_points", ()))}


def _faults(request: TrendSummary, values: Values) -> Iterator[PartFault]:
    texts = _texts(values)
    if faults := foreign(request, texts, "point"):
        yield from faults
        return
    yield from _part_faults(request, values)
    if "tags" in values:
        joined = ", ".join(values["tags"])
        few = f"{len(values['tags'])} tag, fewer than {MIN_TAGS}"
        twice = len({tag.casefold() for tag in values["tags"]}) < len(values["tags"])
        found = (
            Rejection(RejectionReason.TOO_SHORT, few) if len(values["tags"]) < MIN_TAGS else None,
            Rejection(RejectionReason.REPETITION, f"the same tag twice: {joined}") if twice else None,
            checks.empty("tags", joined),
            checks.banned(joined, request.must_avoid, request.locale),
            checks.unsafe_markup(joined),
            checks.new_number(joined, request.source, request.locale),
        )
        yield from (PartFault(("tags",), rejection) for rejection in found if rejection)
        for rejection in checks.foreign_tags(values["tags"], request.source, request.locale):
            yield PartFault(("tags",), rejection)
        for number, tag in enumerate(values["tags"]):
            if doubt := checks.unknown_name(tag, request.source, request.locale, request.own_names):
                yield PartFault(("tags",), doubt.at("tags", number))
    prose = {part: text for part, text in texts.items() if part != ("title",)}
    if hard := checks.too_hard(" ".join(prose.values()), request.reading_level, request.locale):
        longest = max(prose, key=lambda part: len(prose[part]))
        yield PartFault(longest, hard)
    missing = checks.mentions(" ".join(texts.values()), request.must_mention, request.locale)
    if missing and "standfirst" in values:
        yield PartFault(("standfirst",), missing)
    yield from copied(request, texts, MAX_COPIED)
    yield from off_topic(request, texts, _instruction(request), MIN_SHARE_OF_SOURCE)


def _part_faults(request: TrendSummary, values: Values) -> Iterator[PartFault]:
    for part, text in _texts(values).items():
        name = "a key point" if len(part) > 1 else str(part[0]).replace("_", " ")
        earlier = values["key_points"][: int(part[1])] if len(part) > 1 else ()
        quote = values["key_points"][int(part[1])]["quote"] if len(part) > 1 else ""
        own = (
            checks.length(name, text, request.locale, *LIMITS[part[:1]]),
            checks.unfinished(name, text, request.locale) if name != "title" else None,
            checks.near_duplicate(text, [point["point"] for point in earlier]),
            checks.denied(text, quote, request.source, request.locale) if quote else None,
            checks.own_title(text, request.source) if name == "title" else None,
            checks.repeated_title(values["title"], text) if name == "standfirst" and "title" in values else None,
        )
        yield from text_faults(request, part, text, own, "point" if len(part) > 1 else "")
    for number, point in enumerate(values.get("key_points", ())):
        quote = point["quote"]
        rejection = checks.quoted("quote", quote, request.source) or checks.unsafe_markup(quote)
        if rejection is None and len(checks.words(quote, request.locale)) < MIN_QUOTED_WORDS:
            detail = f"quote is too short to prove anything: {quote[:80]!r}"
            rejection = Rejection(RejectionReason.QUOTE_NOT_IN_SOURCE, detail)
        if rejection is None and number and len({each["quote"].casefold() for each in values["key_points"]}) == 1:
            rejection = Rejection(RejectionReason.REPETITION, "all key points have the same quote")
        if rejection is None:
            rejection = checks.exchanged(number, values["key_points"], request.source, request.locale)
        if rejection:
            yield PartFault(("key_points", number), rejection.at("key_points", number, "quote"))


def _claims(request: TrendSummary, values: Values) -> list[tuple[Part, ArtifactClaim]]:
    """The claims of a summary; each point is first held against its quotation."""
    claims: list[tuple[Part, ArtifactClaim]] = []
    for part, text in _texts(values).items():
        quotes = [values["key_points"][part[1]]["quote"]] if len(part) > 1 else []
        path = f"key_points.{part[1]}.point" if len(part) > 1 else str(part[0])
        found = claims_of(text, path, request.source, request.locale, quotes, needs_support=part not in _FREE)
        claims += ((part, claim) for claim in found)
    return claims


def _correct(writing: Writing[TrendSummary], values: dict[str, Any]) -> dict[str, Any]:
    """Spell brand terms correctly, quote as the source does, and keep each tag once."""
    request, corrected = writing.request, dict(values)
    for name in _TEXTS:
        if name in corrected:
            corrected[name] = spelled(corrected[name], request.brand_terms).strip()
    if "title" in corrected:
        corrected["title"] = corrected["title"].rstrip(" ,;:(–—-")
    corrected["key_points"] = []
    for number, point in enumerate(values.get("key_points", ())):
        text = spelled(str(point.get("point", "")), request.brand_terms).strip()
        quote = point.get("quote")
        if quote is None:  # a small model is not asked for one
            quote = small.evidence_for(text, writing, number)
        evidence = restored(str(quote), request.source)
        origin = request.origin_of(evidence)
        named = {"source": origin.model_dump(mode="json")} if origin else {}
        corrected["key_points"].append({"point": text, "quote": evidence, **named})
    if "tags" in corrected:
        corrected["tags"] = list(
            {tag.casefold(): tag for tag in (tag.strip(" #,.;") for tag in corrected["tags"])}.values()
        )
    return corrected


_PLAN = InParts(
    artifact=TrendSummaryArtifact,
    write=_write,
    rewrite=lambda writing, values, faults: (repair(writing, _write(writing)[0], values, faults),),
    faults=_faults,
    claims=_claims,
    fewest=lambda request: {"key_points": request.points[0]},
    correct=_correct,
    part_faults=_part_faults,
)
KIND = JobKind(
    name="trend_summary",
    request=TrendSummary,
    artifact=TrendSummaryArtifact,
    plan=BySize(_PLAN, small=replace(_PLAN, write=small.write, rewrite=small.rewrite)),
    locale=lambda request: request.locale,
    source=lambda request: request.source,
    version="3",
    compared=lambda artifact: "\n".join(artifact.texts.values()),
    follow_ups=lambda request, artifact: tuple(
        SummaryTranslation(source=request.source, summary=artifact, target_locale=locale, keep=request.brand_terms)
        for locale in request.translate_to
    ),
)
