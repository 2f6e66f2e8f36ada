"""The kind `hook`: what makes readers want to read the piece, in several variants, within the limits of a channel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, Final

from thothy_ai.jobs import checks
from thothy_ai.jobs.api.kind import JobKind
from thothy_ai.jobs.api.verdict import Rejection, RejectionReason
from thothy_ai.jobs.kinds.hook import small
from thothy_ai.jobs.kinds.hook.values import MAX_VARIANTS, Hook, HookArtifact, Variant
from thothy_ai.jobs.plans.by_size import BySize
from thothy_ai.jobs.plans.parts import InParts, Part, PartCall, PartFault, Values, Writing
from thothy_ai.jobs.plans.verification import claims_of
from thothy_ai.jobs.plans.writing import copied, foreign, off_topic, repair, spelled, text_faults, whole
from thothy_ai.jobs.schema import grammar_schema, post_pattern, prose_pattern
from thothy_ai.jobs.text.strings import counted

__all__ = ["KIND", "MAX_VARIANTS", "Hook", "HookArtifact", "Variant"]

MIN_SHARE_OF_SOURCE = 0.2  # of the longer words
MAX_WORDS = 90  # of a text, unless its channel has room for more
MAX_COPIED = 0.7  # of all words: a hook may quote
_SCHEMA: Final = grammar_schema(HookArtifact)


def _instruction(request: Hook) -> str:
    several = f"{request.variants} hooks" if request.variants > 1 else "one hook"
    detail = request.per_length(" Be as brief as you can.", "", " Use the space.")
    return (
        f"Write {several} for {request.audience}: text that makes them want to read on, without giving everything away "
        f"or promising what the source does not keep.{detail}\n"
        f"text: {request.form.description}, at most {request.room} characters.\n"
        "angle: in two to five words, what the text plays on, such as a question, a contrast or a figure"
        f"{'; another one for each hook' if request.variants > 1 else ''}."
    )


def _write(writing: Writing[Hook]) -> Sequence[PartCall]:
    request, schema = writing.request, deepcopy(_SCHEMA)
    variants = schema["properties"]["variants"]
    variants |= {"minItems": request.variants, "maxItems": request.variants}
    pattern = post_pattern if request.form.emoji else prose_pattern
    variants["items"]["properties"]["text"]["pattern"] = pattern(4, request.room)
    return (whole(writing, _instruction(request), schema),)


def _texts(values: Values) -> dict[Part, str]:
    return {("variants", number): variant["text"] for number, variant in enumerate(values.get("variants", ()))}


def _faults(request: Hook, values: Values) -> Iterator[PartFault]:
    texts = _texts(values)
    if faults := foreign(request, texts, "text"):
        yield from faults
        return
    yield from _part_faults(request, values)
    if len(texts) > request.variants:  # whether there may be fewer is up to the writer
        many = f"{counted(len(texts), 'variant')}, more than the {request.variants} asked for"
        yield PartFault(("variants",), Rejection(RejectionReason.TOO_LONG, many))
    yield from copied(request, texts, MAX_COPIED)
    yield from off_topic(request, texts, _instruction(request), MIN_SHARE_OF_SOURCE)


def _part_faults(request: Hook, values: Values) -> Iterator[PartFault]:
    form, source, locale = request.form, request.source, request.locale
    for part, text in _texts(values).items():
        *earlier, variant = values["variants"][: int(part[1]) + 1]
        angle, count = variant["angle"], len(checks.sentences(text, locale))
        chars = f"text has {form.length(text)} characters, more than the {form.max_chars} of {request.channel}"
        many = f"text has {count} sentences, more than {form.max_sentences}"
        own = (
            checks.length("text", text, locale, 2, max(MAX_WORDS, form.max_chars // 4)),
            Rejection(RejectionReason.TOO_LONG, chars) if form.length(text) > form.max_chars else None,
            Rejection(RejectionReason.TOO_MANY_SENTENCES, many) if count > form.max_sentences else None,
            checks.unfinished("text", text, locale, is_post=True) if form.whole_sentences else None,
            checks.too_hard(text, request.reading_level, locale),
            checks.mentions(text, request.must_mention, request.locale),
            checks.near_duplicate(text, [other["text"] for other in earlier]),
        )
        yield from text_faults(request, part, text, own, "text")
        of_angle = (
            checks.empty("angle", angle),
            checks.refusal(angle, source),
            checks.meta_talk(angle, source),
            checks.obeys_source(angle, source),
            checks.unsafe_markup(angle),
            checks.banned(angle, request.must_avoid, request.locale),
        )
        yield from (PartFault(part, found.at(*part, "angle")) for found in of_angle if found)


def _correct(writing: Writing[Hook], values: dict[str, Any]) -> dict[str, Any]:
    variants = values.get("variants", ())
    return {
        "variants": [
            {
                "angle": str(variant.get("angle", "")).strip(),
                "text": spelled(str(variant.get("text", "")), writing.request.brand_terms).strip(),
            }
            for variant in variants
        ]
    }


_PLAN = InParts(
    artifact=HookArtifact,
    write=_write,
    rewrite=lambda writing, values, faults: (repair(writing, _write(writing)[0], values, faults),),
    faults=_faults,
    # A hook may ask and tease, but not say what the source denies.
    claims=lambda request, values: [
        (part, claim)
        for part, text in _texts(values).items()
        for claim in claims_of(text, f"variants.{part[1]}.text", request.source, request.locale, needs_support=False)
    ],
    fewest=lambda request: {"variants": request.variants},
    correct=_correct,
    part_faults=_part_faults,
)
KIND = JobKind(
    name="hook",
    request=Hook,
    artifact=HookArtifact,
    plan=BySize(_PLAN, small=replace(_PLAN, write=small.write, rewrite=small.rewrite)),
    locale=lambda request: request.locale,
    source=lambda request: request.source,
    version="3",
    compared=lambda artifact: "\n".join(variant.text for variant in artifact.variants),
)
