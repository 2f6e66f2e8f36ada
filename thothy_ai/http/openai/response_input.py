"""`input` of `POST /v1/responses`: items. Consecutive items of the assistant become one chat message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from thothy_ai.engine.api import Message, ToolCall
from thothy_ai.http.errors import ApiError, unsupported
from thothy_ai.http.openai.fields import Body, Text
from thothy_ai.http.openai.tools import ToolName

MAX_ITEMS = 10_000
Status = Literal["in_progress", "completed", "incomplete"]


class InputText(Body):
    """A part that is text; `output_text` is what the API's own answers have."""

    type: Literal["input_text", "output_text", "text", "reasoning_text", "summary_text"]
    text: str
    annotations: Annotated[list[Any], Field(max_length=0)] | None = None
    logprobs: list[Any] | None = None


class InputMedia(Body):
    """A part that the engine does not see."""

    type: Literal["input_image", "input_file", "input_audio"]
    image_url: Any = None
    detail: Any = None
    file_id: Any = None
    file_data: Any = None
    filename: Any = None
    input_audio: Any = None


InputPart = Annotated[InputText | InputMedia, Field(discriminator="type")]
InputParts = Annotated[list[InputPart], Field(max_length=1_000, fail_fast=True)]


class MessageItem(Body):
    """A message; its type may be left out."""

    type: Literal["message"] | None = None
    role: Literal["system", "developer", "user", "assistant"]
    content: str | InputParts
    id: str | None = None
    status: Status | None = None


class CallItem(Body):
    """A call of a function."""

    type: Literal["function_call"]
    call_id: Text
    name: ToolName
    arguments: str
    id: str | None = None
    status: Status | None = None


class CallOutputItem(Body):
    """What a function gave back."""

    type: Literal["function_call_output"]
    call_id: Text
    output: str | InputParts
    id: str | None = None
    status: Status | None = None


class ReasoningItem(Body):
    """What the model thought before it went on."""

    type: Literal["reasoning"]
    summary: InputParts
    content: InputParts | None = None
    id: str | None = None
    status: Status | None = None


def _kind(item: Any) -> Any:
    return item.get("type") or "message" if isinstance(item, dict) else getattr(item, "type", None) or "message"


Item = Annotated[
    Annotated[MessageItem, Tag("message")]
    | Annotated[CallItem, Tag("function_call")]
    | Annotated[CallOutputItem, Tag("function_call_output")]
    | Annotated[ReasoningItem, Tag("reasoning")],
    Discriminator(
        _kind,
        custom_error_type="item_type",
        custom_error_message="must be of the type message, function_call, function_call_output or reasoning",
    ),
]
Input = str | Annotated[list[Item], Field(min_length=1, max_length=MAX_ITEMS, fail_fast=True)]


@dataclass(slots=True)
class _Turn:
    """Collects consecutive items of the assistant."""

    thoughts: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)

    def take(self) -> list[Message]:
        """The message of the collected items, if there are any."""
        parts = ("\n".join(self.said), tuple(self.calls))
        found = [Message("assistant", *parts, thoughts="\n".join(self.thoughts))] if any(parts) else []
        self.thoughts, self.said, self.calls = [], [], []
        return found


def messages_of(given: str | Sequence[Body], instructions: str | None) -> tuple[Message, ...]:
    """The engine's messages; `ApiError` for the output of a call that was never made, or for parts other than text."""
    messages = [Message("system", instructions)] if instructions else []
    if isinstance(given, str):
        return (*messages, Message("user", given))
    turn, asked = _Turn(), set[str]()
    for at, item in enumerate(given):
        match item:
            case MessageItem(role="assistant", content=content):
                turn.said.append(_text(content, f"input.{at}.content"))
            case CallItem(call_id=call_id, name=name, arguments=arguments):
                turn.calls.append(ToolCall(name, arguments or "{}", call_id))
                asked.add(call_id)
            case ReasoningItem(content=content):
                turn.thoughts.append(_text(content or [], f"input.{at}.content"))
            case MessageItem(role=role, content=content):
                text = _text(content, f"input.{at}.content")
                messages += [*turn.take(), Message("system" if role == "developer" else role, text)]
            case CallOutputItem(call_id=call_id, output=output):
                place = f"input.{at}.call_id"
                if call_id not in asked:
                    says = f"{place}: no item before it has a call with the id {call_id!r:.80}"
                    raise ApiError(400, says, code="invalid_value", param=place)
                messages += [*turn.take(), Message("tool", _text(output, f"input.{at}.output"), call_id=call_id)]
    if not (messages := [*messages, *turn.take()]):
        raise ApiError(400, "input: there is no message", code="invalid_value", param="input")
    return tuple(messages)


def _text(content: str | Sequence[InputText | InputMedia], place: str) -> str:
    if isinstance(content, str):
        return content
    for part in content:
        if isinstance(part, InputMedia):
            raise unsupported(place, f": the engine reads text, and no {part.type}")
    return "\n".join(part.text for part in content if isinstance(part, InputText))
