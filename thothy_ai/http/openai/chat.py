"""`POST /v1/chat/completions`: messages to one or more answers."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from thothy_ai.engine.api import Choice as GeneratedChoice
from thothy_ai.engine.api import Delta, EngineInfo, FinishReason, GenerationRequest, GenerationResult, Message, ToolCall
from thothy_ai.engine.api.sampling import MAX_LOGPROBS
from thothy_ai.http.errors import ApiError, Fields, unsupported
from thothy_ai.http.openai.events import DONE, encoded, event
from thothy_ai.http.openai.fields import BEGINNING, Body, GenerationBody, Option, Text, parsed
from thothy_ai.http.openai.objects import FINISHED, token_logprobs, usage_of
from thothy_ai.http.openai.response_format import ResponseFormat
from thothy_ai.http.openai.tools import Choice, FunctionTools, NamedTool, ToolName, new_call_id, tools_of

MARK = "\ue000"  # stands for a text
MAX_MESSAGES = 10_000
MAX_CALLS = 1_000  # per message


class TextPart(Body):
    """A part of a message that is text."""

    type: Literal["text"]
    text: str


class ImagePart(Body):
    """A part of a message that the engine does not see."""

    type: Literal["image_url", "input_audio", "file"]
    image_url: Any = None
    input_audio: Any = None
    file: Any = None


class RefusalPart(Body):
    """A part of an assistant's message that says why it does not answer."""

    type: Literal["refusal"]
    refusal: str


Part = Annotated[TextPart | RefusalPart | ImagePart, Field(discriminator="type")]
Parts = Annotated[list[Part], Field(max_length=1_000, fail_fast=True)]


class CalledFunction(Body):
    """A function and its arguments, which are JSON text."""

    name: ToolName
    arguments: str


class CalledTool(Body):
    """A call in an assistant's message."""

    id: Text
    type: Literal["function"]
    function: CalledFunction


