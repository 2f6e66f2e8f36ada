"""Errors as OpenAI's API answers them: `{"error": {"message", "type", "param", "code"}}`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from thothy_ai.engine.api.errors import (
    BudgetTooSmallError,
    EngineError,
    EngineLostError,
    EngineNotAcceptingError,
    EngineStoppedError,
    GrammarError,
    InvalidRequestError,
    PromptTooLongError,
)

RETRY_SECONDS = 2  # after which an engine that is away may be back
# How the engine's refusals begin.
_PARAMETER = re.compile(r"([a-z_]+(?:\.[a-z0-9_]+)*)(=|: | has | of | is not possible)")
_PARAMETERS = re.compile(r"^tools\.([0-9]+)\.function\.parameters")


class Fields(NamedTuple):
    """The names of a route's fields, for errors. `parameters` is where a tool has its schema."""

    prompt: str
    limit: str
    schema: str = "response_format"
    parameters: str = "tools.{}.function.parameters"


class ApiError(Exception):
    """A refusal or a failure of a request: its HTTP status, a code for programs, and the field that is to blame."""

    def __init__(
        self, status: int, message: str, *, code: str, param: str | None = None, retry_after: int | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.param, self.retry_after = status, code, param, retry_after

    @property
    def headers(self) -> dict[str, str]:
        """Those that an answer has for its status."""
        retry = {} if self.retry_after is None else {"retry-after": str(self.retry_after)}
        return retry | ({"www-authenticate": "Bearer"} if self.status == 401 else {})

    @property
    def body(self) -> dict[str, Mapping[str, str | None]]:
        """The envelope, whose `type` follows from the status."""
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        if self.status == 429:
            kind = "rate_limit_error"
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}


def unsupported(field: str, advice: str = "") -> ApiError:
    """A field of OpenAI's API that has no meaning here, and would change the output."""
    return ApiError(400, f"{field} is not supported{advice}", code="unsupported_parameter", param=field)


COMPLETION = Fields("prompt", "max_tokens")


def of_engine(error: EngineError, fields: Fields = COMPLETION) -> ApiError:
    """What a client is told of the engine's refusal or failure."""
    says, of_tool = _PARAMETERS.subn(lambda found: fields.parameters.format(found[1]), str(error), 1)
    match error:
        case PromptTooLongError():
            return ApiError(400, says, code="context_length_exceeded", param=fields.prompt)
        case GrammarError():
            place = says.partition(":")[0] if of_tool else fields.schema
            return ApiError(400, says, code="invalid_json_schema", param=place)
        case BudgetTooSmallError():
            return ApiError(400, says, code="invalid_value", param=fields.limit)
        case InvalidRequestError():
            named = _PARAMETER.match(says)
            options = "chat_template_kwargs" if "template option" in says else None
            return ApiError(400, says, code="invalid_value", param=named[1] if named else options)
        case EngineNotAcceptingError() | EngineStoppedError() | EngineLostError():
            return ApiError(503, says, code="engine_unavailable", retry_after=RETRY_SECONDS)
        case _:
            return ApiError(500, says, code=error.code)
