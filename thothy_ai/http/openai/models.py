"""`GET /v1/models` and `GET /v1/models/{id}`: what engines serve at this moment, adapters included, and the aliases."""

from __future__ import annotations

from typing import Any

from thothy_ai.http.engines import Fleet
from thothy_ai.http.errors import ApiError

OWNER = "thothy"
CREATED = 0  # a model has no date here


def listed(fleet: Fleet) -> dict[str, Any]:
    return {"object": "list", "data": [_model(fleet, name) for name in fleet.models]}


async def found(fleet: Fleet, name: str) -> dict[str, Any]:
    """The entry of one model; `ApiError` if no engine serves it."""
    await fleet.look_for(name)
    if name not in fleet.models:
        raise ApiError(404, f"the model {name!r} does not exist", code="model_not_found", param="model")
    return _model(fleet, name)


def _model(fleet: Fleet, name: str) -> dict[str, Any]:
    parent = fleet.parent(name)
    model = {"id": name, "object": "model", "created": CREATED, "owned_by": OWNER}
    return model if parent is None else {**model, "parent": parent}
