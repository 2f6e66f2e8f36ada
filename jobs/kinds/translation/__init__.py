"""The kind `translation`: a passage, or the whole source, in another language, with its structure and its terms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import AliasChoices, Field, ValidationError, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from thothy_ai.jobs.api.artifact import Artifact
from thothy_ai.jobs.api.kind import A_co, JobKind
from thothy_ai.jobs.api.plan import Context, Plan, Previous
from thothy_ai.jobs.api.requests import SourceRequest, Verification
from thothy_ai.jobs.api.terms import MAX_TERMS, BrandTerms, Term
from thothy_ai.jobs.api.verdict import Rejection, RejectionReason, Verdict
from thothy_ai.jobs.kinds.translation.calls import Prompt, segment_prompt, small_segment_prompt
from thothy_ai.jobs.kinds.translation.drafting import drafted, joined, segments_of
from thothy_ai.jobs.kinds.translation.faults import aligned, faults, faults_of_whole
from thothy_ai.jobs.kinds.translation.inline import has_words
from thothy_ai.jobs.kinds.translation.task import Formality, Task, contradictions, tag_parts
from thothy_ai.jobs.kinds.translation.units import Document, document_of
from thothy_ai.jobs.kinds.translation.verifying import Translations, TranslationVerifier
from thothy_ai.jobs.plans.by_size import BySize
from thothy_ai.jobs.plans.judging import gate_in, verdict
from thothy_ai.jobs.plans.outputs import rejection_of
from thothy_ai.jobs.publishing.piece import Piece
from thothy_ai.jobs.text.locales import Locale

MAX_TRANSLATED_CHARS = 200_000  # some 600 segments, whose validators take a few seconds in all


class TranslationArtifact(Artifact):
    """The translation: Markdown if the original is, with its line breaks, links and placeholders."""

    text: Annotated[str, Field(min_length=1, max_length=6 * MAX_TRANSLATED_CHARS)]

    def piece(self, _request: Mapping[str, Any]) -> Piece:
        """The text; a heading at its top becomes the title."""
        return Piece.of_markdown(self.text)


class TranslatingRequest(SourceRequest[A_co]):
    """A request for a translation, with the source as its context."""

    target_locale: Annotated[
        Locale, Field(description="Language to translate into, with its region if that matters.")
    ] = "de"
    source_locale: Annotated[
        Locale | None, Field(description="Language of the text. Default: it is detected.", validate_default=True)
    ] = None
    glossary: Annotated[
        dict[Term, Term], Field(max_length=MAX_TERMS, description="Terms, and how each is translated.")
    ] = Field(default_factory=dict)
    keep: Annotated[BrandTerms, Field(description="Terms that are not translated.", validate_default=True)] = ()
    formality: Annotated[
        Formality,
        Field(description="How the reader is addressed.", validation_alias=AliasChoices("formality", "register")),
    ] = "neutral"
    verification: Verification = False

    @field_validator("source_locale")
    @classmethod
    def _check_languages(cls, locale: str | None, info: ValidationInfo) -> str | None:
        target = info.data.get("target_locale", "")
        if locale and set(tag_parts(target)) <= set(tag_parts(locale)):
            raise PydanticCustomError("same_language", "is that of the translation, '{target}'", {"target": target})
        return locale

    @field_validator("keep")
    @classmethod
    def _check_terms(cls, keep: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        for problem in contradictions(info.data.get("glossary", {}), keep):
            raise PydanticCustomError("glossary", "and glossary contradict each other: {problem}", {"problem": problem})
        return keep


class Translation(TranslatingRequest[TranslationArtifact]):
    """Translate a passage, with the source as its context. Without a passage, the source itself is translated."""

    passage: Annotated[
        str | None, Field(validate_default=True, description="Passage of the source to translate. Default: all of it.")
    ] = None

    @property
    def original(self) -> str:
        """The text to translate, stripped."""
        return (self.passage or self.source).strip()

    @field_validator("passage")
    @classmethod
    def _check_length(cls, passage: str | None, info: ValidationInfo) -> str | None:
        characters = len(passage or info.data.get("source", ""))
        if characters > MAX_TRANSLATED_CHARS:
            raise PydanticCustomError(
                "passage_too_long",
                "pass a passage of at most {limit} characters; a job cannot translate {characters}",
                {"limit": f"{MAX_TRANSLATED_CHARS:,}", "characters": f"{characters:,}"},
            )
        return passage


def task_of(request: Translation) -> Task:
    """The task of a request."""
    return Task(
        text=request.original,
        source=request.source,
        target=request.target_locale,
        source_locale=request.source_locale,
        glossary=tuple(request.glossary.items()),
        keep=request.keep,
        formality=request.formality,
    )


@dataclass(frozen=True)
class TranslationPlan:
    """Translates the units of a text side by side, and puts the translations in their places."""

    prompt: Prompt

    def __call__(self, request: Translation, context: Context) -> Plan:
        """Translate, and repair faults. A text without words is its own translation, and needs no call."""
        task = task_of(request)
        if rejection := task.already_there():
            return Verdict.reject(rejection)
        document = document_of(task.text)
        kept = _kept(document, task, context.previous)
        missing = [unit.text for unit in document.units if unit.text not in kept and has_words(unit.text)]
        segments = list(dict.fromkeys(segment for text in missing for segment in segments_of(text)))
        context = context if kept else replace(context, previous=None)
        worded = [segment for segment in segments if has_words(segment)]
        drafts = yield from drafted(worded, document, task, context, self.prompt)
        translations = kept | {
            text: joined(drafts[part].text if part in drafts else part for part in segments_of(text))
            for text in missing
        }
        text = document.translated(translations)
        if not text:
            return Verdict.reject(Rejection(RejectionReason.EMPTY, "the translation is empty"))
        try:
            artifact = TranslationArtifact(text=text)
        except ValidationError as error:
            return Verdict.reject(rejection_of(error))
        unread = [draft.rejection for draft in drafts.values() if draft.rejected(task.target)]
        judged = verdict(artifact, [*unread, *self.checks(request, artifact)], task.target)
        if not (judged.accepted and request.verification):
            return judged
        return (yield from self._verified(request, translations, TranslationVerifier(document, task, context)))

    def _verified(self, request: Translation, translations: Translations, verifier: TranslationVerifier) -> Plan:
        better = yield from verifier.improved(translations, self.prompt)
        artifact = TranslationArtifact(text=verifier.document.translated(better))
        if gate_in(self.checks(request, artifact), request.target_locale):  # a doubt is better than a gate's rejection
            better = translations
            artifact = TranslationArtifact(text=verifier.document.translated(better))
        found = self.checks(request, artifact)
        return verdict(artifact, found, request.target_locale, *verifier.summed_up(better))

    def checks(self, request: Translation, artifact: TranslationArtifact) -> Iterator[Rejection | None]:
        """Faults and doubts of a translation, part by part and as a whole."""
        return (found and found.at("text") for found in faults_of_whole(artifact.text, task_of(request)))


def _kept(document: Document, task: Task, previous: Previous | None) -> dict[str, str]:
    """The last attempt's translations of units that no gate rejects; empty if that leaves nothing to translate."""
    text = (previous.keepable or {}).get("text") if previous else None
    if not isinstance(text, str) or not aligned(document, last := document_of(text)):
        return {}
    pairs = zip(document.units, last.units, strict=True)
    kept = {
        unit.text: found.text
        for unit, found in pairs
        if has_words(unit.text) and not gate_in(faults(found.text, unit.text, task), task.target)
    }
    return kept if any(has_words(unit.text) and unit.text not in kept for unit in document.units) else {}


KIND = JobKind(
    name="translation",
    request=Translation,
    artifact=TranslationArtifact,
    plan=BySize(TranslationPlan(segment_prompt), small=TranslationPlan(small_segment_prompt)),
    locale=lambda request: request.target_locale,
    source=lambda request: request.source,
    version="3",
)
