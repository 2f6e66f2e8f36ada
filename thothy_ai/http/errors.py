"""Errors as OpenAI's API answers them: `{"error": {"message", "type", "param", "code"}}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from thothy_ai.engine.api.errors import (
    EngineError,
    EngineLostError,
    EngineNotAcceptingError,
    EngineStoppedError,
    GrammarError,
    InvalidRequestError,
    PromptTooLongError,
    UnknownAdapterError,
)

RETRY_SECONDS = 2  # after which a disconnected engine may be back


class Fields(NamedTuple):
    """A route's names for fields of the engine's requests, for error messages. `function` is the path from a tool to
    its function's fields.
    """

    prompt: str
    limit: str
    schema: str = "response_format"
    function: str = ".function."

    def of(self, field: str) -> str:
        """The route's name for a field in an engine's refusal."""
        match field.partition(".")[0]:
            case "messages" | "text" | "token_ids" as prompt:
                return field if prompt == self.prompt else self.prompt
            case "tools":
                return field.replace(".function.", self.function)
            case "max_tokens":
                return self.limit
            case "schema":
                return self.schema
            case "template_options":
                return "chat_template_kwargs"
        return field


class ApiError(Exception):
    """A refusal or a failure of a request: its HTTP status, a code for programs, and the field that is to blame."""

    def __init__(
        self, status: int, message: str, *, code: str, param: str | None = None, retry_after: int | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.param, self.retry_after = status, code, param, retry_after

    @property
    def headers(self) -> dict[str, str]:
        """The headers that this status requires."""
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


def of_engine(error: EngineError, fields: Fields) -> ApiError:
    """The error for a client, from the engine's refusal or failure."""
    says, param = str(error), fields.of(error.field)
    if error.field and says.startswith(error.field):
        says = param + says.removeprefix(error.field)
    match error:
        case PromptTooLongError():
            return ApiError(400, says, code="context_length_exceeded", param=fields.prompt)
        case GrammarError():
            return ApiError(400, says, code="invalid_json_schema", param=param or fields.schema)
        case UnknownAdapterError():  # it was unloaded since this door looked
            return ApiError(404, says, code="model_not_found", param="model")
        case InvalidRequestError():
            return ApiError(400, says, code="invalid_value", param=param or None)
        case EngineNotAcceptingError() | EngineStoppedError() | EngineLostError():
            return ApiError(503, says, code="engine_unavailable", retry_after=RETRY_SECONDS)
        case _:
            return ApiError(500, says, code=error.code)
