"""`POST /v1/chat/completions`: messages to one or more answers."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from thothy_ai.engine.api import Choice, Delta, EngineInfo, GenerationRequest, GenerationResult, Message
from thothy_ai.engine.api.sampling import MAX_LOGPROBS
from thothy_ai.http.errors import ApiError, unsupported
from thothy_ai.http.openai.events import encoded, event
from thothy_ai.http.openai.fields import BEGINNING, Body, Count, GenerationBody, parsed
from thothy_ai.http.openai.objects import FINISHED, token_logprobs, usage_of
from thothy_ai.http.openai.response_format import ResponseFormat

MARK = "\ue000"  # in the place of a text
MAX_MESSAGES = 10_000


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


Parts = Annotated[list[Annotated[TextPart | ImagePart, Field(discriminator="type")]], Field(max_length=1_000)]


class ChatMessage(Body):
    """A message. Its name is no part of the prompt of any model here."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | Parts | None = None
    refusal: None = None
    name: None = None

    def text(self, at: int) -> str:
        """All of its text; ApiError for a message without any, or with parts that are no text."""
        if isinstance(self.content, str):
            return self.content
        where = f"messages.{at}.content"
        if self.content is None:
            raise ApiError(400, f"{where} is missing", code="missing_required_parameter", param=where)
        for part in self.content:
            if isinstance(part, ImagePart):
                raise unsupported(where, f": the engine reads text, and no {part.type}")
        return "\n".join(part.text for part in self.content if isinstance(part, TextPart))


class ChatBody(GenerationBody):
    """A request for a chat completion."""

    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=MAX_MESSAGES)]
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    response_format: ResponseFormat | None = None
    chat_template_kwargs: dict[str, str | bool | int | float] | None = None
    # Without tools, neither says anything.
    tools: Annotated[list[Any], Field(max_length=0)] | None = None
    tool_choice: Literal["auto", "none", "required"] | None = None
    parallel_tool_calls: bool | None = None


class ChatCompletion:
    """Implements `Wanted` for a chat completion."""

    def __init__(self, body: object, tenant: str) -> None:
        """ApiError for a body that is none."""
        self._body = body_ = parsed(ChatBody, body)
        self._tenant = tenant
        if body_.top_logprobs is not None and not body_.logprobs:
            raise ApiError(400, "top_logprobs needs logprobs", code="invalid_value", param="top_logprobs")
        self._messages = tuple(
            Message("system" if message.role == "developer" else message.role, message.text(at))
            for at, message in enumerate(body_.messages)
        )
        self._schema = body_.response_format.schema_text if body_.response_format else None
        self._top = body_.top_logprobs or 0
        self.model = body_.model
        self.streams = bool(body_.stream)
        self.wants_tokens = bool(body_.logprobs)
        self.sequences = body_.sequences
        self.prompt_field, self.limit_field = "messages", "max_completion_tokens"
        self.beginning = self._messages[0].content[:BEGINNING]
        self._head: dict[str, Any] = {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "object": "chat.completion.chunk" if self.streams else "chat.completion",
            "created": int(time.time()),
            "model": self.model,
        }
        self._before: list[bytes] = []  # of a chunk's text, by choice
        self._after = b""

    def requests(self, info: EngineInfo, vocabulary: Sequence[bytes]) -> Sequence[GenerationRequest]:
        body, self._vocabulary = self._body, vocabulary
        self._head["system_fingerprint"] = f"fp_{info.session_id}"
        request = body.generation(
            self._head["id"],
            context=info.max_context,
            tenant=self._tenant,
            logprobs=self._top if body.logprobs else None,
            limit=body.max_completion_tokens or body.max_tokens,
            messages=self._messages,
            schema=self._schema,
            profile="http/chat",
            template_options=body.chat_template_kwargs or {},
        )
        return (request,)

    def whole(self, results: Sequence[GenerationResult]) -> object:
        (result,) = results
        choices = [
            {
                "index": index,
                "message": {"role": "assistant", "content": choice.text, "refusal": None},
                "logprobs": self._logprobs(choice),
                "finish_reason": FINISHED[choice.finish_reason],
            }
            for index, choice in enumerate(self._copied(result.choices))
        ]
        return {**self._head, "choices": choices, "usage": usage_of(results)}

    def opening(self) -> bytes:
        first = {"role": "assistant", "content": "", "refusal": None}
        return b"".join(self._chunk(index, first) for index in range(self._body.n or 1))

    def written(self, prompt: int, deltas: Sequence[Delta]) -> bytes:  # noqa: ARG002 - there is only one
        if self._body.logprobs:
            return b"".join(
                self._chunk(choice, {"content": delta.text}, self._logprobs(delta))
                for delta in deltas
                for choice in self._choices_of(delta)
            )
        texts: dict[int, str] = {}
        for delta in deltas:
            for choice in self._choices_of(delta):
                texts[choice] = texts.get(choice, "") + delta.text
        if not self._before:  # what is around each text, made once
            for index in range(self._body.n or 1):
                before, self._after = self._chunk(index, {"content": MARK}).rsplit(encoded(MARK), 1)
                self._before.append(before)
        return b"".join(
            self._before[choice] + json.dumps(text, ensure_ascii=False).encode() + self._after
            for choice, text in texts.items()
            if text
        )

    def closing(self, results: Sequence[GenerationResult]) -> bytes:
        (result,) = results
        ends = [
            self._chunk(index, {}, finish_reason=FINISHED[choice.finish_reason])
            for index, choice in enumerate(self._copied(result.choices))
        ]
        if self._body.wants_usage:
            ends.append(event({**self._head, "choices": [], "usage": usage_of(results)}))
        return b"".join(ends)

    def _copied(self, choices: tuple[Choice, ...]) -> Sequence[Choice]:
        return choices * self._body.copies

    def _choices_of(self, delta: Delta) -> Iterable[int]:
        return range(delta.choice, delta.choice + self._body.copies)

    def _logprobs(self, text: Choice | Delta) -> dict[str, Any] | None:
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
