"""`Artifact`: the base class of what a job produces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, field_validator, model_serializer

from thothy_ai.jobs.api.brief import Origin
from thothy_ai.jobs.publishing.fields import piece_of_fields
from thothy_ai.jobs.publishing.markdown import markdown
from thothy_ai.jobs.publishing.piece import Piece, Quote
from thothy_ai.jobs.text.strings import check_encodable, strings_in


class Evidence(BaseModel):
    """Base class of quoted evidence: `quote` is a span of the source, `source` the brief's source that has it."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    @model_serializer(mode="wrap")
    def _leave_out_an_unknown_source(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in handler(self).items() if name != "source" or value is not None}


def quoted(quote: str, source: Origin | None) -> Quote:
    """A quotation in the form that readers get."""
    if source is None:
        return Quote(" ".join(quote.split()))
    return Quote(" ".join(quote.split()), source.title, source.byline, source.url or "")


class Artifact(BaseModel):
    """Base class of all artifacts: the model's output must parse as one, and `Job.result` returns one."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    def piece(self, _request: Mapping[str, Any]) -> Piece:
        """The artifact as readers get it, for every format. `_request` has the known values of its request. Unless a
        kind overrides this method, the fields are published by their names and types.
        """
        return piece_of_fields(self.model_dump(mode="json"))

    @property
    def markdown(self) -> str:
        """The piece as a Markdown document, with its evidence as footnotes."""
        return markdown([self.piece({})])

    @field_validator("*", mode="before")
    @classmethod
    def _check_texts(cls, value: object) -> object:
        for text in strings_in(value):
            check_encodable(text)
        return value
