"""`Artifact`: the base class of what a job produces."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, field_validator

from thothy_ai.jobs.text.strings import check_encodable, strings_in


class Artifact(BaseModel):
    """Base class of all artifacts: the model's output must parse as one, and `Job.result` returns one."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    @property
    def markdown(self) -> str | None:
        """The text to publish as Markdown, without its title. None: the fields, one after the other."""
        return None

    @field_validator("*", mode="before")
    @classmethod
    def _check_texts(cls, value: object) -> object:
        for text in strings_in(value):
            check_encodable(text)
        return value
