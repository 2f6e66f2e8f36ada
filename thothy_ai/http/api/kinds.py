"""`/api/kinds`: the kinds of jobs, with the JSON schemas of their requests and artifacts."""

from __future__ import annotations

import inspect
from typing import Any

from pydantic import BaseModel

from thothy_ai.http.api.models import KindAnswer, KindList
from thothy_ai.http.api.operations import Operation, OperationCall, missing
from thothy_ai.http.openai.chat import ChatBody
from thothy_ai.http.openai.completions import CompletionBody
from thothy_ai.jobs import registry

BODIES: dict[str, type[BaseModel]] = {"chat": ChatBody, "completion": CompletionBody}  # which their requests are


class KindOperations:
    """The operations on kinds of jobs."""

    def __init__(self) -> None:
        self.operations = (
            Operation("GET", "/api/kinds", "All kinds of jobs.", "read", self.list_, answer=KindList),
            Operation("GET", "/api/kinds/{id}", "One kind.", "read", self.show, answer=KindAnswer),
        )

    async def list_(self, call: OperationCall) -> KindList:  # noqa: ARG002 - as every operation
        return KindList(data=[kind_of(name) for name in registry.names()])

    async def show(self, call: OperationCall) -> KindAnswer:
        name = call.request.path_params["id"]
        if name not in registry.names():
            raise missing("kind", name)
        return kind_of(name)


def request_class(name: str) -> type[BaseModel]:
    """The class of a kind's request."""
    found: type[BaseModel] = BODIES.get(name) or registry.find(name).request
    return found


def without_model(schema: dict[str, Any]) -> None:
    """Remove `model` from the required fields: a job can leave the model to the queue."""
    schema["required"].remove("model")


def kind_of(name: str) -> KindAnswer:
    """The description of a kind."""
    kind, request = registry.find(name), request_class(name).model_json_schema()
    if name in BODIES:
        without_model(request)
    artifact: dict[str, Any] = kind.artifact.model_json_schema(mode="serialization")
    return KindAnswer(
        name=name,
        about=inspect.cleandoc(kind.request.__doc__ or ""),
        version=kind.version,
        request=request,
        artifact=artifact,
    )
