"""A hook as it is asked for, and as it is published on a channel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from thothy_ai.jobs.api.artifact import Artifact
from thothy_ai.jobs.api.requests import ShortText, WritingRequest
from thothy_ai.jobs.publishing.piece import Alternative, Alternatives, Piece
from thothy_ai.jobs.schema import prose

MAX_VARIANTS = 5
Channel = Literal["newsletter", "social post", "video", "podcast", "landing page"]


@dataclass(frozen=True, slots=True)
class Form:
    """What a channel publishes: what it is called in the prompt, its limits, and whether it is whole sentences."""

    description: str
    max_chars: int
    max_sentences: int
    whole_sentences: bool = True


FORMS: Final[Mapping[str, Form]] = {
    "newsletter": Form("the subject line of a newsletter, at most 60 characters", 60, 2, whole_sentences=False),
    "social post": Form("a social media post, at most 280 characters, hashtags included", 280, 5),
    "video": Form("the text on a video's thumbnail, at most 40 characters", 40, 2, whole_sentences=False),
    "podcast": Form("the opening of a podcast episode, two or three sentences to be spoken", 420, 4),
    "landing page": Form("the headline of a landing page, at most 80 characters", 80, 2, whole_sentences=False),
}


class Variant(BaseModel):
    """A hook, and what it plays on."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    angle: Annotated[str, prose(1, 80)]
    text: Annotated[str, prose(1, 420)]


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
        """The form of text that the channel publishes."""
        return FORMS[self.channel]
