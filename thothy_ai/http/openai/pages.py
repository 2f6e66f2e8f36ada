"""Lists that are read in pages, and the ids of their items."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, TypeVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request

from thothy_ai.http.errors import ApiError, unsupported
from thothy_ai.jobs.problems import first_problem

P = TypeVar("P", bound=BaseModel)


class Page(BaseModel):
    """Query parameters of a list."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    after: str | None = None
    limit: Annotated[int, Field(ge=1, le=100)] = 20

    def after_id(self, prefix: str) -> UUID | None:
        """The id that the page begins after; `ApiError` if it is invalid."""
        if self.after is None:
            return None
        try:
            return parse_id(self.after, prefix, "object")
        except ApiError as error:
            raise ApiError(400, str(error), code="invalid_value", param="after") from None


def page_of(kind: type[P], request: Request) -> P:
    """The query's parameters; `ApiError` names a wrong one."""
    if unknown := sorted(request.query_params.keys() - kind.model_fields.keys()):
        raise unsupported(unknown[0])
    given: dict[str, Any] = {}
    for name in request.query_params:
        given[name] = values = request.query_params.getlist(name)
        if "list[" not in str(kind.model_fields[name].annotation):
            if len(values) > 1:
                raise ApiError(400, f"{name} is there {len(values)} times", code="invalid_value", param=name)
            given[name] = values[0]
        if any("\0" in value for value in values):
            raise ApiError(400, f"{name}: contains a NUL character", code="invalid_value", param=name)
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        field, message = first_problem(error)
        raise ApiError(400, f"{field}: {message}", code="invalid_value", param=field or None) from None


def whole(objects: Sequence[dict[str, Any]], limit: int) -> dict[str, Any]:
    """A list of at most `limit` of these objects; an extra one tells that there is another page."""
    shown = objects[:limit]
    return {
        "object": "list",
        "data": shown,
        "first_id": shown[0]["id"] if shown else None,
        "last_id": shown[-1]["id"] if shown else None,
        "has_more": len(objects) > limit,
    }


def spell_id(prefix: str, value: UUID) -> str:
    """The form of an id that clients see."""
    return f"{prefix}{value.hex}"


def parse_id(given: str, prefix: str, what: str) -> UUID:
    """The id that a client names; `ApiError` 404 for an impossible one."""
    digits = given.removeprefix(prefix)
    if given.startswith(prefix) and len(digits) == 32 and digits.isascii() and digits.isalnum():
        try:
            return UUID(digits)
        except ValueError:
            pass
    raise ApiError(404, f"there is no {what} {given!r}", code=f"{what}_not_found")
