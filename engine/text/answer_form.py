"""How a model divides its answers into thoughts, answer and tool calls, according to its chat template.

    thoughts   <think> ... </think>
    what it says
    calls      <tool_call>\\n{"name": "NAME", "arguments": ARGUMENTS}\\n</tool_call>

Marks are texts; names of the tokenizer's special tokens in them stand for these tokens.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from thothy_ai.engine.api import Message

NAME, KEY = "probe_271828", "probe_314159"  # words that no template writes on its own


@dataclass(frozen=True, slots=True)
class PairForm:
    """Arguments as pairs, with `between` between them: `before_key`, a name, `after_key`, its value, `after_value`.

    `bare`: strings are unquoted, or between `quote` if that is not empty, and all other values are JSON. Otherwise
    values are Python's.
    """

    before_key: str
    after_key: str
    after_value: str
    between: str = ""
    bare: bool = True
    quote: str = ""

    def key(self, name: str) -> str:
        """The text before the value of this argument."""
        return self.before_key + name + self.after_key

    @property
    def after_text(self) -> str:
        """The text after a string value."""
        return self.quote + self.after_value


@dataclass(frozen=True, slots=True)
class CallForm:
    """Calls stand in sections, from `begin` to `end`. Several calls are either in one section, with `between` between
    them, or in sections of their own, with `again` between these; without both, there is only one call.

    A model can write `lead`, a special token without meaning, before a section. A call is `before_name`, the tool's
    name, `after_name`, the arguments and `after_arguments`. Arguments are `pairs` or one JSON text.
    """

    begin: str
    before_name: str
    after_name: str
    after_arguments: str
    end: str = ""
    between: str | None = None
    again: str | None = None
    lead: str = ""
    pairs: PairForm | None = None

    @property
    def marked(self) -> bool:
        """Whether calls begin with a mark rather than with punctuation that can also begin a text."""
        return any(map(str.isalpha, self.begin))

    def head(self, name: str) -> str:
        """The text of a call of this tool before its arguments."""
        return self.before_name + name + self.after_name

    @property
    def link(self) -> str:
        """The text between the arguments of a call and the head of the next; empty if there can be only one call."""
        if self.between is not None:
            return self.after_arguments + self.between
        return "" if self.again is None else self.after_arguments + self.end + self.again + self.begin

    def written(self, calls: Sequence[tuple[str, str]]) -> str:
        """The text of these calls, each a name and the JSON text of its arguments."""
        text = self.link.join(self.head(name) + arguments for name, arguments in calls)
        return f"{self.begin}{text}{self.after_arguments}{self.end}"


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """`thought`: the marks around thoughts; None if the model does not think. `said`: the marks around the answer,
    which the model can omit if they are not special tokens.

    `native`: the template writes tools itself.
    """

    calls: CallForm
    native: bool = False
    thought: tuple[str, str] | None = None
    said: tuple[str, str] = ("", "")

    def with_ids(self, messages: Sequence[Message]) -> Sequence[Message]:
        """The messages; for Mistral, with ids of calls of nine letters and digits, which all its templates accept."""
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
LISTED = CallForm("[TOOL_CALLS][", '{"name": "', '", "arguments": ', "}", "]", between=", ")  # Mistral, Granite
BARE = CallForm("[TOOL_CALLS]", "", "[ARGS]", "", again="")  # newer models of Mistral
PYTHON = CallForm(
    "[", "", "(", ")", "]", between=", ", pairs=PairForm("", "=", "", between=", ", bare=False)
)  # Llama 4, LFM2
GEMMA = CallForm(
    "<|tool_call>", "call:", "{", "}", "<tool_call|>", again="", pairs=PairForm("", ":", "", between=",", quote='<|"|>')
)  # Gemma 4
CHANNELS = CallForm("<|channel|>commentary to=functions.", "", " <|constrain|>json<|message|>", "")  # gpt-oss
_CHANNELS = (("<|channel|>analysis<|message|>", "<|end|><|start|>assistant"), ("<|channel|>final<|message|>", ""))
_RESPONSE = ("<response>", "</response>")  # Granite's marks around an answer after thoughts
_ID = 9  # characters
_THOUGHTS = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|channel>thought", "<channel|>"),  # Gemma 4's
)
_LIST = re.compile(r"(?P<mark>\[TOOL_CALLS\]|<\|tool_call\|>)(?P<space>\s*)\[\s*\{\s*\"name\"")
_HERMES = re.compile(rf'<tool_call>(?P<space>\s*)\{{"name": "{NAME}", "arguments": .*\}}(?P<after>\s*)</tool_call>')
_KEYS = re.compile(  # GLM's
    rf"<tool_call>(?P<before>\s*){NAME}(?P<head>\s*)<arg_key>{KEY}</arg_key>(?P<inner>\s*)<arg_value>1</arg_value>"
    r"(?P<after>\s*)</tool_call>"
)
_TAGS = re.compile(  # Qwen 3 Coder's, Seed's
    rf"<(?P<mark>(seed:)?tool_call)>(?P<before>\s*)<function={NAME}>(?P<head>\s*)<parameter={KEY}>(?P<inner>\s*)1"
    r"(?P<last>\s*)</parameter>(?P<after>\s*)</function>(?P<end>\s*)</(?P=mark)>"
)
_PYTHON = re.compile(rf"(?P<begin>(<\|\w+\|>)?)\[{NAME}\({KEY}=[\"']?1[\"']?\)\](?P<end>(<\|\w+\|>)?)")
_LLAMA = re.compile(rf'\{{"name": "{NAME}", "parameters": \{{')


def answer_form(template: str, called: str) -> AnswerForm:
    """The form of a model's answers. `called` is the template's text for a call of `NAME` with the argument `KEY` and a
    tool's answer `KEY`; empty if the template has no tools.
    """
    calls = (_json_calls(called) or _pair_calls(called)) if called.count(KEY) > 1 else None
    form = AnswerForm(calls or HERMES, native=calls is not None)
    if "<|channel|>" in template:
        thought, said = _CHANNELS
        return replace(form, thought=thought, said=said)
    for begin, end in _THOUGHTS:
        if end in template:
            return replace(form, thought=(begin, end), said=_RESPONSE if _RESPONSE[1] in template else ("", ""))
    return form


def _json_calls(called: str) -> CallForm | None:
    """The form of calls whose arguments are JSON."""
    if found := _LIST.search(called):
        return replace(LISTED, begin=f"{found['mark']}{found['space']}[")
    if f"[TOOL_CALLS]{NAME}[ARGS]" in called:
        return BARE
    if f"to=functions.{NAME}" in called:
        return CHANNELS
    if found := _HERMES.search(called):
        return replace(HERMES, before_name=f'{found["space"]}{{"name": "', end=f"{found['after']}</tool_call>")
    return LLAMA if _LLAMA.search(called) else None


def _pair_calls(called: str) -> CallForm | None:
    """The form of calls whose arguments are pairs."""
    if f"<|tool_call>call:{NAME}{{{KEY}:1}}<tool_call|>" in called:
        return GEMMA
    if found := _KEYS.search(called):
        pairs = PairForm("<arg_key>", f"</arg_key>{found['inner']}<arg_value>", f"</arg_value>{found['after']}")
        head = found["head"]
        return CallForm("<tool_call>", found["before"], head, "", "</tool_call>", again=head, pairs=pairs)
    if found := _TAGS.search(called):
        pairs = PairForm("<parameter=", f">{found['inner']}", f"{found['last']}</parameter>{found['after']}")
        begin, before = f"<{found['mark']}>", f"{found['before']}<function="
        end = f"</function>{found['end']}</{found['mark']}>"
        return CallForm(begin, before, f">{found['head']}", "", end, again="\n", pairs=pairs)
    if found := _PYTHON.search(called):
        begin, end = (found["begin"], found["end"]) if found["begin"] else ("", "")  # without, the message's end
        return replace(PYTHON, begin=f"{begin}[", end=f"]{end}")
    return None


def _short(call_id: str) -> str:
    fits = not call_id or (len(call_id) == _ID and call_id.isascii() and call_id.isalnum())
    return call_id if fits else sha256(call_id.encode()).hexdigest()[:_ID]
