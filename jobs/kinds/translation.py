"""The kind `translation`: a passage, or the whole source if it is short enough, in another language."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from thothy_ai.jobs import checks
from thothy_ai.jobs.kind import Artifact, JobKind
from thothy_ai.jobs.locales import Locale, language_of
from thothy_ai.jobs.one_call import OneCall
from thothy_ai.jobs.plan import Context, Message, Sampling
from thothy_ai.jobs.prompts import about_source
from thothy_ai.jobs.requests import SourceRequest
from thothy_ai.jobs.schema import prose, prose_pattern
from thothy_ai.jobs.verdict import Rejection

MAX_PASSAGE_CHARS = 6_000  # a longer text is translated passage by passage
MAX_GROWTH = 1.5  # length of a translation relative to its original, in characters
CHARS_PER_TOKEN = 3.2  # with a small vocabulary, in a language that it was not trained on


class TranslationArtifact(Artifact):
    """The translation of the passage."""

    text: Annotated[str, prose(1, 2 * MAX_PASSAGE_CHARS)]


class Translation(SourceRequest[TranslationArtifact]):
    """Translate a passage, with the source as its context. Without a passage, the source itself is translated."""

    passage: Annotated[
        str | None, Field(validate_default=True, description="Passage of the source to translate. Default: all of it.")
    ] = None
    target_locale: Annotated[Locale, Field(description="Language to translate into.")] = "de"

    @property
    def original(self) -> str:
        """The text to translate, stripped."""
        return (self.passage or self.source).strip()

    @field_validator("passage")
    @classmethod
    def _check_length(cls, passage: str | None, info: ValidationInfo) -> str | None:
        characters = len(passage or info.data.get("source", ""))
        if characters > MAX_PASSAGE_CHARS:
            context = {"limit": f"{MAX_PASSAGE_CHARS:,}", "characters": f"{characters:,}"}
            raise PydanticCustomError(
                "passage_too_long",
                "pass a passage of at most {limit} characters; a job cannot translate {characters}",
                context,
            )
        return passage


def _prompt(request: Translation, context: Context) -> tuple[Message, ...]:
    language = language_of(request.target_locale).name
    if request.passage is None:
        return about_source(request.source, f"Translate this text into {language}.", context)
    return about_source(request.source, f"Translate this passage of it into {language}:\n\n{request.original}", context)


def _max_chars(request: Translation) -> int:
    return int(len(request.original) * MAX_GROWTH) + 40


def _sampling(request: Translation) -> Sampling:
    return Sampling(max_tokens=int(_max_chars(request) / CHARS_PER_TOKEN) + 16, temperature=0.3, top_p=0.9)


def _schema_overrides(request: Translation) -> Mapping[str, Any]:
    return {"text": {"type": "string", "pattern": prose_pattern(1, _rounded_up(_max_chars(request)))}}


def _rounded_up(characters: int) -> int:
    """To one of four bounds per power of two: requests with the same schema share its masks' state in the engine."""
    step = 1 << max(0, characters.bit_length() - 3)
    return -(-characters // step) * step


def _checks(request: Translation, artifact: TranslationArtifact) -> Iterator[Rejection | None]:
    original, translated = request.original, artifact.text
    yield checks.empty("text", translated)
    yield checks.wrong_language(translated, request.target_locale)
    yield checks.proportion("text", translated, original)
    if not checks.unfinished("passage", original, request.target_locale):
        yield checks.unfinished("text", translated, request.target_locale)
    yield checks.repetition(translated, request.target_locale)
    yield checks.new_number(translated, original, request.target_locale)


KIND = JobKind(
    name="translation",
    request=Translation,
    artifact=TranslationArtifact,
    plan=OneCall(
        artifact=TranslationArtifact,
        prompt=_prompt,
        sampling=_sampling,
        checks=_checks,
        locale=lambda request: request.target_locale,
        schema_overrides=_schema_overrides,
    ),
    locale=lambda request: request.target_locale,
    source=lambda request: request.source,
)
