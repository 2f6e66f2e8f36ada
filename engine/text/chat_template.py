"""A model's chat template, rendered twice: as it is, and with marks around the special tokens that it writes itself.

Marks are put around special tokens in the template's text and in its string constants, except where a constant is only
searched for or compared with (`content.split('</think>')`). Messages are rendered unchanged, so that the template
treats them as it always does: a special token that has no marks afterwards came from a message.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from jinja2 import Template, nodes

from thothy_ai.engine.api import Message, ToolCall
from thothy_ai.engine.api.errors import InvalidRequestError, UnsupportedModelError
from thothy_ai.engine.text.answer_form import KEY, NAME, AnswerForm, answer_form
from thothy_ai.engine.text.content_forms import ContentForms
from thothy_ai.engine.text.special_tokens import SpecialTokens

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_CALL_ID = "call12345"  # as Mistral's templates want it
_FILLER = "\ue000"  # in the private use area; no tokenizer's special tokens contain it
_SEARCHES = frozenset(
    ("split", "rsplit", "startswith", "endswith", "strip", "lstrip", "rstrip", "find", "rfind", "index", "rindex",
     "count", "partition", "rpartition", "removeprefix", "removesuffix", "get")
)  # fmt: skip


def tool_options(tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The template options that pass these tools; some of Meta's templates use another name for them."""
    return {"tools": tools, "custom_tools": tools}


