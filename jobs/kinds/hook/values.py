"""A hook as it is asked for, and as it is published on a channel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from thothy_ai.jobs.api.artifact import Artifact
from thothy_ai.jobs.api.requests import WritingRequest
from thothy_ai.jobs.api.terms import ShortText
from thothy_ai.jobs.channels import FORMS, MAX_CHARS, Channel, Form
from thothy_ai.jobs.publishing.piece import Alternative, Alternatives, Piece
from thothy_ai.jobs.schema import post, prose
from thothy_ai.jobs.text.locales import script_of

MAX_VARIANTS = 5
_WIDE: Final = frozenset({"Hans", "Hant", "Jpan", "Kore"})  # scripts whose characters X counts twice


class Variant(BaseModel):
    """One hook, and the angle that it plays on."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    angle: Annotated[str, prose(1, 80)]
    text: Annotated[str, post(1, MAX_CHARS)]


class HookArtifact(Artifact):
    """Variants of a hook for one channel."""

    variants: Annotated[tuple[Variant, ...], Field(min_length=1, max_length=MAX_VARIANTS)]

    def piece(self, request: Mapping[str, Any]) -> Piece:
        """The texts to choose from, under the name of their channel."""
        channel = request.get("channel")
        choices = Alternatives(tuple(Alternative(variant.text, variant.angle) for variant in self.variants))
        return Piece(label=f"Hooks: {channel}" if channel else "Hooks", blocks=(choices,))


class Hook(WritingRequest[HookArtifact]):
    """Write hooks for a channel, in a tone, each from another angle."""

    channel: Annotated[Channel, Field(description="Where the hook appears.")] = "newsletter"
    variants: Annotated[int, Field(ge=1, le=MAX_VARIANTS, description="How many hooks to choose from.")] = 3
    tone: Annotated[ShortText, Field(description="Tone of the text.")] = "curious"

    @property
    def form(self) -> Form:
        """The form of text that the channel publishes, with the limit of the brief if it has one."""
        form = FORMS[self.channel]
        limits = self.brief.limits if self.brief else {}
        return replace(form, max_chars=limits.get(self.channel, form.max_chars))

    @property
    def room(self) -> int:
        """How many characters of its language's script the channel has room for."""
        wide = self.form.weighted and script_of(self.locale) in _WIDE
        return self.form.max_chars // 2 if wide else self.form.max_chars

    @model_validator(mode="after")
    def _check_room(self) -> Self:
        wanted = " ".join(self.must_mention)
        if self.form.length(wanted) > self.form.max_chars:
            raise PydanticCustomError(
                "no_room",
                "brief.must_mention: does not fit the {limit} characters of the channel '{channel}'; ask for less, or"
                " for another channel",
                {"limit": self.form.max_chars, "channel": self.channel},
            )
        return self
