"""The form in which a chat template expects messages' contents: strings, or lists of parts.

Templates of multimodal models often iterate over parts (`content[0]['text']`); they silently omit a string. The form is
declared nowhere, so a probe is rendered in both forms for each role. So is a call: most templates expect its arguments
as an object, DeepSeek's as a text, and older ones of these omit calls in a message that has content.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from thothy_ai.engine.api import Message, ToolCall
from thothy_ai.engine.text.answer_form import KEY, NAME

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_PROBE = "271828182845904"  # digits survive whatever a template does to letters
_PRINTED = re.compile(rf"""['"]text['"]: ['"]{_PROBE}""")  # the list itself
_PROBED = {  # in this order: the user's form is known when others' are looked for
    "user": [Message("user", _PROBE)],
    "assistant": [Message("user", "."), Message("assistant", _PROBE), Message("user", ".")],
    "system": [Message("system", _PROBE), Message("user", ".")],
}
_CALL = ToolCall(NAME, json.dumps({KEY: 1}), "call12345")  # an id as Mistral's templates want it
_CALLED = [
    Message("user", "."),
    Message("assistant", "", calls=(_CALL,)),
    Message("tool", KEY, call_id=_CALL.id, name=NAME),
]


class ContentForms:
    """The forms that a tokenizer's template reads.

    `lost` are the roles whose messages it omits in both forms, `refused` those whose messages raise an error in both.
    Roles that are not probed get the user's form. `called` is what it writes of a call of `NAME` with the argument
    `KEY`, and of a tool's answer that says `KEY`. `opening` stands before the template, as a part of it.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self._tokenizer = tokenizer
        self._in_parts: dict[str, bool] = {}
        self._argument_texts = self._calls_alone = False
        self.opening = self.called = ""
        self.lost: set[str] = set()
        self.refused: set[str] = set()
        if tokenizer.chat_template:
            for role, messages in _PROBED.items():
                self._probe(role, messages)
            self._probe_calls()

    def contents(self, messages: Iterable[Message]) -> list[dict[str, Any]]:
        """The messages as the template reads them."""
        found = list[dict[str, Any]]()
        for message in messages:
            in_parts = self._in_parts.get(message.role, self._in_parts.get("user", False))
            text = message.content
            content: list[dict[str, str]] | str | None = [{"type": "text", "text": text}] if in_parts else text
            if message.calls and self._calls_alone:
                if message.content:
                    found.append({"role": message.role, "content": content})
                content = None
            entry: dict[str, Any] = {"role": message.role, "content": content}
            if message.thoughts:
                # Templates use one of the two names.
                entry |= {"reasoning_content": message.thoughts, "thinking": message.thoughts}
            if message.calls:
                entry["tool_calls"] = [
                    {
                        "id": call.id,
                        "type": "function",
                        "function": {
                            "name": call.name,
                            "arguments": call.arguments if self._argument_texts else json.loads(call.arguments),
                        },
                    }
                    for call in message.calls
                ]
            own = (("tool_call_id", message.call_id), ("name", message.name))
            found.append(entry | {name: value for name, value in own if value})
        return found

    def render(self, messages: Iterable[Message], options: Mapping[str, Any]) -> str:
        """The prompt as transformers renders it; raises whatever the template raises, which is a program."""
        conversation = self.contents(messages)
        template = self.opening + self._tokenizer.get_chat_template() if self.opening else None
        return str(
            self._tokenizer.apply_chat_template(
                conversation, chat_template=template, tokenize=False, add_generation_prompt=True, **options
            )
        )

    def _probe(self, role: str, messages: Sequence[Message]) -> None:
        rendered = list[str]()
        for in_parts in (False, True):
            self._in_parts[role] = in_parts
            with suppress(Exception):
                rendered.append(self.render(messages, {}))
                if _PROBE in rendered[-1] and not _PRINTED.search(rendered[-1]):
                    return
        self._in_parts[role] = False
        (self.lost if rendered else self.refused).add(role)

    def _probe_calls(self) -> None:
        for self._argument_texts, self._calls_alone in ((False, False), (True, False), (True, True)):
            with suppress(Exception):
                written = self.render(_CALLED, {})
                if NAME in written:
                    self.called = written
                    return
        self._argument_texts = self._calls_alone = False
