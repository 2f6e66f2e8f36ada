"""The OpenAPI document of `/api`, made from its operations and the kinds of jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from thothy_ai.http.access import caller_of
from thothy_ai.http.api.kinds import BODIES, request_class, without_model
from thothy_ai.http.api.models import Error, NewJob
from thothy_ai.http.api.operations import KEY, Operation
from thothy_ai.jobs import registry

PATH = "/api/openapi.json"
VERSION = "1"
Schemas = Mapping[Any, dict[str, Any]]  # references, by model


def document_route(operations: Sequence[Operation]) -> Route:
    """The route that serves the document."""

    async def serve(request: Request) -> Response:
        caller_of(request.scope, "read")
        return JSONResponse(document(operations))

    return Route(PATH, serve)


def document(operations: Sequence[Operation]) -> dict[str, Any]:
    """The OpenAPI 3.1 document of these operations."""
    kinds = {name: request_class(name) for name in registry.names()}
    models: list[tuple[type[BaseModel], JsonSchemaMode]] = [(Error, "serialization")]
    for operation in operations:
        models += [(operation.body, "validation")] if operation.body else []
        models += [(operation.answer, "serialization")] if operation.answer else []
    models += [(request, "validation") for request in kinds.values()]
    found, definitions = models_json_schema(list(dict.fromkeys(models)), ref_template="#/components/schemas/{model}")
    references = {model: schema for (model, _), schema in found.items()}
    schemas = definitions.get("$defs", {})
    for body in BODIES.values():
        without_model(schemas[references[body]["$ref"].rpartition("/")[2]])
    _bind_kinds(schemas, {name: references[request] for name, request in kinds.items()})
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation, references)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Thothy AI: jobs over HTTP", "version": VERSION},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}, {}],
    }


def _bind_kinds(schemas: dict[str, Any], requests: dict[str, dict[str, Any]]) -> None:
    """Tie the request of each job to its kind."""
    cases = [{"properties": {"kind": {"const": name}, "request": reference}} for name, reference in requests.items()]
    for name, schema in schemas.items():
        if name.startswith(NewJob.__name__):
            schema["properties"]["kind"] = {"type": "string", "enum": list(requests)}
            schema["oneOf"] = cases


def _described(operation: Operation, references: Schemas) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.about,
        "description": f"Needs a key with the scope `{operation.right}`, where there are keys.",
        "parameters": list(_parameters(operation)),
    }
    if operation.body is not None:
        content = {"application/json": {"schema": references[operation.body]}}
        described["requestBody"] = {"required": True, "content": content}
    schema = references[operation.answer] if operation.answer else {"type": "string"}
    envelope = {"application/json": {"schema": references[Error]}}
    error = {"description": "It is refused, or has failed.", "content": envelope}
    described["responses"] = {
        "200": {"description": "Done.", "content": {media: {"schema": schema} for media in operation.media}},
        "4XX": error,
        "5XX": error,
    }
    return described


def _parameters(operation: Operation) -> Iterator[dict[str, Any]]:
    if "{id}" in operation.path:
        yield {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
    if operation.keyed:
        key = {"type": "string", "minLength": 1, "maxLength": 500, "pattern": "^[ -~]+$"}
        yield {"name": KEY, "in": "header", "required": False, "schema": key}
    if operation.query is not None:
        schema = operation.query.model_json_schema()
        for name, field in schema.get("properties", {}).items():
            yield {"name": name, "in": "query", "required": False, "schema": _inlined(field, schema.get("$defs", {}))}


def _inlined(schema: Any, definitions: dict[str, Any]) -> Any:
    """The schema without references, and without NULL, which a query cannot express."""
    match schema:
        case {"$ref": str(reference)}:
            return definitions[reference.rpartition("/")[2]]
        case {"anyOf": list(several), **rest}:
            plain = [each for each in several if each != {"type": "null"}]
            rest.pop("default", None)
            return {**_inlined(plain[0], definitions), **rest} if len(plain) == 1 else {"anyOf": plain, **rest}
        case {"items": items, **rest}:
            return {**rest, "items": _inlined(items, definitions)}
    return schema
