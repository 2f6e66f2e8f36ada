"""A translation: a passage, or the whole source when it is short enough, in another language."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from thothy_ai.jobs import checks
from thothy_ai.jobs.kind import Artifact, JobKind, Message, Rejection, Sampling
from thothy_ai.jobs.locales import Locale, language_of
from thothy_ai.jobs.prompts import about_source
from thothy_ai.jobs.requests import SourceRequest
from thothy_ai.jobs.schema import prose, prose_pattern

MAX_PASSAGE = 6_000  # characters; a longer text is translated passage by passage
GROWTH = 1.5  # a translation is at most this many times as long as its original, in characters
CHARACTERS_PER_TOKEN = 3.2  # of a small vocabulary, in a language it was not trained for


class Translation(SourceRequest):
    """Ask for a passage in another language. The source is its context; without a passage the source is translated."""

    passage: Annotated[str | None, Field(validate_default=True)] = None
    target_locale: Locale = "de"

    @property
    def original(self) -> str:
        """The text to translate."""
        return (self.passage or self.source).strip()

    @field_validator("passage")
    @classmethod
    def _check_length(cls, passage: str | None, info: ValidationInfo) -> str | None:
        characters = len(passage or info.data.get("source", ""))
        if characters > MAX_PASSAGE:
            context = {"limit": f"{MAX_PASSAGE:,}", "characters": f"{characters:,}"}
            raise PydanticCustomError(
                "passage_too_long",
                "give a passage of at most {limit} characters: {characters} can't be translated in one go",
                context,
            )
        return passage


class TranslationArtifact(Artifact):
    """The translated passage."""

    text: Annotated[str, prose(1, 2 * MAX_PASSAGE)]


def _prompt(request: Translation) -> tuple[Message, ...]:
    language = language_of(request.target_locale).name
    if request.passage is None:
        return about_source(request.source, f"Translate this text into {language}.")
    return about_source(request.source, f"Translate this passage of it into {language}:\n\n{request.original}")


def _longest(request: Translation) -> int:
    return int(len(request.original) * GROWTH) + 40


def _sampling(request: Translation) -> Sampling:
    return Sampling(max_tokens=int(_longest(request) / CHARACTERS_PER_TOKEN) + 16, temperature=0.3, top_p=0.9)


def _narrower(request: Translation) -> Mapping[str, Any]:
    return {"text": {"type": "string", "pattern": prose_pattern(1, _longest(request))}}


def _checks(request: Translation, artifact: TranslationArtifact) -> Iterator[Rejection | None]:
    original, translated = request.original, artifact.text
    yield checks.empty("text", translated)
    yield checks.wrong_language(translated, request.target_locale)
    yield checks.length_ratio("text", translated, original, 0.3, GROWTH)
    if not checks.unfinished("passage", original, MAX_PASSAGE + 10):
        yield checks.unfinished("text", translated, _longest(request))
    yield checks.repetition(translated)
    yield checks.new_number(translated, original)


KIND = JobKind(
    name="translation",
    request=Translation,
    artifact=TranslationArtifact,
    prompt=_prompt,
    sampling=_sampling,
    locale=lambda request: request.target_locale,
    source=lambda request: request.source,
    checks=_checks,
    narrower=_narrower,
)
