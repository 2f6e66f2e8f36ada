"""The form of a model's answers: the grammar of a request's answer, and the divider of its text."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from thothy_ai.engine.api import GenerationRequest, Message, ToolChoice, Tools
from thothy_ai.engine.api.core import AnswerRules
from thothy_ai.engine.api.errors import InvalidRequestError
from thothy_ai.engine.grammar.bare import BareSearch
from thothy_ai.engine.text.answer_form import AnswerForm
from thothy_ai.engine.text.answer_rules import RuleWriter
from thothy_ai.engine.text.division import Divider, Marks
from thothy_ai.engine.text.parameters import CalledTool, Parameter, parameters_of

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_NO_ARGUMENTS = {"type": "object", "properties": {}, "additionalProperties": False}
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
Tool = dict[str, Any]  # a definition


@dataclass(frozen=True, slots=True)
class AnswerShape:
    """The form of one request's answers, bound by `rules`, by a `schema` alone, or by nothing."""

    marks: Marks
    tools: tuple[CalledTool, ...]  # that can be called
    opened: bool
    rules: AnswerRules | None

    def divider(self) -> Divider:
        """A divider for one of the answers."""
        return Divider(self.marks, self.tools, opened=self.opened)


class Answers:
    """Knows the form of a model's answers, and its tokenizer's special tokens."""

    def __init__(self, form: AnswerForm, tokenizer: Tokenizer) -> None:
        tokens = {id_: token for id_, token in tokenizer.get_added_tokens_decoder().items() if token.content.strip()}
        added = {token.content: id_ for id_, token in tokens.items()}
        special = {token.content for token in tokens.values() if token.special}
        self.form = form
        self._rules, self._marks = RuleWriter(form, added), Marks(form, added, special)

    def is_opened_by(self, prompt: str) -> bool:
        """Whether a prompt begins a thought, which the answer continues."""
        return self.form.thought is not None and prompt.rstrip().endswith(self.form.thought[0])

    def of(self, request: GenerationRequest, *, opened: bool) -> AnswerShape | None:
        """The shape for a request with divided output; None if the output can only be text that the model says.
        `opened`: the prompt begins a thought.
        """
        tools = request.tools if request.tools and request.tools.choice is not ToolChoice.NONE else None
        thinks = self.form.thought is not None
        if not (request.divided and (tools or thinks or any(self.form.said))):
            return None
        defined = [*enumerate([] if tools is None else definitions(tools))]
        if tools is not None and tools.only:
            defined = [(at, tool) for at, tool in defined if tool["function"]["name"] == tools.only]
        pairs, called, search = self.form.calls.pairs, list[CalledTool](), BareSearch()
        schemas, places = list[str](), list[str]()
        for at, tool in defined:
            name, place = tool["function"]["name"], f"tools.{at}.function.parameters"
            schema = _parameters(tool, place)
            parameters = None if pairs is None else parameters_of(schema, place, pairs, search)
            called.append(CalledTool(name, parameters))
            for key, bound_by in _schemas_of(schema, parameters):
                schemas.append(bound_by)
                places.append(f"{place}{key}")
        must_call = tools is not None and (bool(tools.only) or tools.choice is ToolChoice.REQUIRED)
        bound = request.schema is not None and not must_call
        if request.schema is not None and bound:
            schemas.append(request.schema)
            places.append("")
        rules = None
        if schemas or called:
            parallel = tools is not None and tools.parallel and not tools.only
            if must_call or not called:
                segments, lark = self._rules.segments(called, opened=opened, parallel=parallel), ""
            else:
                segments, lark = None, self._rules.write(called, opened=opened, parallel=parallel, bound=bound)
            rules = AnswerRules(lark, tuple(schemas), tuple(places), segments)
        return AnswerShape(self._marks, tuple(called), opened, rules)


def definitions(tools: Tools) -> list[Tool]:
    """The tools' definitions; InvalidRequestError if one cannot be called, or cannot be distinguished from another."""
    defined: list[Tool] = []
    seen: dict[str, int] = {}
    for at, text in enumerate(tools.definitions):
        try:
            tool = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidRequestError(f"tools.{at} is not JSON: {error}", f"tools.{at}") from error
        function = tool.get("function") if isinstance(tool, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        place = f"tools.{at}.function.name"
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            wanted = "expected up to 64 letters, digits, dashes and underscores"
            raise InvalidRequestError(f"{place}: {wanted}, got {name!r:.80}", place)
        if seen.setdefault(name, at) != at:
            raise InvalidRequestError(f"{place}: {name!r} is the name of tools.{seen[name]}, too", place)
        defined.append(tool)
    if tools.only and tools.only not in seen:
        raise InvalidRequestError(f"tool_choice: there is no tool {tools.only!r:.80}", "tool_choice")
    return defined


def check_calls(messages: Sequence[Message]) -> None:
    """InvalidRequestError for a call in a message whose arguments are not an object."""
    for at, message in enumerate(messages):
        for number, call in enumerate(message.calls):
            try:
                arguments = json.loads(call.arguments)
            except (ValueError, RecursionError):
                arguments = None
            if not isinstance(arguments, dict):
                place = f"messages.{at}.tool_calls.{number}.function.arguments"
                raise InvalidRequestError(f"{place}: expected an object as JSON text", place)


def _parameters(tool: Tool, place: str) -> dict[str, Any]:
    """The schema of a tool's arguments, an object; one without properties if the tool defines none."""
    schema = tool["function"].get("parameters") or _NO_ARGUMENTS
    kinds = schema.get("type", "object") if isinstance(schema, dict) else None
    if "object" not in (kinds if isinstance(kinds, list) else [kinds]):
        raise InvalidRequestError(f"{place}: expected the schema of an object", place)
    return {**schema, "type": "object"}


def _schemas_of(schema: dict[str, Any], parameters: Sequence[Parameter] | None) -> list[tuple[str, str]]:
    """The schemas, as JSON texts, that bind a tool's arguments, and the place of each within the tool's schema."""
    if parameters is None:
        return [("", json.dumps(schema, ensure_ascii=False))]
    return [(f".properties.{each.name}", each.schema) for each in parameters if each.schema is not None]
