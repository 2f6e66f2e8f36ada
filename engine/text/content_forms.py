"""The form in which a chat template expects messages' contents: strings, or lists of parts.

Templates of multimodal models often iterate over parts (`content[0]['text']`); they silently omit a string. The form is
declared nowhere, so a probe is rendered in both forms for each role.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from thothy_ai.engine.api import Message

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_PROBE = "271828182845904"  # digits survive whatever a template does to letters
_PRINTED = re.compile(rf"""['"]text['"]: ['"]{_PROBE}""")  # the list itself
_PROBED = {  # in this order: the user's form is known when others' are looked for
    "user": [Message("user", _PROBE)],
    "assistant": [Message("user", "."), Message("assistant", _PROBE), Message("user", ".")],
    "system": [Message("system", _PROBE), Message("user", ".")],
}


class ContentForms:
    """The forms that a tokenizer's template reads.

    `lost` are the roles whose messages it omits in both forms, `refused` those whose messages raise an error in both.
    Roles that are not probed get the user's form.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self._tokenizer = tokenizer
        self._in_parts: dict[str, bool] = {}
        self.lost: set[str] = set()
        self.refused: set[str] = set()
        if tokenizer.chat_template:
            for role, messages in _PROBED.items():
                self._probe(role, messages)

    def contents(self, messages: Iterable[Message]) -> list[dict[str, Any]]:
        """The messages as the template reads them."""
        found = list[dict[str, Any]]()
        for message in messages:
            in_parts = self._in_parts.get(message.role, self._in_parts.get("user", False))
            content = [{"type": "text", "text": message.content}] if in_parts else message.content
            entry: dict[str, Any] = {"role": message.role, "content": content}
            if message.thoughts:
                # Templates use one of the two names.
                entry |= {"reasoning_content": message.thoughts, "thinking": message.thoughts}
            if message.calls:
                entry["tool_calls"] = [
                    {
                        "id": call.id,
                        "type": "function",
                        "function": {"name": call.name, "arguments": json.loads(call.arguments)},
                    }
                    for call in message.calls
                ]
            own = (("tool_call_id", message.call_id), ("name", message.name))
            found.append(entry | {name: value for name, value in own if value})
        return found

    def render(self, messages: Iterable[Message], options: Mapping[str, Any]) -> str:
        """The prompt as transformers renders it; raises whatever the template raises, which is a program."""
        conversation = self.contents(messages)
        return str(
            self._tokenizer.apply_chat_template(conversation, tokenize=False, add_generation_prompt=True, **options)
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
