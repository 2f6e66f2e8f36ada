"""`Artifact`: the base class of what a job produces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, field_validator

from thothy_ai.jobs.publishing.fields import piece_of_fields
from thothy_ai.jobs.publishing.markdown import markdown
from thothy_ai.jobs.publishing.piece import Piece
from thothy_ai.jobs.text.strings import check_encodable, strings_in


class Artifact(BaseModel):
    """Base class of all artifacts: the model's output must parse as one, and `Job.result` returns one."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    def piece(self, _request: Mapping[str, Any]) -> Piece:
        """What readers get of it, in every format. `_request` has values of the request that it answers, as far as they
        are known. Of a kind that does not override this, the fields are published by their names and types.
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
