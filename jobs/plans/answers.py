"""The plan and the artifact of kinds whose request is a body of OpenAI's API. The artifact is the API's answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, field_validator

from thothy_ai.jobs.api.artifact import Artifact
from thothy_ai.jobs.api.kind import A_co, Request
from thothy_ai.jobs.api.plan import Call, Plan
from thothy_ai.jobs.api.verdict import Verdict
from thothy_ai.jobs.publishing.piece import Piece
from thothy_ai.jobs.text.strings import check_encodable, strings_in


class ApiAnswer(Artifact):
    """The object that OpenAI's API answers with."""

    id: str
    object: str
    created: int
    model: str
    choices: tuple[dict[str, Any], ...]
    usage: dict[str, Any]
    system_fingerprint: str | None = None

    def piece(self, _request: Mapping[str, Any]) -> Piece:
        """The texts of all choices, one after the other."""
        texts = [choice.get("text") or choice.get("message", {}).get("content") for choice in self.choices]
        return Piece.of_markdown("\n\n".join(text for text in texts if text))


def _encodable(value: object) -> object:
    """Check that a value can be encoded. Unlike sources, messages may be empty."""
    for text in strings_in(value):
        check_encodable(text)
    return value


class ApiRequest(Request[A_co]):
    """The body of a request to OpenAI's API, whose other fields are those that `thothy serve` takes there.

    Whether they are valid is found out when the job runs.
    """

    model_config = ConfigDict(extra="allow")

    __pydantic_extra__: dict[Annotated[str, AfterValidator(_encodable)], Annotated[Any, BeforeValidator(_encodable)]]
    model: Annotated[str | None, Field(description="Model, adapter or alias to ask; without one, any.")] = None

    @field_validator("*", mode="before")
    @classmethod
    def _check_texts(cls, value: object) -> object:
        return _encodable(value)

    @property
    def body(self) -> dict[str, Any]:
        """The fields that have a value."""
        return self.model_dump(mode="json", exclude_none=True)


def asked(route: str, bodies: Sequence[Mapping[str, Any]]) -> Plan:
    """Ask for the answers to these bodies, of one prompt each, side by side, and merge them into one."""
    outputs = yield tuple(Call.of_api(route, body) for body in bodies)
    answers = [output.answer or {} for output in outputs]
    merged = dict(answers[0])
    merged["choices"] = [
        {**choice, "index": index}
        for index, choice in enumerate(choice for answer in answers for choice in answer["choices"])
    ]
    for answer in answers[1:]:
        merged["usage"] = _sum(merged["usage"], answer["usage"])
    return Verdict.accept(ApiAnswer.model_validate(merged))


def _sum(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _sum(value, second[name]) if isinstance(value, Mapping) else value + second[name]
        for name, value in first.items()
    }
