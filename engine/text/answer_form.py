"""How a model divides its answers into what it thinks, says and calls, as its chat template shows.

    thoughts   <think> ... </think>
    what it says
    calls      <tool_call>\\n{"name": "NAME", "arguments": ARGUMENTS}\\n</tool_call>

Marks are text, in which the names of the tokenizer's special tokens stand for these tokens.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from thothy_ai.engine.api import Message

NAME, KEY = "probe_271828", "probe_314159"  # which no template writes by itself


@dataclass(frozen=True, slots=True)
class CallForm:
    """Calls stand in sections, from `begin` to `end`: several in one with `between`, or in one each with `again`.

    A model may write `lead`, a special token, before a section; it means nothing. The name of a tool stands between
    `before_name` and `after_name`, which its arguments follow, and `after_arguments`.
    """

    begin: str
    before_name: str
    after_name: str
    after_arguments: str
    end: str = ""
    between: str | None = None
    again: str | None = None
    lead: str = ""

    def head(self, name: str) -> str:
        """What stands before the arguments of a call of this tool."""
        return self.before_name + name + self.after_name

    @property
    def link(self) -> str:
        """What stands between the arguments of a call and the head of the next; empty if there is no next."""
        if self.between is not None:
            return self.after_arguments + self.between
        return "" if self.again is None else self.after_arguments + self.end + self.again + self.begin

    def written(self, calls: Sequence[tuple[str, str]]) -> str:
        """The text of these calls, which are names and JSON texts of arguments."""
        text = self.link.join(self.head(name) + arguments for name, arguments in calls)
        return f"{self.begin}{text}{self.after_arguments}{self.end}"


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """`thought` are the marks around thoughts; none if the model does not think. `said` are those around what it says,
    which may lack marks that are no tokens.

    `native`: the template writes tools itself.
    """

    calls: CallForm
    native: bool = False
    thought: tuple[str, str] | None = None
    said: tuple[str, str] = ("", "")

    def with_ids(self, messages: Sequence[Message]) -> Sequence[Message]:
        """The messages with ids of calls that all templates of Mistral take: of nine letters and digits."""
        if not self.calls.begin.startswith(BARE.begin):
            return messages
        return [
            replace(
                message,
                call_id=_short(message.call_id),
                calls=tuple(replace(call, id=_short(call.id)) for call in message.calls),
            )
            for message in messages
        ]


HERMES = CallForm("<tool_call>", '\n{"name": "', '", "arguments": ', "}", "\n</tool_call>", again="\n")
LLAMA = CallForm("", '{"name": "', '", "parameters": ', "}", lead="<|python_tag|>")
LISTED = CallForm("[TOOL_CALLS][", '{"name": "', '", "arguments": ', "}", "]", between=", ")  # Mistral's, Granite's
BARE = CallForm("[TOOL_CALLS]", "", "[ARGS]", "", again="")  # newer ones of Mistral
CHANNELS = CallForm("<|channel|>commentary to=functions.", "", " <|constrain|>json<|message|>", "")  # gpt-oss
_CHANNELS = (("<|channel|>analysis<|message|>", "<|end|><|start|>assistant"), ("<|channel|>final<|message|>", ""))
_RESPONSE = ("<response>", "</response>")  # of Granite, when it has thought
_ID = 9  # characters
_THOUGHTS = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
)
_LIST = re.compile(r"(?P<mark>\[TOOL_CALLS\]|<\|tool_call\|>)(?P<space>\s*)\[\s*\{\s*\"name\"")
_HERMES = re.compile(rf'<tool_call>(?P<space>\s*)\{{"name": "{NAME}", "arguments": .*\}}(?P<after>\s*)</tool_call>')
_LLAMA = re.compile(rf'\{{"name": "{NAME}", "parameters": \{{')


def answer_form(template: str, called: str) -> AnswerForm:
    """The form of a model's answers. `called` is what its template writes of a call of `NAME` with the argument `KEY`,
    and of a tool's answer that says `KEY`; empty if it does not know tools.
    """
    calls: CallForm | None = None
    if called.count(KEY) > 1:
        if found := _LIST.search(called):
            calls = replace(LISTED, begin=f"{found['mark']}{found['space']}[")
        elif f"[TOOL_CALLS]{NAME}[ARGS]" in called:
            calls = BARE
        elif f"to=functions.{NAME}" in called:
            calls = CHANNELS
        elif found := _HERMES.search(called):
            calls = replace(HERMES, before_name=f'{found["space"]}{{"name": "', end=f"{found['after']}</tool_call>")
        elif _LLAMA.search(called):
            calls = LLAMA
    form = AnswerForm(calls or HERMES, native=calls is not None)
    if "<|channel|>" in template:
        thought, said = _CHANNELS
        return replace(form, thought=thought, said=said)
    for begin, end in _THOUGHTS:
        if end in template:
            return replace(form, thought=(begin, end), said=_RESPONSE if _RESPONSE[1] in template else ("", ""))
    return form


def _short(call_id: str) -> str:
    fits = not call_id or (len(call_id) == _ID and call_id.isascii() and call_id.isalnum())
    return call_id if fits else sha256(call_id.encode()).hexdigest()[:_ID]
