"""`Canonical`: a request as the queue keeps it. Imports little: the processes that run kinds' code use it."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError

from thothy_ai.errors import InvalidJobError
from thothy_ai.jobs import Request, registry
from thothy_ai.jobs.api.requests import named_brief
from thothy_ai.jobs.problems import first_problem
from thothy_ai.jobs.registry import KindError

MAX_REQUEST_CHARS: Final = (
    16_000_000  # of its JSON: no model reads that much, and a claim sends dozens of requests at once
)


@dataclass(frozen=True, slots=True)
class Canonical:
    """A request as the queue keeps it: `request` is JSON that a worker can read back."""

    kind: str
    request: str
    source_key: str
    model: str | None = None  # the default model of jobs of its kind

    def digest(self, tenant: str) -> str:
        """Equal for the same request of the same tenant."""
        return sha256(f"{tenant}\0{self.kind}\0{self.request}".encode()).hexdigest()


def canonical(request: Request, *, by_name: bool = False) -> Canonical:
    """The request as the queue keeps it. Raises `InvalidJobError`, naming the field.

    `by_name`: its brief can be the name of a stored brief, to be replaced later.
    """
    try:
        kind = registry.kind_of(request)
    except KindError as error:
        raise InvalidJobError("request", str(error)) from None
    try:
        body = request.model_dump_json()
        kind.request.model_validate_json(body)  # the request may have been built unchecked
    except ValidationError as error:
        raise invalid(error, kind.request) from None
    except (PydanticSerializationError, UnicodeEncodeError) as error:
        raise InvalidJobError("request", f"cannot be written as JSON: {str(error).splitlines()[0]}") from None
    if not by_name and (brief := named_brief(request)):
        raise InvalidJobError("brief", f"{brief.name!r} is the name of a stored brief: here, give the brief itself")
    if len(body) > MAX_REQUEST_CHARS:
        raise InvalidJobError("request", f"has {len(body):,} characters as JSON; the limit is {MAX_REQUEST_CHARS:,}")
    return Canonical(kind.name, body, kind.source_key(request), kind.model_of(request))


def invalid(error: ValidationError, model: type[BaseModel]) -> InvalidJobError:
    """The first problem of a request, naming the field."""
    field, message = first_problem(error, model.model_fields)
    return InvalidJobError(field or "request", message)