class ChatMessage(Body):
    """A message. An assistant's may have calls instead of content."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Parts | None = None
    name: str | None = None
    tool_calls: Annotated[list[CalledTool], Field(max_length=MAX_CALLS)] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    annotations: Annotated[list[Any], Field(max_length=0)] | None = None  # the API's answers have the empty list

    def text(self, at: int) -> str:
        """The whole text of a message; `ApiError` for one without text, or with parts other than text."""
        if isinstance(self.content, str):
            return self.content or self.refusal or ""
        where = f"messages.{at}.content"
        if not self.content:
            if self.tool_calls or self.refusal:
                return self.refusal or ""
            raise ApiError(400, f"{where} is missing", code="missing_required_parameter", param=where)
        texts = []
        for part in self.content:
            if isinstance(part, ImagePart):
                raise unsupported(where, f": the engine reads text, and no {part.type}")
            if isinstance(part, RefusalPart) and self.role != "assistant":
                says = f"{where}: a refusal is not for the role {self.role!r}"
                raise ApiError(400, says, code="invalid_value", param=where)
            texts.append(part.text if isinstance(part, TextPart) else part.refusal)
        return "\n".join(texts)


def messages_of(messages: Sequence[ChatMessage]) -> tuple[Message, ...]:
    """The engine's messages; `ApiError` for a message without a field that its role needs, or that answers a call never
    made.
    """
    asked: set[str] = set()
    found = []
    for at, message in enumerate(messages):
        calls = message.tool_calls or []
        strays = {
            "tool_calls": calls and message.role != "assistant",
            "tool_call_id": message.tool_call_id is not None and message.role != "tool",
            "refusal": message.refusal and message.role != "assistant",
            "reasoning_content": message.reasoning_content and message.role != "assistant",
        }
        for field, strays_here in strays.items():
            if strays_here:
                place = f"messages.{at}.{field}"
                says = f"{place} is not for the role {message.role!r}"
                raise ApiError(400, says, code="invalid_value", param=place)
        if message.role == "tool" and message.tool_call_id not in asked:
            place = f"messages.{at}.tool_call_id"
            if message.tool_call_id is None:
                raise ApiError(400, f"{place} is missing", code="missing_required_parameter", param=place)
            says = f"{place}: no message before it has a call with the id {message.tool_call_id!r:.80}"
            raise ApiError(400, says, code="invalid_value", param=place)
        asked.update(call.id for call in calls)
        found.append(
            Message(
                "system" if message.role == "developer" else message.role,
                message.text(at),
                tuple(ToolCall(call.function.name, call.function.arguments or "{}", call.id) for call in calls),
                message.tool_call_id or "",
                message.name or "",
                message.reasoning_content or "",
            )
        )
    return tuple(found)


class ChatBody(GenerationBody):
    """A request for a chat completion."""

    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)]
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    response_format: ResponseFormat | None = None
    chat_template_kwargs: dict[str, Option] | None = None
    tools: FunctionTools | None = None
    tool_choice: Choice | NamedTool | None = None
    parallel_tool_calls: bool | None = None


class ChatCompletion:
    """Implements `Wanted` for a chat completion."""

    def __init__(self, body: object, tenant: str) -> None:
        """ApiError for a body that is none."""
        self._body = body_ = parsed(ChatBody, body)
        self._tenant = tenant
        if body_.top_logprobs is not None and not body_.logprobs:
            raise ApiError(400, "top_logprobs needs logprobs", code="invalid_value", param="top_logprobs")
        self._messages = messages_of(body_.messages)
        choice = body_.tool_choice
        self._only = choice.function.name if isinstance(choice, NamedTool) else None
        self._tools = tools_of(
            [tool.function.model_dump(exclude_none=True) for tool in body_.tools or ()],
            None if isinstance(choice, NamedTool) else choice,
            self._only,
            parallel=body_.parallel_tool_calls is not False,
            place="tools.{}.function.name",
        )
        self._schema = body_.response_format.schema_text if body_.response_format else None
        self._top = body_.top_logprobs or 0
        self.model = body_.model
        self.streams = bool(body_.stream)
        self.wants_tokens = bool(body_.logprobs)
        self.sequences, self.prompts = body_.sequences, 1
        self.fields, self.done = Fields("messages", body_.limit[0] or "max_completion_tokens"), DONE
        self.beginning = self._messages[0].content[:BEGINNING]
        self._head: dict[str, Any] = {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "object": "chat.completion.chunk" if self.streams else "chat.completion",
            "created": int(time.time()),
            "model": self.model,
        }
        self._copies = body_.copies
        self._before: list[bytes] = []  # of a chunk's text, by choice
        self._after = b""
        self._call_ids: dict[tuple[int, int], str] = {}  # by choice and number

    def requests(self, info: EngineInfo, vocabulary: Sequence[bytes]) -> Sequence[GenerationRequest]:
        body, self._vocabulary = self._body, vocabulary
        self._head["system_fingerprint"] = f"fp_{info.session_id}"
        request = body.generation(
            self._head["id"],
            context=info.max_context,
            tenant=self._tenant,
            logprobs=self._top if body.logprobs else None,
            limit=body.limit[1],
            messages=self._messages,
            schema=self._schema,
            profile="http/chat",
            template_options=body.chat_template_kwargs or {},
            divided=True,
            tools=self._tools,
        )
        return (request,)

    def whole(self, results: Sequence[GenerationResult]) -> object:
        (result,) = results
        choices = []
        for index, choice in enumerate(self._copied(result.choices)):
            said = choice.text if choice.text or not choice.calls else None
            message: dict[str, Any] = {"role": "assistant", "content": said, "refusal": None}
            if choice.thoughts:
                message["reasoning_content"] = choice.thoughts
            if choice.calls:
                calls = enumerate(choice.calls)
                message["tool_calls"] = [self._call(index, at, call.name, call.arguments) for at, call in calls]
            logprobs, reason = self._logprobs(choice), self._reason(choice)
            choices.append({"index": index, "message": message, "logprobs": logprobs, "finish_reason": reason})
        return {**self._head, "choices": choices, "usage": usage_of(results)}

    def opening(self) -> bytes:
        for index in range(self._body.n or 1):
            before, self._after = self._chunk(index, {"content": MARK}).rsplit(encoded(MARK), 1)
            self._before.append(before)
        first = {"role": "assistant", "content": "", "refusal": None}
        return b"".join(self._chunk(index, first) for index in range(self._body.n or 1))

    def written(self, prompt: int, deltas: Sequence[Delta]) -> bytes:  # noqa: ARG002 - there is only one
        texts: dict[int, str] = {}
        for delta in deltas:
            if delta.thoughts or delta.calls or self._body.logprobs:
                return b"".join(
                    self._chunk(choice, self._gained(choice, each), self._logprobs(each))
                    for each in deltas
                    for choice in range(each.choice, each.choice + self._copies)
                )
            texts[delta.choice] = texts.get(delta.choice, "") + delta.text
        parts: list[bytes] = []  # what is around each text was made once
        for first, text in texts.items():
            for choice in range(first, first + self._copies) if text else ():
                parts += (self._before[choice], encoded(text), self._after)
        return b"".join(parts)

    def closing(self, results: Sequence[GenerationResult]) -> bytes:
        (result,) = results
        ends = [
            self._chunk(index, {}, finish_reason=self._reason(choice))
            for index, choice in enumerate(self._copied(result.choices))
        ]
        if self._body.wants_usage:
            ends.append(event({**self._head, "choices": [], "usage": usage_of(results)}))
        return b"".join(ends)

    def failed(self, error: ApiError) -> bytes:
        return event(error.body)

    def _gained(self, index: int, delta: Delta) -> dict[str, Any]:
        """What a choice of this number gained, as a chunk has it."""
        gained: dict[str, Any] = {"reasoning_content": delta.thoughts} if delta.thoughts else {}
        if delta.calls:
            gained["tool_calls"] = [
                {"index": call.index, **self._call(index, call.index, call.name, call.arguments)}
                if call.name
                else {"index": call.index, "function": {"arguments": call.arguments}}
                for call in delta.calls
            ]
        return gained | ({"content": delta.text} if delta.text or not gained else {})

    def _call(self, index: int, number: int, name: str, arguments: str = "") -> dict[str, Any]:
        id_ = self._call_ids.setdefault((index, number), new_call_id())
        return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}

    def _reason(self, choice: GeneratedChoice) -> str:
        """As OpenAI has it: a call that was asked for by name ends with "stop"."""
        calls = choice.calls and choice.finish_reason is FinishReason.STOP and self._only is None
        return "tool_calls" if calls else FINISHED[choice.finish_reason]

    def _copied(self, choices: tuple[GeneratedChoice, ...]) -> Sequence[GeneratedChoice]:
        return choices * self._copies

    def _logprobs(self, text: GeneratedChoice | Delta) -> dict[str, Any] | None:
        if not self._body.logprobs:
            return None
        content = token_logprobs(text.token_ids, text.logprobs, self._top, self._vocabulary)
        return {"content": content, "refusal": None}

    def _chunk(
        self,
        index: int,
        delta: dict[str, Any],
        logprobs: dict[str, Any] | None = None,
        finish_reason: str | None = None,
    ) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
        usage = {"usage": None} if self._body.wants_usage else {}
        return event({**self._head, "choices": [choice], **usage})
