"""Translates a job's call to OpenAI's API into a request to the engine, as the door does for its clients."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from thothy_ai.engine.api import EngineInfo, GenerationRequest, GenerationResult
from thothy_ai.engine.api.errors import EngineError, InvalidRequestError
from thothy_ai.http.errors import ApiError, Fields, of_engine, unsupported
from thothy_ai.http.openai.chat import ChatCompletion
from thothy_ai.http.openai.completions import TextCompletion
from thothy_ai.http.openai.responses import ModelResponse
from thothy_ai.jobs.api.plan import ApiBody


class ApiForm(Protocol):
    """The part of a route's request that a job needs; `Wanted` has the rest."""

    streams: bool
    wants_tokens: bool
    fields: Fields

    def requests(self, info: EngineInfo, vocabulary: Sequence[bytes]) -> Sequence[GenerationRequest]: ...

    def whole(self, results: Sequence[GenerationResult]) -> Any: ...


Vocabulary = Callable[[], Awaitable[Sequence[bytes]]]
ROUTES: Mapping[str, Callable[[object, str], ApiForm]] = {
    "/v1/chat/completions": ChatCompletion,
    "/v1/completions": TextCompletion,
    "/v1/responses": ModelResponse,
}


class TranslatedBody:
    """Implements `Translated` for the routes here."""

    def __init__(self, form: ApiForm, request: GenerationRequest) -> None:
        self._form, self.request = form, request

    def answer(self, result: GenerationResult) -> Mapping[str, Any]:
        answer: dict[str, Any] = self._form.whole([result])
        return answer

    def refusal(self, error: EngineError) -> Exception:
        return of_engine(error, self._form.fields)


async def translated(
    call: ApiBody, tenant: str, info: EngineInfo, vocabulary: Vocabulary, adapter: str = ""
) -> TranslatedBody:
    """The body as one request to this engine; its vocabulary is fetched where log-probabilities are wanted. Raises
    `ApiError` for a body that the API refuses or that asks for a stream, and whatever `vocabulary` raises.
    """
    body = {"model": adapter or info.model_name or info.model, **call.body}
    form = ROUTES[call.route](body, tenant)
    if form.streams:
        raise unsupported("stream", ": the answer of a job comes as a whole")
    if body.get("priority"):
        raise unsupported("priority", ": a job has its own")
    spellings = await vocabulary() if form.wants_tokens else ()
    try:
        requests = form.requests(info, spellings)
    except InvalidRequestError as error:
        raise of_engine(error, form.fields) from error
    if len(requests) != 1:
        raise ApiError(400, "prompt: a call has one prompt", code="invalid_value", param="prompt")
    return TranslatedBody(form, requests[0])