class ChatTemplate:
    """Renders messages. `special` knows the tokenizer's special tokens."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, special: SpecialTokens) -> None:
        self._tokenizer, self._special = tokenizer, special
        self._forms = ContentForms(tokenizer)

    def require_texts(self) -> None:
        """UnsupportedModelError for a template that omits a user's messages."""
        if "user" in self._forms.lost:
            raise UnsupportedModelError(
                "the chat template writes nothing of a user's message, whether as a string or as a list of parts"
            )

    def render(self, messages: Sequence[Message], options: Mapping[str, Any]) -> str:
        """The prompt as transformers renders it; InvalidRequestError if the template refuses the messages, or would
        leave out what one says.
        """
        if not self._tokenizer.chat_template:
            raise InvalidRequestError("the model has no chat template: send text instead of messages", "messages")
        if left_out := self._forms.lost & {message.role for message in messages} - {"user"}:
            says = f"the model's chat template writes nothing of a message by {min(left_out)!r}"
            raise InvalidRequestError(says, "messages")
        try:
            return self._forms.render(messages, options)
        except Exception as error:  # a template is a program that comes with the model, and may raise anything
            says = f"the model's chat template refuses these messages: {error}"
            raise InvalidRequestError(says, "messages") from error

    def answer_form(self) -> AnswerForm:
        """The form of the model's answers, as the template writes those in its messages."""
        template = self._tokenizer.get_chat_template() if self._tokenizer.chat_template else ""
        asks, call = Message("user", "."), ToolCall(NAME, json.dumps({KEY: 1}), _CALL_ID)
        called = [asks, Message("assistant", "", calls=(call,)), Message("tool", KEY, call_id=_CALL_ID, name=NAME)]
        parameters = {"type": "object", "properties": {KEY: {"type": "integer", "description": "."}}, "required": [KEY]}
        tool = {"type": "function", "function": {"name": NAME, "description": ".", "parameters": parameters}}
        written = ""
        with suppress(Exception):  # as above
            if NAME in self._forms.render([asks], tool_options([tool])):
                written = self._forms.render(called, {})
        return answer_form(template, written)

    def without_system(self, messages: Sequence[Message]) -> Sequence[Message]:
        """The messages; a system message that the template refuses, as Gemma's does, moves into the next message."""
        takes_system = "system" not in self._forms.lost | self._forms.refused
        if len(messages) < 2 or messages[0].role != "system" or takes_system:
            return messages
        system, first, *others = messages
        return [replace(first, content=f"{system.content}\n\n{first.content}"), *others]

    def mark(self, text: str, messages: Sequence[Message], options: Mapping[str, Any]) -> str | None:
        """`text`, which was rendered from the messages, with marks around the special tokens that the template wrote.

        None if the template wrote all of them. InvalidRequestError for a template that composes special tokens from
        pieces and changes the messages' own: which ones it wrote is not known then.
        """
        marked = self._render_marked(messages, options)
        if self._special.unmark(marked) == text:
            if not self._special.unmarked_in(marked):
                return None
            others, options_ = self._without_special(messages, options)
            filled = [replace(m, content="".join(c if c.isspace() else _FILLER for c in m.content)) for m in others]
            if not self._special.unmarked_in(self._render_marked(filled, options_)):
                return marked
        # The template's special tokens are those that remain when fillers replace the messages' special tokens.
        others, options_ = self._without_special(messages, options)
        if self._forms.contents(others) == self._forms.contents(messages) and options_ == options:
            return None
        without = self.render(others, options_)
        if len(without) != len(text) or any(a not in (b, _FILLER) for a, b in zip(without, text, strict=True)):
            says = "a message contains a special token, which the chat template cannot handle"
            raise InvalidRequestError(says, "messages")
        return self._special.mark_as_in(without, text)

    def _without_special(
        self, messages: Sequence[Message], options: Mapping[str, Any]
    ) -> tuple[list[Message], Mapping[str, Any]]:
        """The messages and the tools with fillers instead of each character of a special token."""

        def fill(value: Any) -> Any:  # noqa: ANN401  JSON in, JSON out
            match value:
                case str():
                    return self._special.fill(value, _FILLER)
                case list():
                    return [fill(each) for each in value]
                case dict():
                    return {fill(name): fill(each) for name, each in value.items()}
            return value

        others = [
            replace(
                message,
                content=fill(message.content),
                thoughts=fill(message.thoughts),
                name=fill(message.name),
                call_id=fill(message.call_id),
                calls=tuple(
                    ToolCall(fill(call.name), json.dumps(fill(json.loads(call.arguments))), fill(call.id))
                    for call in message.calls
                ),
            )
            for message in messages
        ]
        return others, {**options, **tool_options(fill(options["tools"]))} if options.get("tools") else options

    def _render_marked(self, messages: Sequence[Message], options: Mapping[str, Any]) -> str:
        variables = {
            name: self._special.mark(value) if isinstance(value, str) else value
            for name, value in self._tokenizer.special_tokens_map.items()
        }
        try:
            return self._marked.render(
                messages=self._forms.contents(messages),
                **{"tools": None, "documents": None, "add_generation_prompt": True, **variables, **options},
            )
        except Exception:  # noqa: BLE001  a template may refuse marks, or fillers instead of a message
            return ""

    @cached_property
    def _marked(self) -> Template:
        from transformers.utils.chat_template_utils import _compile_jinja_template  # noqa: PLC0415  slow to import

        source = self._tokenizer.get_chat_template()
        environment = _compile_jinja_template(source).environment
        tree = environment.parse(source)
        self._mark_written(tree)
        compiled: Template = environment.from_string(tree)
        return compiled

    def _mark_written(self, node: nodes.Node) -> None:
        """Put marks into all constants that a part of a template can write, but not into those that it only searches
        for or compares with.
        """
        written = node.iter_child_nodes()
        match node:
            case nodes.TemplateData():
                node.data = self._special.mark(node.data)
            case nodes.Const(value=str(text)):
                node.value = self._special.mark(text)
            case nodes.Compare() | nodes.Test():
                written = iter(())
            case nodes.Getitem(node=value) | nodes.Pair(value=value):
                written = iter((value,))
            case nodes.Call(node=nodes.Getattr(node=value, attr=name)) if name in _SEARCHES:
                written = iter((value,))
            case nodes.Call(node=nodes.Getattr(node=value, attr="replace"), args=[_, *replacement]):
                written = iter((value, *replacement))
            case nodes.Filter(name="replace", node=nodes.Expr() as value, args=[_, *replacement]):
                written = iter((value, *replacement))
        for child in written:
            self._mark_written(child)
