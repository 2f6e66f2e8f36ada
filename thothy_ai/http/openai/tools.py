"""Tools and tool calls, in the form of chat completions and of responses."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from thothy_ai.engine.api import MAX_TOOLS, ToolChoice, Tools
from thothy_ai.engine.api.errors import InvalidRequestError
from thothy_ai.http.errors import COMPLETION, ApiError, of_engine
from thothy_ai.http.openai.fields import Body

ToolName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
Choice = Literal["auto", "none", "required"]


class Function(Body):
    """A function that a model may call. Its schema binds the arguments, strict or not."""

    name: ToolName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class FunctionTool(Body):
    """A tool of a chat completion."""

    type: Literal["function"]
    function: Function


class NamedFunction(Body):
    """The name of a function."""

    name: str


class NamedTool(Body):
    """The tool that a chat completion must call."""

    type: Literal["function"]
    function: NamedFunction


FunctionTools = Annotated[list[FunctionTool], Field(max_length=MAX_TOOLS)]


def tools_of(
    functions: Sequence[dict[str, Any]], choice: Choice | None, only: str | None, *, parallel: bool, place: str
) -> Tools | None:
    """The engine's tools for these functions, as JSON; `only` names the one that must be called. Raises `ApiError` for
    a duplicate or invalid name; `place` is the path of the name of a tool with a given number. Without functions,
    "required" is ignored, since some clients always send it.
    """
    names = [function["name"] for function in functions]
    for at, name in enumerate(names):
        if (first := names.index(name)) != at:
            says = f"{place.format(at)}: {name!r} is the name of {place.format(first).removesuffix('.name')}, too"
            raise ApiError(400, says, code="invalid_value", param=place.format(at))
    if only is not None and only not in names:
        raise ApiError(400, f"tool_choice: there is no tool {only!r}", code="invalid_value", param="tool_choice")
    if not functions:
        return None
    definitions = [json.dumps({"type": "function", "function": each}, ensure_ascii=False) for each in functions]
    try:
        return Tools(tuple(definitions), ToolChoice(choice or "auto"), only or "", parallel)
    except InvalidRequestError as error:
        raise of_engine(error, COMPLETION) from error


def new_call_id() -> str:
    return f"call_{secrets.token_hex(12)}"
