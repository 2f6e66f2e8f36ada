"""Tools for models whose chat templates don't support them: a system message describes the tools, and calls and their
results are written as texts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from thothy_ai.engine.api import Message
from thothy_ai.engine.text.answer_form import HERMES

_ASKED = """You can call these tools, one per line:
{tools}

To call one, write its name and its arguments, an object that matches its parameters, as JSON in these tags:
{example}"""


def with_texts(messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> Sequence[Message]:
    """The messages, with tools, calls and their results written as texts."""
    written: list[Message] = []
    if tools:
        lines = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
        example = HERMES.written([("NAME", "ARGUMENTS")])
        written.append(Message("system", _ASKED.format(tools=lines, example=example)))
    for message in messages:
        if message.calls:
            said = [message.content] if message.content else []
            calls = HERMES.written([(call.name, call.arguments) for call in message.calls])
            written.append(replace(message, content="\n".join([*said, calls]), calls=()))
        elif message.role == "tool":
            content = f"<tool_response>\n{message.content}\n</tool_response>"
            if written and written[-1].role == "tool":
                content = f"{written.pop().content}\n{content}"
            written.append(Message("tool", content))
        elif message.role == "system" and written and written[0].role == "system" and len(written) == 1:
            written[0] = replace(message, content=f"{message.content}\n\n{written[0].content}")
        else:
            written.append(message)
    return [replace(each, role="user") if each.role == "tool" else each for each in written]
