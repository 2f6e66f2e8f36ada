"""`POST /v1/responses`, stateless: the request has the whole conversation."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from thothy_ai.engine.api import (
    MAX_TOOLS,
    CallDelta,
    Delta,
    EngineInfo,
    FinishReason,
    GenerationRequest,
    GenerationResult,
)
from thothy_ai.engine.api.sampling import MAX_LOGPROBS
from thothy_ai.http.errors import ApiError, Fields
from thothy_ai.http.openai.fields import BEGINNING, Body, Count, GenerationBody, Option, StreamOptions, parsed
from thothy_ai.http.openai.objects import token_logprobs
from thothy_ai.http.openai.response_format import ANY_OBJECT
from thothy_ai.http.openai.response_input import Input, messages_of
from thothy_ai.http.openai.response_items import Events, OutputItems
from thothy_ai.http.openai.tools import Choice, Function, tools_of

LOGPROBS = "message.output_text.logprobs"
FIELDS = Fields("input", "max_output_tokens", "text.format.schema", ".")


class Typed(Body):
    """A tool. There are none but functions."""

    type: Literal["function"]


class ResponseTool(Function, Typed):
    """A function that the model may call."""


class ChosenTool(Typed):
    """The function that the model must call."""

    name: str


class TextFormat(Body):
    """What the answer must look like."""

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    description: str | None = None
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool | None = None

    @property
    def schema_text(self) -> str | None:
        """The schema that binds the answer, as JSON; None for a plain one. ApiError where it should be and is not."""
        if self.type == "json_schema" and self.schema_ is None:
            says = f"{FIELDS.schema} is missing"
            raise ApiError(400, says, code="missing_required_parameter", param=FIELDS.schema)
        schemas = {"text": None, "json_object": ANY_OBJECT, "json_schema": json.dumps(self.schema_, ensure_ascii=False)}
        return schemas[self.type]


class TextOptions(Body):
    """How the answer is written."""

    format: TextFormat | None = None


class ReasoningOptions(Body):
    """How the model thinks, which is up to its template here: no option is supported."""


class ResponseStreamOptions(StreamOptions):
    """What a stream has besides its events, which always end with the usage."""

    include_usage: None = None


class ResponseBody(GenerationBody):
    """A request for a response."""

    input: Input
    instructions: str | None = None
    max_output_tokens: Count | None = None
    text: TextOptions | None = None
    tools: Annotated[list[ResponseTool], Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: Choice | ChosenTool | None = None
    parallel_tool_calls: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    # Thoughts are sent in plain text, so clients need no encrypted form to send them back.
    include: list[Literal["message.output_text.logprobs", "reasoning.encrypted_content"]] | None = None
    chat_template_kwargs: dict[str, Option] | None = None
    reasoning: ReasoningOptions | None = None
    stream_options: ResponseStreamOptions | None = None
    truncation: Literal["disabled"] | None = None
    background: Literal[False] | None = None
    # Fields of the other routes.
    n: None = None
    best_of: None = None
    max_tokens: None = None
    max_completion_tokens: None = None


class ModelResponse:
    """Implements `Wanted` for a response."""

    def __init__(self, body: object, tenant: str) -> None:
        """ApiError for a body that is none."""
        self._body = body_ = parsed(ResponseBody, body)
        self._tenant = tenant
        self._messages = messages_of(body_.input, body_.instructions)
        choice = body_.tool_choice
        self._tools = tools_of(
            [tool.model_dump(exclude_none=True, exclude={"type"}) for tool in body_.tools or ()],
            None if isinstance(choice, ChosenTool) else choice,
            choice.name if isinstance(choice, ChosenTool) else None,
            parallel=body_.parallel_tool_calls is not False,
            place="tools.{}.name",
        )
        self._format = (body_.text and body_.text.format) or TextFormat(type="text")
        self._schema = self._format.schema_text
        self._logprobs = body_.top_logprobs if body_.top_logprobs is not None else 0
        self.model = body_.model
        self.streams = bool(body_.stream)
        self.wants_tokens = body_.top_logprobs is not None or LOGPROBS in (body_.include or ())
        self.sequences = self.prompts = 1
        self.fields, self.done = FIELDS, b""
        self.beginning = self._messages[0].content[:BEGINNING]
        self._events = Events()
        self._output = OutputItems(self._events)
        self._head = self._described()

    def requests(self, info: EngineInfo, vocabulary: Sequence[bytes]) -> Sequence[GenerationRequest]:
        body, self._vocabulary = self._body, vocabulary
        request = body.generation(
            self._head["id"],
            context=info.max_context,
            tenant=self._tenant,
            logprobs=self._logprobs if self.wants_tokens else None,
            limit=body.max_output_tokens,
            messages=self._messages,
            schema=self._schema,
            profile="http/chat",
            template_options=body.chat_template_kwargs or {},
            divided=True,
            tools=self._tools,
        )
        return (request,)

    def whole(self, results: Sequence[GenerationResult]) -> object:
        [result] = results
        calls = tuple(CallDelta(at, call.name, call.arguments) for at, call in enumerate(result.calls))
        self._output.gain(result.thoughts, result.text, calls, self._listed(result))
        return self._ended(result)[0]

    def opening(self) -> bytes:
        created = self._events.make("response.created", response=self._head)
        return created + self._events.make("response.in_progress", response=self._head)

    def written(self, prompt: int, deltas: Sequence[Delta]) -> bytes:  # noqa: ARG002 - there is only one
        return b"".join(
            self._output.gain(delta.thoughts, delta.text, delta.calls, self._listed(delta)) for delta in deltas
        )

    def closing(self, results: Sequence[GenerationResult]) -> bytes:
        [result] = results
        response, events = self._ended(result)
        return events + self._events.make(f"response.{response['status']}", response=response)

    def failed(self, error: ApiError) -> bytes:
        return self._events.make("error", code=error.code, message=str(error), param=error.param)

    def _listed(self, gained: GenerationResult | Delta) -> list[dict[str, Any]]:
        """The log-probabilities of the text, if they are wanted."""
        if not self.wants_tokens or not gained.text:
            return []
        return token_logprobs(gained.token_ids, gained.logprobs, self._logprobs, self._vocabulary)

    def _ended(self, result: GenerationResult) -> tuple[dict[str, Any], bytes]:
        """The finished response, and the events that end its last item."""
        status = "completed" if result.finish_reason is FinishReason.STOP else "incomplete"
        events, usage = self._output.close(status), result.usage
        response = self._head | {
            "status": status,
            "incomplete_details": None if status == "completed" else {"reason": "max_output_tokens"},
            "output": self._output.items,
            "usage": {
                "input_tokens": usage.prompt_tokens,
                "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
                "output_tokens": usage.output_tokens,
                "output_tokens_details": {"reasoning_tokens": usage.thought_tokens},
                "total_tokens": usage.prompt_tokens + usage.output_tokens,
            },
        }
        return response, events

    def _described(self) -> dict[str, Any]:
        """The response at its beginning, with its parameters."""
        body = self._body
        tools = [
            {"description": None, "parameters": None, "strict": None, **tool.model_dump()} for tool in body.tools or ()
        ]
        chosen = body.tool_choice.model_dump() if isinstance(body.tool_choice, ChosenTool) else body.tool_choice
        return {
            "id": f"resp_{uuid.uuid4().hex}",
            "object": "response",
            "created_at": int(time.time()),
            "status": "in_progress",
            "background": False,
            "error": None,
            "incomplete_details": None,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "metadata": body.metadata or {},
            "model": self.model,
            "output": [],
            "parallel_tool_calls": body.parallel_tool_calls is not False,
            "previous_response_id": None,
            "reasoning": {"effort": None, "summary": None},
            "store": False,
            "temperature": 1.0 if body.temperature is None else body.temperature,
            "text": {"format": self._format.model_dump(by_alias=True, exclude_none=True)},
            "tool_choice": chosen or "auto",
            "tools": tools,
            "top_logprobs": self._logprobs,
            "top_p": 1.0 if body.top_p is None else body.top_p,
            "truncation": "disabled",
            "usage": None,
            "user": body.user,
        }
