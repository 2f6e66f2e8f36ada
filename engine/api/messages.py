"""The parts of a chat: messages, tools and tool calls."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from thothy_ai.engine.api.errors import InvalidRequestError

MAX_TOOLS = 128
MAX_TOOL_TEXT = 256 * 1024  # characters of all definitions together


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool. `arguments` is the JSON text of an object; in an answer that was cut off, its beginning."""

    name: str
    arguments: str
    id: str = ""


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message; the engine renders messages with the model's own chat template.

    An assistant's message can have thoughts and calls. A tool's message answers the call `call_id`; `name` is the
    author's name.
    """

    role: str
    content: str
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    name: str = ""
    thoughts: str = ""


class ToolChoice(StrEnum):
    """Whether the model calls tools."""

    AUTO = "auto"  # the model decides
    NONE = "none"  # the prompt has no tools
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class Tools:
    """The tools that a model may call. A `definition` is JSON text in OpenAI's form, `{"type": "function", "function":
    {"name", "description", "parameters"}}`; the arguments of a call match `parameters`, a JSON schema of objects.

    `only` names the tool that must be called, if any. `parallel`: whether an answer may have several calls.
    """

    definitions: tuple[str, ...]
    choice: ToolChoice = ToolChoice.AUTO
    only: str = ""
    parallel: bool = True

    def __post_init__(self) -> None:
        """Raise InvalidRequestError for too many tools, or for definitions that are too long."""
        if not 1 <= len(self.definitions) <= MAX_TOOLS:
            raise InvalidRequestError(
                f"tools has {len(self.definitions):,} items; 1 to {MAX_TOOLS} are possible", "tools"
            )
        if (size := sum(map(len, self.definitions))) > MAX_TOOL_TEXT:
            raise InvalidRequestError(f"tools has {size:,} characters; {MAX_TOOL_TEXT:,} are possible", "tools")


@dataclass(frozen=True, slots=True)
class CallDelta:
    """What a call gained: its first delta has the name, and each can have a piece of the arguments. Counted from 0."""

    index: int
    name: str = ""
    arguments: str = ""


def joined(calls: Iterable[CallDelta]) -> tuple[CallDelta, ...]:
    """Merge the deltas of each call into one."""
    found: dict[int, CallDelta] = {}
    for call in calls:
        known = found.get(call.index, CallDelta(call.index))
        found[call.index] = CallDelta(call.index, known.name + call.name, known.arguments + call.arguments)
    return tuple(found.values())
