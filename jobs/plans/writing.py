"""Shared by the kinds that write new text: their calls, repairs and checks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from thothy_ai.jobs import checks
from thothy_ai.jobs.api.plan import Call, Message, Sampling
from thothy_ai.jobs.api.requests import WritingRequest
from thothy_ai.jobs.api.verdict import Rejection, RejectionReason
from thothy_ai.jobs.plans import retries
from thothy_ai.jobs.plans.budget import max_tokens
from thothy_ai.jobs.plans.judging import judgement
from thothy_ai.jobs.plans.parts import Part, PartCall, PartFault, Values, Writing, key_of
from thothy_ai.jobs.plans.small_models import of_parts
from thothy_ai.jobs.prompts import about_source, style

TEMPERATURE = 0.6
TOP_P = 0.95
MAX_RUN = 14  # consecutive words of a part that may be copied from the source
MIN_CHARS_OF_A_LANGUAGE = 60  # a shorter part is not judged alone


def whole(writing: Writing[WritingRequest], instruction: str, schema: Mapping[str, Any]) -> PartCall:
    """The call that writes all parts at once."""
    request, source, context = writing
    messages = about_source(source, f"{instruction}\n{style(request).strip()}", context)
    return _piece(writing, messages, schema, tuple((name,) for name in schema["properties"]), "write")


def repair(writing: Writing[WritingRequest], first: PartCall, values: Values, faults: Sequence[PartFault]) -> PartCall:
    """The call that writes the faulty parts again, in the conversation in which `first` wrote them."""
    locale, properties = writing.request.locale, first.call.schema["properties"]
    schemas = {part: properties[part[0]]["items"] if len(part) > 1 else properties[part[0]] for part, _ in faults}
    advice = ((key_of(part), retries.advice(why.reason, why.detail, locale)) for part, why in faults)
    reasons = "\n".join(f"- {key}: {what}" for key, what in advice)
    ask = (
        f"These parts cannot be published:\n{reasons}\n\nWrite only them again, as an object with the keys "
        f"{', '.join(key_of(part) for part in schemas)}. The others stay as they are."
    )
    draft = json.dumps(values, ensure_ascii=False, separators=(",", ":"))
    messages = (*first.call.messages, Message("assistant", draft), Message("user", ask))
    return _piece(writing, messages, of_parts(schemas), tuple(schemas), "repair")


def _piece(
    writing: Writing[WritingRequest],
    messages: tuple[Message, ...],
    schema: Mapping[str, Any],
    parts: tuple[Part, ...],
    step: str,
) -> PartCall:
    locale = writing.request.locale
    budget = max_tokens(schema, locale, writing.context)
    sampling = Sampling(max_tokens=budget, temperature=TEMPERATURE, top_p=TOP_P)
    return PartCall(Call(messages, schema, sampling, step=step, locale=locale), parts)


def text_faults(
    request: WritingRequest, part: Part, text: str, found: Iterable[Rejection | None], field: str = ""
) -> Iterator[PartFault]:
    """Faults of a part's text, in its `field` if it has several: first the ones in `found`, then those of the common
    checks. Only the first of each reason is kept.
    """
    path, first = (*part, field) if field else part, dict[RejectionReason, Rejection]()
    for rejection in (*filter(None, found), *_common_faults(request, key_of(part), text)):
        first.setdefault(rejection.reason, rejection)
    return (PartFault(part, rejection.at(*path)) for rejection in first.values())


@judgement(kept=256)
def _common_faults(request: WritingRequest, name: str, text: str) -> Iterator[Rejection | None]:
    source, locale = request.source, request.locale
    yield checks.empty(name, text)
    yield checks.refusal(text, source)
    yield checks.unsafe_markup(text)
    yield checks.banned(text, request.must_avoid, request.locale)
    yield checks.repetition(text, locale)
    if len(text) >= MIN_CHARS_OF_A_LANGUAGE:
        yield checks.wrong_language(text, locale)
    yield checks.foreign_letters(text, given(request), locale)
    yield checks.meta_talk(text, source)
    yield checks.obeys_source(text, source)
    yield checks.copied(name, text, source, locale, max_share=1.0, max_run=MAX_RUN)
    yield checks.new_number(text, source, locale)
    yield checks.new_name(text, source, locale, allowed=request.own_names)
    yield checks.misquoted(text, source, locale)
    yield checks.contradiction(text, source, locale)
    yield checks.slip(text, locale)


@lru_cache(maxsize=64)
def given(request: WritingRequest) -> str:
    """All that the request says: its source, terms, topics and so on."""
    return request.model_dump_json()


def foreign(request: WritingRequest, texts: Mapping[Part, str], field: str) -> list[PartFault]:
    """Faults of texts in another language, for which no other validator can be trusted: of every text if all together
    are foreign, otherwise of those with a foreign sentence, with its place. Parts of lists have their text in `field`.
    """
    joined = " ".join(texts.values())
    rejection = _wrong_language(joined, request.locale)
    if rejection is None or rejection.span is None:
        return []
    (first, last), faults, start = rejection.span, list[PartFault](), 0
    if (first, last) == (0, len(joined)):
        return [PartFault(part, rejection._replace(span=None)) for part in texts]
    for part, text in texts.items():
        own = _wrong_language(text, request.locale) if len(text) >= MIN_CHARS_OF_A_LANGUAGE else None
        if start <= first < start + len(text):  # short parts count as well: detail and place belong to this sentence
            own = rejection._replace(span=(first - start, min(last - start, len(text))))
        if own:
            faults.append(PartFault(part, own.at(*part, *([field] if len(part) > 1 else []))))
        start += len(text) + 1
    return faults


_wrong_language = lru_cache(maxsize=64)(checks.wrong_language)  # a plan that is replayed judges the same texts again


def copied(request: WritingRequest, texts: Mapping[Part, str], max_share: float) -> Iterator[PartFault]:
    """Faults of the parts that copy most, if all parts together copy too much: a single short part may repeat the
    source's wording.
    """
    source, locale = request.source, request.locale
    together = checks.copied("the text", " ".join(texts.values()), source, locale, max_share, max_run=len(source))
    for part, text in texts.items() if together else ():
        if rejection := checks.copied(key_of(part), text, source, locale, max_share, max_run=MAX_RUN):
            yield PartFault(part, rejection)


def off_topic(
    request: WritingRequest, texts: Mapping[Part, str], instruction: str, min_share: float
) -> Iterator[PartFault]:
    """A fault of each text if together they are off topic, gibberish, or repeat the instruction."""
    joined = " ".join(texts.values())
    found = (
        checks.echo(joined, instruction),
        checks.off_topic(joined, request.source, request.locale, min_share),
        checks.unknown_words(joined, request.source, request.locale),
    )
    rejection = next(filter(None, found), None)
    return (PartFault(part, rejection) for part in texts) if rejection else iter(())


def spelled(text: str, brand_terms: Iterable[str]) -> str:
    """The text with the brand terms spelled as they should be. Words such as "apple" are left alone."""
    for term in brand_terms:
        if term not in {term.lower(), term.capitalize()}:
            text = re.sub(rf"(?<!\w){re.escape(term)}(?!\w)", term.replace("\\", r"\\"), text, flags=re.IGNORECASE)
    return text
