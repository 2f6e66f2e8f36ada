"""The kind `response`: a request of `/v1/responses`, whose artifact is the API's response."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from thothy_ai.jobs.api.artifact import Artifact
from thothy_ai.jobs.api.kind import JobKind
from thothy_ai.jobs.api.plan import Call, Plan
from thothy_ai.jobs.api.verdict import Verdict
from thothy_ai.jobs.plans.answers import ApiRequest
from thothy_ai.jobs.publishing.piece import Piece

ROUTE = "/v1/responses"


class ApiResponse(Artifact):
    """The response that OpenAI's API answers with; its other fields say how it was made."""

    model_config = ConfigDict(extra="allow")

    id: str
    object: str
    created_at: int
    model: str
    status: str
    output: tuple[dict[str, Any], ...]
    usage: dict[str, Any]

    def piece(self, _request: Mapping[str, Any]) -> Piece:
        """What its messages say, one after the other."""
        parts = [part for item in self.output if item.get("type") == "message" for part in item.get("content", ())]
        return Piece.of_markdown("\n\n".join(text for part in parts if (text := part.get("text"))))


class Respond(ApiRequest[ApiResponse]):
    """Respond to a text or to items, as `/v1/responses` does; any field of its bodies may be given."""

    input: Annotated[
        str | list[dict[str, Any]], Field(min_length=1, description="A text, or items as the API has them.")
    ]

    @property
    def shared(self) -> str:
        """The text that siblings most often share: the instructions, or the first item."""
        told = self.body.get("instructions")
        found = told if told and isinstance(told, str) else self.input
        return found if isinstance(found, str) else json.dumps(found[0])


def _plan(request: Respond) -> Plan:
    [output] = yield (Call.of_api(ROUTE, request.body),)
    return Verdict.accept(ApiResponse.model_validate(output.answer or {}))


KIND = JobKind(
    name="response",
    request=Respond,
    artifact=ApiResponse,
    plan=lambda request, _: _plan(request),
    locale=lambda _: "und",  # whichever the input asks for
    source=lambda request: request.shared,
    model=lambda request: request.model,
)
